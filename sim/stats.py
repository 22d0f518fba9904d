"""What may be concluded from replications: intervals, paired comparisons, warm-up, stability, when to stop.

Replications are independent, and normal enough for Student's t from 10 of them on: how often its intervals and verdicts
err where the truth is known is in ``tests/sim/test_stats.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit  # scipy.stats.t gives the same number at a second more of start-up

from sim.metrics import Better

Verdict = Literal["better", "worse", "same", "undecided"]

CONFIDENCE = 0.95
LOOK_AHEAD = 5
"""Replications over which a reached precision must hold: Hoad, Robinson and Davies (2010), *Automated selection of the
number of replications for a discrete-event simulation*, J. Oper. Res. Soc. 61."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over replications with its 95 % interval.

    Attributes
    ----------
    mean
        None where no replication has a value.
    low, high
        Ends of the interval; None with fewer than two values.
    n
        Replications with a value.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def half_width(self) -> float | None:
        """Half of the interval's length; None without an interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of an arm against the baseline, over the replications in which both have a value.

    Attributes
    ----------
    difference
        Arm minus baseline, paired by replication.
    ratio
        Arm over baseline: the geometric mean and its interval; all None where a value is not above 0.
    verdict
        ``same`` if the whole difference lies within ``same_within`` of the baseline's mean, or is 0 in every
        replication; ``better`` or ``worse`` if the interval leaves out 0; else ``undecided``. A metric without a better
        direction is ``same`` or ``undecided``: a difference does not say which arm to prefer.
    """

    difference: Interval
    ratio: Interval
    verdict: Verdict


def t_interval(values: Sequence[float | None] | NDArray[np.float64], confidence: float = CONFIDENCE) -> Interval:
    """Return mean and Student t interval: ``mean +- t(n - 1) s / sqrt(n)``. Values that are None are left out."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    n = len(known)
    if n == 0:
        return Interval(None, None, None, 0)
    # numpy's pairwise sum of equal values may be off by an ulp; a constant metric must have exactly its own mean
    mean = float(known[0]) if bool((known == known[0]).all()) else math.fsum(known) / n
    if n == 1:
        return Interval(mean, None, None, 1)
    spread = math.sqrt(math.fsum((known - mean) ** 2) / (n - 1))
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def compare(
    baseline: Sequence[float | None],
    arm: Sequence[float | None],
    better: Better | None,
    same_within: float = 0.01,
    confidence: float = CONFIDENCE,
) -> Comparison:
    """Return what the replications of two arms say about one metric; the k-th values of both met the same calls.

    Parameters
    ----------
    baseline, arm
        One value a replication, None where the metric has no value.
    better
        Which direction is better, None for neither.
    same_within
        Share of the baseline's mean within which a difference does not matter.
    confidence
        Of the intervals.
    """
    pairs = [(b, a) for b, a in zip(baseline, arm, strict=True) if b is not None and a is not None]
    differences = [a - b for b, a in pairs]
    difference = t_interval(differences, confidence)
    margin = same_within * abs(math.fsum(b for b, _ in pairs) / len(pairs)) if pairs else 0.0
    return Comparison(difference, _ratio(pairs, confidence), _verdict(difference, differences, margin, better))


def _ratio(pairs: Sequence[tuple[float, float]], confidence: float) -> Interval:
    if not pairs or any(b <= 0 or a <= 0 for b, a in pairs):
        return Interval(None, None, None, len(pairs))
    log = t_interval([math.log(a) - math.log(b) for b, a in pairs], confidence)
    mean, low, high = (None if end is None else _exp(end) for end in (log.mean, log.low, log.high))
    return Interval(mean, low, high, log.n)


def _exp(x: float) -> float | None:
    """Return e to the x, None where that is no finite number."""
    return math.exp(x) if x < 709 else None


def _verdict(difference: Interval, differences: Sequence[float], margin: float, better: Better | None) -> Verdict:
    if difference.low is None or difference.high is None:
        return "undecided"
    if all(d == 0 for d in differences) or (difference.low >= -margin and difference.high <= margin):
        return "same"
    if better is None or difference.low <= 0 <= difference.high:
        return "undecided"
    return "better" if (difference.low > 0) == (better == "higher") else "worse"


def warm_up(series: ArrayLike, batch: int = 5) -> int | None:
    """Return how many leading values to drop (MSER-5), None where the series never settles.

    The cut d minimises ``sum (Y_i - mean)^2 / (n - d)^2`` over the batch means ``Y_(d+1)..Y_n`` of ``batch`` values
    each, for d up to n/2: White (1997), *An effective truncation heuristic for bias reduction in simulation output*,
    Simulation 69. A minimum at n/2 itself means that the transient may go on: not steady.

    Parameters
    ----------
    series
        Values at equal steps, averaged over replications; shape (m,). Fewer than 4 batches cannot tell: None.
    batch
        Values in a batch.
    """
    values = np.asarray(series, dtype=np.float64)
    n = len(values) // batch
    if n < 4:
        return None
    means = values[: n * batch].reshape(n, batch).mean(axis=1)
    centred = means - means.mean()  # so that the sums of squares below do not cancel
    cuts = np.arange(n // 2 + 1)
    left = n - cuts
    sums = np.cumsum(centred[::-1])[::-1][cuts]
    squares = np.cumsum(centred[::-1] ** 2)[::-1][cuts]
    marginal = np.maximum(squares - sums**2 / left, 0.0) / left.astype(np.float64) ** 2
    # a series that stands still has rounding noise only: every cut is as good, so none is needed
    noise = 1e-24 * max(1.0, float(np.max(means**2)))
    if marginal[0] * n <= noise:
        return 0
    cut = int(np.argmin(marginal))
    return None if cut == n // 2 else cut * batch


def is_unstable(times: ArrayLike, waiting: ArrayLike, running_mean: float) -> bool:
    """Return whether the queue grows without end: the second half of the window tells.

    Unstable means that the least-squares slope of the waiting requests has a 95 % interval above 0 over replications,
    and that its mean rises by more than ``max(1, 10 % of running_mean)`` over the half window.

    Parameters
    ----------
    times
        Seconds, ascending; shape (m,).
    waiting
        Waiting requests at these times; shape (replications, m).
    running_mean
        Requests running on average.
    """
    t, queue = np.asarray(times, dtype=np.float64), np.asarray(waiting, dtype=np.float64)
    late = t >= (t[0] + t[-1]) / 2
    t, queue = t[late], queue[:, late]
    if len(t) < 3:
        return False
    centred = t - t.mean()
    slope = t_interval(queue @ centred / (centred @ centred))
    if slope.mean is None or slope.low is None or slope.low <= 0:
        return False
    return slope.mean * float(t[-1] - t[0]) > max(1.0, 0.1 * running_mean)


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """How many replications: at least ``minimum``, then until a metric's interval is narrow, at most ``maximum``.

    Attributes
    ----------
    minimum, maximum
        Replications.
    precision
        Half-width of the 95 % interval over the mean that is narrow enough.
    """

    minimum: int
    maximum: int
    precision: float

    def reached(self, values: Sequence[float | None]) -> bool:
        """Return whether the interval is narrow, and was over the last :data:`LOOK_AHEAD` replications.

        A half-width that is small by chance widens again; looking back over more replications keeps it from ending the
        run.
        """
        shortest = max(3, len(values) - LOOK_AHEAD)
        return len(values) >= 3 and all(self._narrow(values[:n]) for n in range(shortest, len(values) + 1))

    def enough(self, values: Sequence[float | None]) -> bool:
        """Return whether to stop after these replications: precise, or at the maximum."""
        n = len(values)
        return n >= self.maximum or (n >= self.minimum and self.reached(values))

    def _narrow(self, values: Sequence[float | None]) -> bool:
        interval = t_interval(values)
        half, mean = interval.half_width, interval.mean
        return half is not None and mean is not None and half <= self.precision * abs(mean)
