"""A line fitted to a log of single requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls
from scipy.special import stdtrit

from sim.calibrate.fit import Calibration, Errors, errors_of
from sim.loadtest import Passage
from sim.measured import replay
from sim.replica.admission import Prompt
from sim.replica.server import Server
from sim.steptime import Line
from workloads.errors import BadInput, Fault

Floats = NDArray[np.float64]

CONSTANTS = ("base_s", "per_request_s", "per_context_token_s", "per_prompt_token_s")
FEWEST = 20
"""Requests with more than one token of output below which no fit is tried."""
MOST_REPLAYED = 3_000
"""Requests, from the beginning of the log, that the constants are improved on."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """What a server's requests did, as running sums over its steps, at given times.

    Attributes
    ----------
    time_s
        When: every arrival in and departure from the batch of decoding requests.
    requests, context
        Sums over all steps so far of the decoding requests and of their stored tokens.
    """

    time_s: Floats
    requests: Floats
    context: Floats

    def between(self, start: Floats, end: Floats) -> tuple[Floats, Floats]:
        """Return both sums over the steps between two times, for many pairs of times at once."""
        requests = np.interp(end, self.time_s, self.requests) - np.interp(start, self.time_s, self.requests)
        context = np.interp(end, self.time_s, self.context) - np.interp(start, self.time_s, self.context)
        return requests, context


def sums_of(passage: Passage) -> Sums:
    """Return the running sums of a log.

    A request makes one token a step, so between its first and last token it counts the steps: their rate at a time is
    the mean over the requests decoding then. Its context grows by one token a step.
    """
    long = passage.output_tokens > 1
    first, last = passage.first_token_s[long], passage.last_token_s[long]
    rate = (passage.output_tokens[long] - 1) / (last - first)
    stored = passage.prompt_tokens[long] + 1.0
    times = np.concatenate([first, last])
    order = np.argsort(times, kind="stable")
    times = times[order]

    def running(values: Floats) -> Floats:
        return np.cumsum(np.concatenate([values, -values])[order])

    count, rates = running(np.ones(len(rate))), running(rate)
    fixed, growing = running(stored - rate * first), running(rate)
    middle = (times[1:] + times[:-1]) / 2
    steps = np.diff(times) * rates[:-1] / np.maximum(count[:-1], 1)
    held = np.maximum(fixed[:-1] + growing[:-1] * middle, 0.0)
    start = np.zeros(1)
    requests = np.concatenate([start, np.cumsum(steps * count[:-1])])
    return Sums(times, requests, np.concatenate([start, np.cumsum(steps * held)]))


def calibrate_log(
    passage: Passage, *, max_num_seqs: int | None = None, budget: int | None = None, kv_tokens: int | None = None
) -> Calibration:
    """Fit a line to a request log; every second request is held out.

    The time between a request's first and last token is the sum of the steps in between: ``(output - 1) base_s`` and so
    much for each request, stored token and prompt token in them. A non-negative least-squares fit of relative errors
    gives first constants; replays of the log improve them until the TPOT and E2E of its requests are met best.

    Parameters
    ----------
    passage
        The log.
    max_num_seqs, budget
        The server's limits; None takes the largest batch seen, and 8,192 tokens a step.
    kv_tokens
        Size of the pool; None takes the most tokens seen in use.

    Raises
    ------
    BadInput
        There are too few requests with more than one token of output.
    """
    long = (passage.output_tokens > 1) & (passage.last_token_s > passage.first_token_s)
    if long.sum() < FEWEST:
        raise BadInput(
            Fault(f"holds {long.sum()} requests with more than one token of output: at least {FEWEST} are needed")
        )
    columns, spans = _columns(passage, long)
    train = np.arange(len(spans)) % 2 == 0
    weighted = columns[train] / spans[train, None]
    size = 1.0 / np.maximum(weighted.mean(axis=0), 1e-12)  # of a constant that would explain all of the time alone
    start, _ = nnls(weighted * size, np.ones(len(weighted)))
    if not (start[0] or start[1]):
        message = "no time per step can be told from these requests: their number in the batch never changes"
        raise BadInput(Fault(message))

    batch, stored, binds = _use(passage, max_num_seqs)
    seqs = max_num_seqs or batch
    tokens = passage.prompt_tokens + passage.output_tokens
    pool = kv_tokens or max(stored, int(tokens.max()))
    roomy = max(pool, int(np.sort(tokens)[-seqs:].sum()) + 16 * seqs)
    server = Server(
        rule=Prompt(),
        step_time=Line(1.0),
        kv_tokens=pool if kv_tokens or binds else roomy,
        window=int(tokens.max()),
        block_tokens=16,
        max_num_seqs=seqs,
        max_num_batched_tokens=max(budget or 8_192, seqs),
        chunked_prefill=True,
    )
    place = np.flatnonzero(long)
    intervals = _refined(passage, server, place[train], start, size)
    base, request, context, prompt = (value for value, _, _ in intervals)
    again, _ = replay(passage, replace(server, step_time=Line(base, request, context, prompt)))
    place = np.flatnonzero(long)
    return Calibration(
        kind="line",
        constants=dict(zip(CONSTANTS, intervals, strict=True)),
        fitted=_errors(again, passage, place[train]),
        held_out=_errors(again, passage, place[~train]),
        covers={
            "running": (1.0, float(batch)),
            "prompt_tokens": (float(passage.prompt_tokens.min()), float(passage.prompt_tokens.max())),
            "request_tokens": (float(tokens.min()), float(tokens.max())),
        },
        kv_tokens=pool,
        kv_is_at_least=kv_tokens is None and not binds,
        notes=tuple(
            f"{name} is not told apart from the others by these requests"
            for name, (value, _, high) in zip(CONSTANTS, intervals, strict=True)
            if high > 2 * value
        ),
    )


def _columns(passage: Passage, long: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return what each constant multiplies in the time between first and last token, and that time."""
    first, last = passage.first_token_s[long], passage.last_token_s[long]
    requests, context = sums_of(passage).between(first, last)
    order = np.argsort(passage.first_token_s)
    ends = passage.first_token_s[order]
    prompts = np.concatenate([np.zeros(1), np.cumsum(passage.prompt_tokens[order])])
    before, after = np.searchsorted(ends, first, "right"), np.searchsorted(ends, last, "right")
    computed = prompts[after] - prompts[before]
    present = requests + (after - before)  # a prompt that is computed counts as a request of its step
    return np.column_stack([passage.output_tokens[long] - 1.0, present, context, computed]), last - first


def _refined(
    passage: Passage, server: Server, place: NDArray[np.intp], start: Floats, size: Floats
) -> list[tuple[float, float, float]]:
    """Return value, low and high (95 %) of each constant, where replays of the log's beginning meet it best."""
    head = passage.head(MOST_REPLAYED)
    place = place[place < MOST_REPLAYED]
    theirs = _timing(head, place)

    def residuals(shifted: Floats) -> Floats:
        base, request, context, prompt = map(float, (shifted - 1.0) * size)
        ours = _timing(replay(head, replace(server, step_time=Line(base + 1e-9, request, context, prompt)))[0], place)
        return np.concatenate([np.log(ours[name] / theirs[name]) for name in ("tpot", "e2e")])

    # Counted from 1, because the solver's steps are relative to the value and constants may be 0.
    bounds = (np.ones(len(start)), np.full(len(start), np.inf))
    fit = least_squares(
        residuals,
        np.maximum(start, 1e-6) + 1.0,
        bounds=bounds,
        diff_step=[0.01],
        loss="soft_l1",
        f_scale=0.1,
        max_nfev=8,
    )
    freedom = max(1, len(fit.fun) - len(start))
    jacobian = np.asarray(fit.jac)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * (fit.fun @ fit.fun) / freedom
    half = stdtrit(freedom, 0.975) * np.sqrt(np.diag(covariance)) * size
    values = (fit.x - 1.0) * size
    return [(float(v), max(0.0, float(v - h)), float(v + h)) for v, h in zip(values, half, strict=True)]


def _use(passage: Passage, max_num_seqs: int | None) -> tuple[int, int, bool]:
    """Return the largest batch, the most tokens stored, and whether the pool was full then.

    It was if, with at least 97 % of those tokens stored, requests waited although the batch was below 95 % of its
    limit.
    """
    ones = np.ones(len(passage.queued_s))
    nothing = np.zeros(len(ones))
    times = np.concatenate([passage.queued_s, passage.scheduled_s, passage.last_token_s])
    order = np.argsort(times, kind="stable")
    times = times[order]

    def running(queued: Floats, scheduled: Floats, finished: Floats) -> Floats:
        return np.cumsum(np.concatenate([queued, scheduled, finished])[order])

    batch = running(nothing, ones, -ones)
    waiting = running(ones, -ones, nothing)
    rate = passage.output_tokens / np.maximum(passage.last_token_s - passage.scheduled_s, 1e-9)
    fixed = passage.prompt_tokens - rate * passage.scheduled_s
    stored = running(nothing, fixed, -fixed) + running(nothing, rate, -rate) * times
    most = int(batch.max())
    full = stored >= 0.97 * stored.max()
    binds = bool(np.median(waiting[full]) > 0 and np.median(batch[full]) < 0.95 * (max_num_seqs or most))
    return most, int(stored.max()), binds


def _timing(run: Passage, place: NDArray[np.intp]) -> dict[str, Floats]:
    """Return the latencies of some requests, seconds."""
    decode = (run.last_token_s - run.first_token_s)[place] / (run.output_tokens[place] - 1)
    return {
        "tpot": decode,
        "ttft": np.maximum((run.first_token_s - run.queued_s)[place], 1e-9),
        "e2e": (run.last_token_s - run.queued_s)[place],
    }


def _errors(again: Passage, passage: Passage, place: NDArray[np.intp]) -> dict[str, Errors]:
    ours, theirs = _timing(again, place), _timing(passage, place)
    return {name: errors_of(ours[name].tolist(), theirs[name].tolist()) for name in theirs}
