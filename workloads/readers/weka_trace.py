"""Recorded Claude Code sessions (`workloads.readers.weka`) as the rows of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workloads.readers.build import Build
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk
from workloads.readers.weka import Request, Session, SubAgent, sessions
from workloads.trace import Labels, Segments

KINDS = ("user", "tool-round", "subagent")
USER, TOOL_ROUND, SUBAGENT = range(3)
ID_SPACE = 2**42  # block ids of a session are made unique by its place in the file times this
WHY = (
    "its sessions were recorded apart, each with a clock of its own; replay them as sessions, "
    'workload.agents = [{ kind = "weka", path = "FILE" }], closed loop or with open_loop = true'
)


@dataclass(slots=True)
class _Rows:
    """One entry a request, in the order of the file; a session's sub-agents after it."""

    session: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    threads: int = 0

    def add(self, requests: Sequence[Request], subagents: Sequence[SubAgent], start_s: float, kind: int | None) -> None:
        number = self.threads
        self.threads += 1
        for request in requests:
            self.session.append(number)
            self.kind.append(kind if kind is not None else int("tool_result" in request.input_types))
            self.requests.append(request)
            self.started.append(start_s + request.start_s)
        for inner in subagents:
            self.add(inner.requests, inner.subagents, start_s + inner.start_s, SUBAGENT)


def read(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the requests of all sessions, as `columns` has them."""
    return build.untimed(WHY, **columns(sessions(chunks, build.log)))


def columns(found: Iterable[Session]) -> dict[str, Any]:
    """Return the columns of a trace of these sessions; each session and each sub-agent has a number of its own.

    ``kind`` is ``user`` for a request that follows a user's message, ``tool-round`` for one that carries tool results,
    ``subagent`` for all requests of a sub-agent. Segments are pieces of block runs, cut so that equal blocks are equal
    pieces. The sessions have no common clock: ``arrival_s`` is 0, ``session_s`` counts from each one's start.
    """
    rows, parts = _Rows(), []
    for place, session in enumerate(found):
        first = len(rows.requests)
        rows.add(session.requests, session.subagents, 0.0, None)
        parts.append(_pieces(rows.requests[first:], session.block, place * ID_SPACE))
    requests = rows.requests
    return {
        "arrival_s": np.zeros(len(requests)),
        "prompt_tokens": np.array([request.input_tokens for request in requests], np.int64),
        "output_tokens": np.array([request.output_tokens for request in requests], np.int64),
        "kind": Labels(np.array(rows.kind, np.int32), KINDS),
        "session": np.array(rows.session, np.int64),
        "segments": Segments.concat(parts) if parts else None,
        "session_s": np.array(rows.started, np.float64),
        "think_s": np.array([_known(request.think_s) for request in requests], np.float64),
        "service_s": np.array([_known(request.api_s) for request in requests], np.float64),
    }


def _known(value: float | None) -> float:
    return float("nan") if value is None else value


def _pieces(requests: Sequence[Request], block: int, base: int) -> Segments:
    """Return the prompts' runs cut at every place where any run of the session starts or ends."""
    starts = np.array([run for request in requests for run in request.run_ids], np.int64)
    lengths = [np.diff(request.run_ends, prepend=0) for request in requests]
    ends = starts + np.concatenate([*lengths, np.empty(0, np.int64)]).astype(np.int64)
    cuts = np.unique(np.concatenate((starts, ends)))
    low, high = np.searchsorted(cuts, starts), np.searchsorted(cuts, ends)
    counts = high - low
    at = np.repeat(low - np.concatenate(([0], np.cumsum(counts)))[:-1], counts) + np.arange(counts.sum())
    runs = np.concatenate(([0], np.cumsum([len(request.run_ids) for request in requests]))).astype(np.int64)
    edges = np.concatenate(([0], np.cumsum(counts)))[runs]
    sizes = np.diff(cuts, append=cuts[-1:])
    return Segments(edges, cuts[at] + base, sizes[at] * block, block)
