"""One replication of one arm: what happened, and what it measures within a window of time."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.output import OutputPolicy
from policies.retry import Retry
from sim.clients.client import Clients
from sim.clients.faults import Faults
from sim.clients.tasks import TaskClients
from sim.clients.tools import Tool
from sim.clock import Clock
from sim.records import OUTCOMES, REFUSALS, TASK, TASK_OUTCOMES, Table
from sim.replica.admission import RULES
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replica.timeline import Gaps, Series
from sim.replica.work import GIVEN_UP
from sim.rows import Chosen, Rows
from sim.study.server import Settled
from workloads.source import Source

Floats = NDArray[np.floating[Any]]

TICKS = 500
"""Intervals of the grid that a horizon is cut into."""

PATIENCE = 10
"""Horizons after which arrivals end although measured calls are still open: the server never catches up."""

STATISTICS: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Setting:
    """What an arm is made of.

    Attributes
    ----------
    server
        The model server.
    policy
        The clients' output policy.
    model
        What calls tell the policy of the model: its name.
    source
        Where the calls come from.
    horizon_s
        Arrivals before it are measured; infinite for a whole trace.
    steady
        Whether arrivals go on until the last measured call has ended.
    tick_s
        Grid of the time series.
    tools
        What calls of a kind end in.
    faults
        What goes wrong by chance.
    retry
        When clients send a request again.
    timeout_s
        Seconds after which clients that send again break a request off.
    """

    server: Server
    policy: OutputPolicy
    model: str
    source: Source
    horizon_s: float
    steady: bool
    tick_s: float
    tools: Mapping[str, Tool] = field(default_factory=dict)
    faults: Faults | None = None
    retry: Retry | None = None
    timeout_s: float = math.inf

    def clients(self, clock: Clock, replica: Replica, seed: int, number: int) -> Clients:
        """Return who calls in a replication."""
        who = (clock, replica, self.policy, self.model, self.server.window)
        if not (self.tools or self.faults or self.retry):
            return Clients(*who)
        return TaskClients(
            *who,
            tools=self.tools,
            faults=self.faults,
            retry=self.retry,
            timeout_s=self.timeout_s,
            seed=seed,
            replication=number,
        )


def server_of(settled: Settled) -> Server:
    """Return the server that a study describes."""
    rule = RULES[settled.admission]
    constants = {field.name: getattr(settled, field.name) for field in fields(rule)}  # type: ignore[arg-type]
    return Server(
        rule=rule(**constants),
        step_time=settled.step_time,
        kv_tokens=settled.kv_tokens,
        window=settled.window,
        block_tokens=settled.block_tokens,
        max_num_seqs=settled.max_num_seqs,
        max_num_batched_tokens=settled.max_num_batched_tokens,
        chunked_prefill=settled.chunked_prefill,
        max_waiting=settled.max_waiting,
        prefix_cache=settled.prefix_cache,
        victim=settled.victim,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Replication:
    """What happened in one replication of one arm.

    Attributes
    ----------
    requests, calls, tasks
        The records of the measured calls and tasks, see :mod:`sim.records`.
    kinds, scripts
        Names of the categories that the columns ``kind`` and ``script`` of the calls count.
    series
        Time integrals.
    kv_tokens
        Size of the pool, tokens.
    prefix_cache
        Whether the server had a prefix cache.
    end_s
        When the simulation ended.
    submitted
        Requests simulated, the unmeasured included.
    cpu_s
        CPU time that it took.
    """

    requests: Rows
    calls: Rows
    tasks: Rows
    kinds: tuple[str, ...]
    scripts: tuple[str, ...]
    series: Series
    kv_tokens: int
    prefix_cache: bool
    end_s: float
    submitted: int
    cpu_s: float


def replicate(setting: Setting, seed: int, number: int) -> Replication:
    """Simulate replication ``number`` of an arm. The same seed and number give every arm the same calls."""
    began = time.process_time()
    clock = Clock()
    replica = Replica(clock, setting.server, setting.tick_s)
    clients = setting.clients(clock, replica, seed, number)
    workload = setting.source.blocks(seed, number)
    limit_s = PATIENCE * setting.horizon_s if setting.steady else setting.horizon_s
    with uncollected():
        clients.run(workload, setting.horizon_s, limit_s, setting.source.users(seed, number))
    end_s = clock.now
    return Replication(
        requests=clients.requests.all(),
        calls=clients.calls.all(),
        tasks=(clients.tasks if isinstance(clients, TaskClients) else Table(TASK)).all(),
        kinds=clients.kinds,
        scripts=clients.scripts,
        series=replica.close(),
        kv_tokens=setting.server.kv_tokens,
        prefix_cache=setting.server.prefix_cache,
        end_s=end_s,
        submitted=replica.submitted,
        cpu_s=time.process_time() - began,
    )


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the cycle collector off: a simulation makes millions of short-lived objects and no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def measure(run: Replication, window: tuple[float, float], slo: Mapping[str, float]) -> dict[str, float | None]:
    """Return every metric of a replication; None where it has no value.

    Parameters
    ----------
    run
        What happened.
    window
        Calls that arrive in it are measured and time averages are taken over it, seconds. It begins and ends on the
        grid; an infinite end is the end of the last call.
    slo
        Bounds on durations, seconds, by the duration's name.
    """
    series = run.series
    begin_s, end_s = window[0], min(window[1], run.end_s)
    first, last = (int(np.searchsorted(series.time_s, edge - 1e-9 * max(edge, 1.0))) for edge in (begin_s, end_s))
    calls, requests = _within(run, begin_s, end_s)
    tasks = run.tasks[(run.tasks["arrival_s"] >= begin_s) & (run.tasks["arrival_s"] < end_s)]
    span = end_s - begin_s
    taken = served(requests)
    metrics: dict[str, float | None] = {}
    for name, values in _durations(taken, calls):
        metrics |= dict(_statistics(name, values))
    metrics |= dict(_gaps(series.gaps(first, last)))
    metrics |= _of_tasks(tasks)

    def average(integral: Floats) -> float | None:
        return _ratio(integral[last] - integral[first], span)

    reserved, used = (integral[last] - integral[first] for integral in (series.reserved, series.used))
    generated = requests["output_tokens"].sum(dtype=np.int64)
    metrics |= {
        "running.mean": average(series.running),
        "running.max": float(series.most_running[first:last].max(initial=0)),
        "waiting.mean": average(series.waiting),
        "kv.reserved_share.mean": _ratio(reserved, span * run.kv_tokens),
        "kv.used_share.mean": _ratio(used, span * run.kv_tokens),
        "kv.overreservation": _ratio(reserved, used),
        "call.attempts.mean": _mean(calls["attempts"]),
        "call.reserved_token_s.mean": _mean(calls["reserved_token_s"]),
        "truncated.first_share": _mean(calls["first_truncated"]),
        "truncated.final_share": _mean(calls["final_truncated"]),
        "tokens.wasted_share": _ratio(calls["discarded_tokens"].sum(dtype=np.int64), generated),
        "tokens.output_per_s": _ratio(calls["delivered_tokens"].sum(dtype=np.int64), span),
        "prefix.hit_rate": _ratio(
            taken["cached_tokens"].sum(dtype=np.int64), taken["prompt_tokens"].sum(dtype=np.int64)
        )
        if run.prefix_cache
        else None,
        "refused_share": _mean((requests["refusal"] > 0) & (requests["refusal"] != REFUSALS.index(GIVEN_UP))),
        "abandoned_share": _mean(calls["outcome"] == OUTCOMES.index("abandoned")),
        "preemptions_per_request": _mean(requests["preemptions"]),
        "slo.attainment": None,
        "slo.goodput_per_s": None,
        "makespan_s": _ratio(calls["finished_s"].max(initial=0.0) - calls["arrival_s"].min(initial=np.inf), 1.0)
        if len(calls)
        else None,
    }
    if slo:
        met = _meets(calls, requests, slo)
        metrics |= {"slo.attainment": _mean(met), "slo.goodput_per_s": _ratio(met.sum(), span)}
    return metrics


def _within(run: Replication, begin_s: float, end_s: float) -> tuple[Chosen, Chosen]:
    """Return the calls that arrive in a window, and their requests."""
    calls, requests = run.calls, run.requests
    if begin_s <= 0 and end_s >= run.end_s:
        return Chosen.every(calls), Chosen.every(requests)
    inside = (calls["arrival_s"] >= begin_s) & (calls["arrival_s"] < end_s)
    measured = np.zeros(int(calls["call"].max(initial=-1)) + 1, dtype=bool)
    measured[calls["call"]] = inside
    return Chosen(calls, inside), Chosen(requests, measured[requests["call"]])


SPANS: Mapping[str, tuple[str, str]] = {
    "request.ttft_s": ("submitted_s", "first_token_s"),
    "request.tpot_s": ("first_token_s", "finished_s"),
    "request.e2e_s": ("submitted_s", "finished_s"),
    "request.queue_s": ("submitted_s", "scheduled_s"),
    "call.e2e_s": ("arrival_s", "finished_s"),
}
"""From which time of a record to which a duration goes; ``tpot_s`` is a share of it."""


def span_s(name: str, rows: Chosen) -> Floats:
    """Return how long it was from the one time to the other, seconds: one value a row."""
    begin, end = SPANS[name]
    spans: Floats = rows[end] - rows[begin]
    return spans


def served(requests: Chosen) -> Chosen:
    """Return those of the requests that the server took."""
    return requests.where(requests["refusal"] == 0)


def answered(calls: Chosen) -> Chosen:
    """Return those of the calls that brought an answer, whole or not."""
    return calls.where(~np.isin(calls["outcome"], [OUTCOMES.index(outcome) for outcome in ("failed", "abandoned")]))


def _durations(requests: Chosen, calls: Chosen) -> Iterator[tuple[str, Floats]]:
    """Yield the durations by name, seconds: one a served request, but the last one a call with an answer."""
    yield "request.ttft_s", span_s("request.ttft_s", requests)
    more = requests.where(requests["output_tokens"] > 1)
    yield "request.tpot_s", span_s("request.tpot_s", more) / (more["output_tokens"] - 1)
    yield "request.e2e_s", span_s("request.e2e_s", requests)
    yield "request.queue_s", span_s("request.queue_s", requests)
    yield "call.e2e_s", span_s("call.e2e_s", answered(calls))


def _of_tasks(tasks: Rows) -> dict[str, float | None]:
    generated = tasks["generated_tokens"].sum(dtype=np.int64)
    return {
        **dict(_statistics("task.time_s", tasks["finished_s"] - tasks["arrival_s"])),
        "task.failed_share": _mean(tasks["outcome"] != TASK_OUTCOMES.index("done")),
        "task.calls.mean": _mean(tasks["calls"]),
        "task.requests.mean": _mean(tasks["requests"]),
        "task.rejections.mean": _mean(tasks["rejections"]),
        "task.generated_tokens.mean": _mean(tasks["generated_tokens"]),
        "task.wasted_share": _ratio(generated - tasks["written_tokens"].sum(dtype=np.int64), generated),
        "task.reserved_token_s.mean": _mean(tasks["reserved_token_s"]),
    }


def _statistics(name: str, values: Floats) -> Iterator[tuple[str, float | None]]:
    yield f"{name}.mean", _mean(values)
    shares = list(STATISTICS.values())
    quantiles = np.quantile(values, shares).tolist() if len(values) else [None] * len(shares)
    yield from ((f"{name}.{statistic}", value) for statistic, value in zip(STATISTICS, quantiles, strict=True))


def _gaps(gaps: Gaps) -> Iterator[tuple[str, float | None]]:
    yield "request.itl_s.mean", _known(gaps.mean_s)
    yield from ((f"request.itl_s.{word}", _known(gaps.quantile_s(share))) for word, share in STATISTICS.items())


def _meets(calls: Chosen, requests: Chosen, slo: Mapping[str, float]) -> NDArray[np.bool_]:
    """Return which calls meet every bound, all their requests too: none that failed or was rejected.

    A request's inter-token latency is bounded by its mean, which is its time per output token.
    """
    missed = np.zeros(int(calls["call"].max(initial=-1)) + 1, dtype=bool)
    met = ~np.isin(calls["outcome"], [OUTCOMES.index(outcome) for outcome in ("failed", "rejected", "abandoned")])
    for name, bound in slo.items():
        if name == "call.e2e_s":
            met &= span_s(name, calls) <= bound
            continue
        if name in ("request.tpot_s", "request.itl_s"):
            spans = span_s("request.tpot_s", requests) / np.maximum(requests["output_tokens"] - 1, 1)
        else:
            spans = span_s(name, requests)
        missed[requests["call"][~(spans <= bound)]] = True
    all_met: NDArray[np.bool_] = met & ~missed[calls["call"]]
    return all_met


def _mean(values: NDArray[Any]) -> float | None:
    return float(np.mean(values, dtype=np.float64)) if len(values) else None


def _ratio(part: float, whole: float) -> float | None:
    return _known(float(part) / float(whole)) if whole else None


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
