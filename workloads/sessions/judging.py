"""How near drawn sessions come to recorded ones, number by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from workloads.readers.weka import Request, Session
from workloads.readers.weka_trace import columns
from workloads.sessions.fitting import rounds_of
from workloads.substreams import generator
from workloads.trace import Trace

Floats = NDArray[np.float64]
Main = Sequence[Sequence[Request]]


def _each(value: Callable[[Request], float | None]) -> Callable[[Main], list[float]]:
    def column(main: Main) -> list[float]:
        found = (value(request) for requests in main for request in requests)
        return [item for item in found if item is not None]

    return column


NOISE = {
    "input": 0.10,
    "output": 0.053,
    "rounds": 0.10,
    "appended": 0.08,
    "requests": 0.14,
    "first": 0.14,
    "think": 0.064,
    "api": 0.092,
}
"""Distance between random halves of 346 recorded Claude Code sessions, 95th percentile, as published with the data."""

MARGINALS: dict[str, Callable[[Main], list[float]]] = {
    "input": _each(lambda request: float(request.input_tokens)),
    "output": _each(lambda request: float(request.output_tokens)),
    "rounds": lambda main: [float(count) for requests in main for count in rounds_of(requests) if count],
    "appended": lambda main: [
        float(b.input_tokens - a.input_tokens - a.output_tokens)
        for requests in main
        for a, b in pairwise(requests)
        if b.input_tokens - a.input_tokens - a.output_tokens > 0
    ],
    "requests": lambda main: [float(len(requests)) for requests in main],
    "first": lambda main: [float(requests[0].input_tokens) for requests in main],
    "think": _each(lambda request: request.think_s),
    "api": _each(lambda request: request.api_s),
}


def marginals(sessions: Sequence[Session]) -> dict[str, Floats]:
    """Return the sample of each of `MARGINALS`, of the main requests."""
    main = [session.requests for session in sessions if session.requests]
    return {name: np.sort(np.array(column(main), np.float64)) for name, column in MARGINALS.items()}


def distances(one: Sequence[Session], other: Sequence[Session]) -> dict[str, float]:
    """Return the distance of Kolmogorov and Smirnov of each marginal."""
    first, second = marginals(one), marginals(other)
    return {name: float(stats.ks_2samp(first[name], second[name]).statistic) for name in MARGINALS}


def prefix_reuse(sessions: Sequence[Session]) -> float | None:
    """Return the share of prompt blocks of main requests that an unlimited cache for each session would find."""
    main = (replace(session, subagents=()) for session in sessions)
    return Trace(**columns(main)).prefix_reuse()


def halves(sessions: Sequence[Session], seed: int) -> tuple[list[Session], list[Session]]:
    """Return a random half of the sessions, and the other half."""
    order = generator(seed, "halves").permutation(len(sessions))
    middle = len(sessions) // 2
    return [sessions[i] for i in order[:middle]], [sessions[i] for i in order[middle:]]
