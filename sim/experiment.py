"""An experiment: all replications of all arms of a study, and what they allow to conclude."""

from __future__ import annotations

import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from typing import Literal, Self

import numpy as np

from sim.metrics import METRICS
from sim.replication import TICKS, Replication, Setting, measure, replicate, served, server_of
from sim.rows import Chosen
from sim.stats import Comparison, Interval, StoppingRule, compare, is_unstable, t_interval, warm_up
from sim.study import Study
from sim.study.tables import Replications
from workloads.source import Replay

Status = Literal["steady", "terminating", "unstable"]
Task = tuple[str, int]
"""An arm and the number of a replication."""

Sink = Callable[[str, int, Replication], None]
"""Gets every replication of every arm once, in a fixed order."""

REUSE_WITHIN = 0.02
"""How far the prefix reuse of a resampled trace may lie from the recorded one before the report warns."""


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What the replications of one arm say.

    Attributes
    ----------
    status
        Of what its metrics speak: a long run, a span, or nothing since the queue grows without end.
    metrics
        Interval over replications by metric.
    values
        The metrics of every replication.
    """

    status: Status
    metrics: Mapping[str, Interval]
    values: Sequence[Mapping[str, float | None]]


@dataclass(frozen=True, slots=True)
class Results:
    """What an experiment found.

    Attributes
    ----------
    arms
        By name; the first is the baseline.
    comparisons
        Of every other arm with the baseline, by (arm, metric).
    replications
        Replications of every arm.
    window_s
        Calls that arrived in it were measured.
    warnings
        What a reader has to know before believing a number.
    requests
        Requests simulated in all.
    cpu_s
        CPU time of reading, simulating and summarising, workers included.
    """

    arms: Mapping[str, ArmResult]
    comparisons: Mapping[tuple[str, str], Comparison]
    replications: int
    window_s: tuple[float, float]
    warnings: Sequence[str]
    requests: int
    cpu_s: float


@dataclass(slots=True)
class _Gathered:
    """What is kept of an arm's replications."""

    values: list[Mapping[str, float | None]] = field(default_factory=list)
    waiting: list[np.ndarray] = field(default_factory=list)
    late_s: float = 0.0
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)  # smallest and largest, as Provenance.covers

    def look(self, run: Replication) -> None:
        """Widen what has been seen by a replication."""
        taken = served(Chosen.every(run.requests))
        if not len(taken):
            return
        prompts = taken["prompt_tokens"]
        running = run.series.most_running
        for axis, values in (
            ("prompt_tokens", prompts),
            ("request_tokens", prompts + taken["output_tokens"]),
            ("running", running),
        ):
            low, high = self.seen.get(axis, (math.inf, -math.inf))
            self.seen[axis] = (min(low, float(values[values > 0].min())), max(high, float(values.max())))


def settings_of(study: Study) -> dict[str, Setting]:
    """Return what every arm is made of.

    Raises
    ------
    BadInput
        The faults of a trace.
    """
    sources = study.sources()
    settings = {}
    for name, run, arm in (
        (name, part.run, arm) for part in study.by_case().values() for name, arm in part.arms.items()
    ):
        source = sources[name]
        settled = arm.server.settle()
        span = run.horizon_s
        if span is None:
            assert isinstance(source, Replay)
            span = source.trace.span_s * source.time_scale
        settings[name] = Setting(
            server=server_of(settled),
            policy=arm.policy_output.build(),
            model="" if settled.model is None else settled.model.name,
            source=source,
            horizon_s=math.inf if run.horizon_s is None else run.horizon_s,
            steady=run.kind == "steady",
            tick_s=max(span, 1.0) / TICKS,
            tools=arm.workload.tools(),
            faults=None if arm.server.faults is None else arm.server.faults.build(),
            retry=None if arm.policy.retry is None else arm.policy.retry.build(),
            timeout_s=math.inf if arm.policy.retry is None else arm.policy.retry.timeout or math.inf,
        )
    return settings


def conduct(study: Study, jobs: int, progress: Callable[[], None], sink: Sink) -> Results:
    """Run a study without cases; see :func:`conduct_cases`."""
    (results,) = conduct_cases(study, jobs, progress, sink).values()
    return results


def conduct_cases(study: Study, jobs: int, progress: Callable[[], None], sink: Sink) -> dict[str, Results]:
    """Run a study: each of its cases is an experiment by itself, with its own window and number of replications.

    Parameters
    ----------
    study
        The study.
    jobs
        Processes; the results do not depend on it.
    progress
        Called after every replication.
    sink
        Gets what happened, replication by replication.

    Returns
    -------
    dict
        Results by case; by ``""`` for a study without cases.

    Raises
    ------
    BadInput
        The faults of a trace.
    """
    began = time.process_time()
    settings = settings_of(study)
    found = {}
    with _Crew(settings, study.seed, jobs, progress) as crew:
        for case, part in study.by_case().items():
            found[case] = _conduct(part, {name: settings[name] for name in part.arms}, crew, sink, began)
            began = time.process_time()
    return found


def _conduct(study: Study, settings: Mapping[str, Setting], crew: _Crew, sink: Sink, began: float) -> Results:
    baseline, *others = study.arms
    rule = study.run.replications
    wanted = rule if isinstance(rule, int) else rule.min
    gathered = {name: _Gathered() for name in study.arms}
    requests, elsewhere_s = 0, crew.elsewhere_s

    def take(window: tuple[float, float], name: str, number: int, run: Replication) -> None:
        nonlocal requests
        requests += run.submitted
        gathered[name].values.append(measure(run, window, study.slo))
        gathered[name].waiting.append(_levels(run.series.waiting, settings[name].tick_s))
        gathered[name].late_s = max(gathered[name].late_s, run.end_s - float(run.calls["arrival_s"].max(initial=0.0)))
        gathered[name].look(run)
        sink(name, number, run)

    first = list(crew.run((baseline, number) for number in range(wanted)))
    window, warnings = _window(study, [run for _, _, run in first], settings[baseline].tick_s)
    while first:
        take(window, *first.pop(0))
    for name, number, run in crew.run((name, number) for name in others for number in range(wanted)):
        take(window, name, number, run)
    while isinstance(rule, Replications) and not _precise(rule, gathered):
        for name, number, run in crew.run((name, wanted) for name in study.arms):
            take(window, name, number, run)
        wanted += 1
    arms = {name: _result(study, settings[name], window, gathered[name], warnings, name) for name in study.arms}
    warnings += _remarks(study, settings, arms, gathered, wanted)
    comparisons = {
        (name, metric): compare(
            [values[metric] for values in arms[baseline].values],
            [values[metric] for values in arms[name].values],
            METRICS[metric].better,
            study.run.same_within,
        )
        for name in others
        for metric in METRICS
        if "unstable" not in (arms[name].status, arms[baseline].status)
    }
    cpu_s = time.process_time() - began + crew.elsewhere_s - elsewhere_s
    return Results(arms, comparisons, wanted, window, warnings, requests, cpu_s)


def _levels(integral: np.ndarray, tick_s: float) -> np.ndarray:
    """Return the mean over each interval of the grid, the last, shorter one left out."""
    return np.diff(integral[:-1]) / tick_s


def _window(study: Study, runs: Sequence[Replication], tick_s: float) -> tuple[tuple[float, float], list[str]]:
    """Return the window that is measured, and what there is to warn of. Warm-up is the baseline's, for all arms."""
    run = study.run
    end_s = run.horizon_s if run.kind == "steady" and run.horizon_s is not None else math.inf
    if run.warmup_s != "auto":
        return (math.ceil(round(run.warmup_s / tick_s, 9)) * tick_s, end_s), []
    inside = min(TICKS, *(len(one.series.time_s) - 2 for one in runs))
    level = np.mean([_levels(one.series.running + one.series.waiting, tick_s)[:inside] for one in runs], axis=0)
    cut = warm_up(level)
    if cut is None:
        half = inside // 2
        return (half * tick_s, end_s), [
            "no steady state within the horizon: half of it was dropped as warm-up; take a longer one"
        ]
    return (cut * tick_s, end_s), []


def _precise(rule: Replications, gathered: Mapping[str, _Gathered]) -> bool:
    stop = StoppingRule(rule.min, rule.max, rule.precision)
    return all(stop.enough([values[rule.metric] for values in arm.values]) for arm in gathered.values())


def _result(
    study: Study,
    setting: Setting,
    window: tuple[float, float],
    arm: _Gathered,
    warnings: list[str],
    name: str,
) -> ArmResult:
    intervals = {metric: t_interval([values[metric] for values in arm.values]) for metric in METRICS}
    status: Status = study.run.kind
    if status == "steady" and not isinstance(setting.source, Replay):
        first, last = (round(edge / setting.tick_s) for edge in window)
        times = (np.arange(first, last) + 0.5) * setting.tick_s
        waiting = np.zeros((len(arm.waiting), last - first))  # nobody waits after the end of a replication
        for row, levels in zip(waiting, arm.waiting, strict=True):
            inside = levels[first:last]
            row[: len(inside)] = inside
        if is_unstable(times, waiting, intervals["running.mean"].mean or 0.0):
            status = "unstable"
            intervals = dict.fromkeys(METRICS, Interval(None, None, None, 0))
            warnings.append(f"{name} is unstable: its queue grows without end, so its averages mean nothing")
    return ArmResult(status, intervals, arm.values)


def _remarks(
    study: Study,
    settings: Mapping[str, Setting],
    arms: Mapping[str, ArmResult],
    gathered: Mapping[str, _Gathered],
    replications: int,
) -> Iterator[str]:
    """Yield what the numbers do not say by themselves."""
    shares = [values["truncated.first_share"] for arm in arms.values() for values in arm.values]
    if len(arms) > 1 and not any(shares):
        yield "no answer was truncated under any arm: the arms differ by their reservations alone"
    if replications == 1:
        yield "one replication: no intervals, no verdicts (ask for more with --replications)"
    for name, setting in settings.items():
        source = setting.source
        if isinstance(source, Replay) and not source.resample:
            span, late = source.trace.span_s * source.time_scale, gathered[name].late_s
            if late > 0.1 * span:
                yield f"{name}: a backlog is left: the last call ended {late:,.0f} s after the last arrival"
    for name, setting in settings.items():
        outside = setting.server.step_time.provenance.outside(gathered[name].seen)
        yield from (f"{name}: outside of what was measured: {line}" for line in outside)
    source = next(iter(settings.values())).source
    if isinstance(source, Replay) and source.resample:
        yield from _reuse(source, study.seed, replications)


def _reuse(source: Replay, seed: int, replications: int) -> Iterator[str]:
    recorded = source.trace.prefix_reuse()
    if recorded is None:
        return
    parts = [block.prefix_reuse() for number in range(replications) for block in source.blocks(seed, number)]
    resampled = math.fsum(part for part in parts if part is not None) / len(parts)
    apart = abs(resampled - recorded) > REUSE_WITHIN
    advice = "; they differ, so results that depend on a prefix cache are those of another workload" if apart else ""
    yield f"prefix reuse: {recorded:.3f} as recorded, {resampled:.3f} resampled{advice}"


class _Crew(AbstractContextManager["_Crew"]):
    """Runs replications here or in worker processes; what comes back, and in what order, is the same."""

    def __init__(self, settings: Mapping[str, Setting], seed: int, jobs: int, progress: Callable[[], None]) -> None:
        self._settings, self._seed, self._progress = settings, seed, progress
        self._pool: ProcessPoolExecutor | None = None
        self.elsewhere_s = 0.0
        if jobs > 1:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["sim.replication"])
            resource_tracker.ensure_running()  # the next line would start it, and let interrupts in
            with _uninterrupted():
                forkserver.ensure_running()
            self._pool = ProcessPoolExecutor(jobs, context, _equip, (settings, seed))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._pool is not None:
            if kind is not None:
                for worker in multiprocessing.active_children():
                    worker.kill()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[str, int, Replication]]:
        """Yield the replications in the order of the tasks."""
        tasks = list(tasks)
        if self._pool is None:
            runs: Iterable[Replication] = (
                replicate(self._settings[name], self._seed, number) for name, number in tasks
            )
        else:
            with _uninterrupted():
                runs = self._pool.map(_replicate, tasks)
        for (name, number), run in zip(tasks, runs, strict=True):
            if self._pool is not None:
                self.elsewhere_s += run.cpu_s
            self._progress()
            yield name, number, run


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put interrupts off; processes that are started meanwhile never get any.

    A worker that is interrupted, or whose parent is while it starts, would say so at length.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    caught: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # is inherited, as a handler is not
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if caught:
        raise KeyboardInterrupt


_equipment: tuple[Mapping[str, Setting], int]
"""In a worker process: what it was given when it started."""


def _equip(settings: Mapping[str, Setting], seed: int) -> None:
    global _equipment
    _equipment = (settings, seed)


def _replicate(task: Task) -> Replication:
    settings, seed = _equipment
    name, number = task
    return replicate(settings[name], seed, number)
