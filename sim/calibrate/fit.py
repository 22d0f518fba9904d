"""Least-squares fits of step-time constants, with intervals and an error on points that were held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, least_squares
from scipy.special import stdtrit

from sim.calibrate.points import Point
from sim.calibrate.steady import Clients, closed_loop
from sim.hardware import kv_capacity_tokens
from sim.steptime import Line, Roofline, StepTime
from workloads.errors import BadInput, Fault

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant of a model: where its search starts and ends."""

    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Family:
    """Step-time models that differ in their constants.

    Attributes
    ----------
    kind
        Name of the models in a study.
    constants
        What is fitted.
    build
        Returns the model of a point.
    """

    kind: str
    constants: Mapping[str, Constant]
    build: Callable[[Mapping[str, float], Point], StepTime]


def _roofline(values: Mapping[str, Any], point: Point) -> StepTime:
    assert point.gpu is not None
    assert point.model is not None
    return Roofline(point.gpu, point.model, point.tensor_parallel, weights=point.weights, **values)


def _line(values: Mapping[str, Any], point: Point) -> StepTime:
    return Line(**values)


FAMILIES: Mapping[str, Family] = {
    "roofline": Family(
        "roofline",
        {
            "mfu": Constant(0.6, 0.1, 1.0),
            "attention_mfu": Constant(0.45, 0.05, 1.0),
            "bandwidth_efficiency": Constant(0.8, 0.2, 1.0),
            "link_efficiency": Constant(0.35, 0.02, 1.0),
            "allreduce_s": Constant(5e-6, 0.0, 1e-4),
            "layer_s": Constant(15e-6, 0.0, 2e-4),
            "request_s": Constant(5e-6, 0.0, 2e-4),
        },
        _roofline,
    ),
    "line": Family(
        "line",
        {
            "base_s": Constant(0.01, 1e-5, 1.0),
            "per_request_s": Constant(1e-4, 0.0, 0.1),
            "per_context_token_s": Constant(1e-7, 0.0, 1e-4),
            "per_prompt_token_s": Constant(5e-5, 0.0, 1e-2),
        },
        _line,
    ),
}
"""What can be fitted, by the name studies use."""

NUISANCE: Mapping[str, Constant] = {"first_s": Constant(5e-3, 0.0, 1.0), "together": Constant(0.1, 0.0, 1.0)}
"""How the load generator sees the server; fitted besides, no part of the model."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute relative errors of a set of points: how many, median, 90th percentile, and the median signed one."""

    points: int
    median: float
    p90: float
    bias: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted step-time model.

    Attributes
    ----------
    kind
        Name of the model in a study.
    constants
        Value, and its 95 % interval (Student t on the linearised fit), of each constant.
    fitted, held_out
        Errors of ``tpot`` and ``ttft`` on the points fitted to and on those kept back.
    covers
        Smallest and largest value of what was measured: running requests, prompt tokens, tokens of a request.
    kv_tokens
        Size of the KV pool where the data show it.
    kv_is_at_least
        Whether that is only what was seen in use.
    clients
        How the load generator saw the server: fitted besides.
    notes
        What to know about the fit.
    """

    kind: str
    constants: Mapping[str, tuple[float, float, float]]
    fitted: Mapping[str, Errors]
    held_out: Mapping[str, Errors]
    covers: Mapping[str, tuple[float, float]]
    kv_tokens: int | None = None
    kv_is_at_least: bool = False
    clients: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, float]:
        """The constants without their intervals."""
        return {name: value for name, (value, _, _) in self.constants.items()}


def errors_of(simulated: Sequence[float], measured: Sequence[float]) -> Errors:
    """Return the relative errors of what was simulated."""
    relative = np.asarray(simulated) / np.asarray(measured) - 1.0
    size = np.abs(relative)
    return Errors(len(relative), float(np.median(size)), float(np.quantile(size, 0.9)), float(np.median(relative)))


def predict(
    family: Family, values: Mapping[str, float], point: Point, kv_tokens: float, budget: int
) -> tuple[float, float]:
    """Return TTFT and TPOT of a point under a family's model with these constants and nuisances."""
    own = {name: values[name] for name in family.constants}
    clients = Clients(**{name: values[name] for name in NUISANCE})
    step_time = family.build(own, point)
    lengths = (point.concurrency, point.prompt_tokens, point.output_tokens)
    return closed_loop(step_time, *lengths, kv_tokens=kv_tokens, budget=budget, clients=clients)


def calibrate_points(
    points: Sequence[Point],
    kind: str | None = None,
    *,
    kv: str = "bf16",
    kv_tokens: int | None = None,
    budget: int = 8_192,
    use_ttft: bool = True,
) -> Calibration:
    """Fit a model to load tests; every second point is held out.

    Errors are relative ones and weigh alike; large ones count less (soft L1 beyond 10 %), TTFT half as much as TPOT
    because it holds more that is not the server's.

    Parameters
    ----------
    points
        The load tests.
    kind
        ``"roofline"`` or ``"line"``; None takes the roofline if GPU and model are known.
    kv, kv_tokens
        Number type of keys and values; size of the pool (None: computed from the memory, if GPU and model are known).
    budget
        Most tokens of a step.
    use_ttft
        Whether to fit to TTFT too.

    Raises
    ------
    BadInput
        There are too few points, or a roofline is asked for and GPU or model is unknown.
    """
    known = all(point.gpu is not None and point.model is not None for point in points)
    family = FAMILIES[kind or ("roofline" if known else "line")]
    if family.kind == "roofline" and not known:
        raise BadInput(Fault("a roofline needs the GPU and the model: give them, or take --kind line"))
    ordered = sorted(points, key=lambda p: (p.tensor_parallel, p.prompt_tokens, p.output_tokens, p.concurrency))
    train, test = ordered[::2], ordered[1::2]
    names = list(family.constants) + list(NUISANCE)
    if len(train) < len(family.constants) / 2 + 1:
        raise BadInput(
            Fault(f"{len(points)} load tests are too few to fit {len(family.constants)} constants of a {family.kind}")
        )
    pools = {id(point): _pool(point, kv, kv_tokens) for point in points}
    measured = [point for point in points if point.ttft_s is not None]

    def values(x: Floats) -> dict[str, float]:
        return dict(zip(names, map(float, x), strict=True))

    def residuals(x: Floats) -> Floats:
        found = []
        for point in train:
            ttft, tpot = predict(family, values(x), point, pools[id(point)], budget)
            found.append(math.log(tpot / point.tpot_s))
            if use_ttft and point.ttft_s is not None:
                found.append(0.5 * math.log(ttft / point.ttft_s))
        return np.array(found)

    searched = {**family.constants, **NUISANCE}
    low, start, high = (np.array([getattr(c, side) for c in searched.values()]) for side in ("low", "start", "high"))
    scale = np.maximum(start, 1e-3 * high)
    fit = least_squares(residuals, start, bounds=(low, high), x_scale=scale, loss="soft_l1", f_scale=0.1, max_nfev=60)
    best = values(fit.x)

    def errors(group: Sequence[Point]) -> dict[str, Errors]:
        found = {id(point): predict(family, best, point, pools[id(point)], budget) for point in group}
        timed = [point for point in group if point.ttft_s is not None]
        tables = {"tpot": errors_of([found[id(p)][1] for p in group], [p.tpot_s for p in group])} if group else {}
        if timed:
            tables["ttft"] = errors_of([found[id(p)][0] for p in timed], [p.ttft_s or 0.0 for p in timed])
        return tables

    intervals = _intervals(fit, names, searched)
    return Calibration(
        kind=family.kind,
        constants={name: intervals[name] for name in family.constants},
        fitted=errors(train),
        held_out=errors(test),
        covers={
            "running": _ends(point.concurrency for point in points),
            "prompt_tokens": _ends(point.prompt_tokens for point in points),
            "request_tokens": _ends(point.prompt_tokens + point.output_tokens for point in points),
        },
        kv_tokens=kv_tokens,
        clients={name: best[name] for name in NUISANCE} if use_ttft and measured else {},
        notes=_notes(intervals, searched, family),
    )


def _pool(point: Point, kv: str, kv_tokens: int | None) -> float:
    if kv_tokens is not None:
        return kv_tokens
    if point.gpu is None or point.model is None:
        return math.inf
    return kv_capacity_tokens(point.gpu, point.model, point.tensor_parallel, weights=point.weights, kv=kv)


def _ends(values: Iterable[int]) -> tuple[float, float]:
    found = list(values)
    return float(min(found)), float(max(found))


def _intervals(
    fit: OptimizeResult, names: Sequence[str], searched: Mapping[str, Constant]
) -> dict[str, tuple[float, float, float]]:
    """Return value, low and high of each constant, cut to the range searched."""
    freedom = max(1, len(fit.fun) - len(names))
    covariance = np.linalg.pinv(fit.jac.T @ fit.jac) * (fit.fun @ fit.fun) / freedom
    half = stdtrit(freedom, 0.975) * np.sqrt(np.diag(covariance))
    found = {}
    for name, value, width in zip(names, fit.x, half, strict=True):
        constant = searched[name]
        found[name] = (float(value), max(constant.low, float(value - width)), min(constant.high, float(value + width)))
    return found


def _notes(
    intervals: Mapping[str, tuple[float, float, float]], searched: Mapping[str, Constant], family: Family
) -> tuple[str, ...]:
    notes = []
    for name in family.constants:
        value, low, high = intervals[name]
        constant = searched[name]
        if min(value - constant.low, constant.high - value) < 1e-6 * constant.high:
            notes.append(f"{name} ended at a bound of its search ({value:g}): the data do not decide it")
        elif high - low > 2 * value:
            notes.append(f"{name} is hardly decided by the data: {value:.3g} in [{low:.3g}, {high:.3g}]")
    return tuple(notes)
