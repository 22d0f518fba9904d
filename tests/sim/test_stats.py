"""Intervals, verdicts, warm-up, stability and stopping against scipy.stats, closed forms and simulated coverage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sim.stats import Interval, StoppingRule, compare, is_unstable, t_interval, warm_up
from sim.thresholds import Threshold

FLOATS = st.floats(min_value=-1e6, max_value=1e6)


@given(st.lists(FLOATS, min_size=2, max_size=30))
def test_the_interval_is_students(values: list[float]) -> None:
    interval = t_interval(values)
    spread = stats.sem(values)
    low, high = (
        stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=spread) if spread else (values[0],) * 2
    )
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-9, abs=1e-6)
    assert interval.n == len(values)


def test_intervals_of_little() -> None:
    assert t_interval([]) == Interval(None, None, None, 0)
    assert t_interval([3.0, None]) == Interval(3.0, None, None, 1)
    assert t_interval([0.1] * 7) == Interval(0.1, 0.1, 0.1, 7)
    assert t_interval([1.0]).half_width is None


EXPERIMENTS, REPLICATIONS = 4_000, 10


def covered(intervals: Iterable[Interval], truth: float) -> float:
    """Return how many intervals hold the truth."""
    return float(np.mean([i.low <= truth <= i.high for i in intervals]))


def mean_waits(rng: np.random.Generator, *services: float, customers: int = 1_000) -> list[np.ndarray]:
    """Return mean waits of M/M/1 queues at 0.5 calls a second that all meet the same calls, stationary from the start.

    One array a mean service in seconds, each of shape (experiments, replications).
    """
    shape = (EXPERIMENTS, REPLICATIONS)
    busy, rest = rng.random(shape), rng.exponential(1.0, shape)
    waits = [np.where(busy < 0.5 * service, rest / (1 / service - 0.5), 0.0) for service in services]
    sums = [wait.copy() for wait in waits]
    for _ in range(customers - 1):
        work, gap = rng.exponential(1.0, shape), rng.exponential(2.0, shape)
        for wait, total, service in zip(waits, sums, services, strict=True):
            np.maximum(wait + service * work - gap, 0.0, out=wait)
            total += wait
    return [total / customers for total in sums]


def true_wait(service: float) -> float:
    """Return the mean wait in the same queue: ``rho S / (1 - rho)``."""
    rho = 0.5 * service
    return rho * service / (1 - rho)


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    samples = np.random.default_rng(1).normal(5.0, 2.0, (EXPERIMENTS, REPLICATIONS))
    share = covered(map(t_interval, samples), 5.0)
    assert stats.binomtest(round(share * EXPERIMENTS), EXPERIMENTS, 0.95).pvalue > 0.001


def test_intervals_of_a_queue_cover_what_theory_says() -> None:
    """Mean waits are skewed, correlated within a run and paired between arms: 93 to 97 % of the intervals hold."""
    slow, fast = mean_waits(np.random.default_rng(2), 1.0, 0.9)
    assert 0.93 <= covered(map(t_interval, slow), true_wait(1.0)) <= 0.97
    differences = [compare(b, a, "lower").difference for b, a in zip(slow, fast, strict=True)]
    assert 0.93 <= covered(differences, true_wait(0.9) - true_wait(1.0)) <= 0.97
    paired = np.mean([interval.half_width for interval in differences])
    apart = np.mean([compare(b, a, "lower").difference.half_width for b, a in zip(slow, fast[::-1], strict=True)])
    assert paired < apart / 2  # what common random numbers are for


def test_verdicts_err_as_seldom_as_they_say() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 2, (2, EXPERIMENTS, REPLICATIONS))

    def verdicts(shift: float, same_within: float) -> Counter[str]:
        """Return the verdicts on an arm that is worse by ``shift``; the baseline is 100."""
        pairs = zip(100 + noise[0], 100 + shift + noise[1], strict=True)
        return Counter(compare(b, a, "lower", same_within).verdict for b, a in pairs)

    equal = verdicts(0.0, 0.0)
    for wrong in (equal["better"], equal["worse"]):
        assert stats.binomtest(wrong, EXPERIMENTS, 0.025).pvalue > 0.001
    # Where the arm really is worse by just the margin, "same" is wrong; it takes the whole interval below the margin.
    for margin in (0.02, 0.04):
        wrong = verdicts(100 * margin, margin)["same"]
        assert stats.binomtest(wrong, EXPERIMENTS, 0.025, alternative="greater").pvalue > 0.001
    assert verdicts(0.0, 0.05)["same"] > 0.95 * EXPERIMENTS
    far = verdicts(5.0, 0.01)
    assert far["worse"] > 0.95 * EXPERIMENTS
    assert far["better"] == far["same"] == 0


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=2, max_size=20))
def test_the_difference_is_paired(pairs: list[tuple[float, float]]) -> None:
    baseline, arm = [b for b, _ in pairs], [a for _, a in pairs]
    difference = compare(baseline, arm, "lower").difference
    differences = np.subtract(arm, baseline)
    if np.ptp(differences) > 1e-3:
        interval = stats.ttest_rel(arm, baseline).confidence_interval(0.95)
        assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-6)


def test_the_ratio_is_the_geometric_mean_with_its_interval() -> None:
    baseline, arm = [1.0, 2.0, 4.0], [2.0, 5.0, 6.0]
    ratio = compare(baseline, arm, "lower").ratio
    logs = np.log(np.divide(arm, baseline))
    low, high = stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs))
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((math.exp(logs.mean()), math.exp(low), math.exp(high)))
    for b, a in (([0.0, 1.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, -1.0]), ([], [])):
        assert compare(b, a, "lower").ratio.mean is None
    assert compare([1e-150, 1.0], [1e150, 1e-3], "lower").ratio.high is None  # no number is infinite in JSON


@pytest.mark.parametrize(
    ("baseline", "arm", "better", "verdict"),
    [
        ([10, 11, 12], [5, 6, 7.1], "lower", "better"),
        ([10, 11, 12], [5, 6, 7.1], "higher", "worse"),
        ([5, 6, 7.1], [10, 11, 12], "lower", "worse"),
        ([5, 6, 7.1], [10, 11, 12], "higher", "better"),
        ([5, 6, 7.1], [10, 11, 12], None, "undecided"),
        ([10, 11, 12], [9, 13, 11], "lower", "undecided"),
        ([10, 11, 12], [10, 11, 12], "lower", "same"),
        ([0, 0, 0], [0, 0, 0], None, "same"),
        ([0, 0, 0], [1e-9, 2e-9, 1e-9], "lower", "undecided"),
        ([100, 110, 120], [100.1, 110.2, 120.1], "lower", "same"),  # clearly more, and within 1 %
        ([-100, -110, -120], [-100.1, -110.2, -120.1], "lower", "same"),
        ([10], [10], "lower", "undecided"),
        ([10, None, 12], [5, 6, None], "lower", "undecided"),
        ([10, None, 12, 11], [5, 6, 7.1, 6], "lower", "better"),
        ([None, None], [None, 3], "lower", "undecided"),
    ],
)
def test_verdicts(baseline: list[float], arm: list[float], better: str, verdict: str) -> None:
    assert compare(baseline, arm, better).verdict == verdict


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=2, max_size=20), st.floats(0, 0.2))
def test_a_verdict_is_what_its_interval_says(pairs: list[tuple[float, float]], same_within: float) -> None:
    baseline, arm = [b for b, _ in pairs], [a for _, a in pairs]
    forth, back = compare(baseline, arm, "lower", same_within), compare(baseline, arm, "higher", same_within)
    opposite = {"better": "worse", "worse": "better", "same": "same", "undecided": "undecided"}
    assert back.verdict == opposite[forth.verdict]
    low, high = forth.difference.low, forth.difference.high
    if forth.verdict in ("better", "worse"):
        assert low > 0 or high < 0
        assert max(abs(low), abs(high)) > same_within * abs(math.fsum(baseline) / len(pairs))


def naive_mser5(series: list[float]) -> int | None:
    batches = [sum(series[i : i + 5]) / 5 for i in range(0, len(series) // 5 * 5, 5)]
    n = len(batches)

    def score(cut: int) -> float:
        rest = batches[cut:]
        mean = sum(rest) / len(rest)
        return sum((y - mean) ** 2 for y in rest) / len(rest) ** 2

    best = min(range(n // 2 + 1), key=score)
    return None if best == n // 2 else best * 5


@given(st.integers(0, 2**32 - 1), st.integers(20, 300), st.floats(0, 50))
def test_warm_up_is_mser5(seed: int, length: int, bias: float) -> None:
    steps = np.arange(length)
    series = np.random.default_rng(seed).normal(size=length) + bias * np.exp(-steps / 20)
    assert warm_up(series) == naive_mser5(series.tolist())


def test_warm_up_finds_the_end_of_a_transient() -> None:
    noise = np.random.default_rng(3).normal(0, 0.1, 1000)
    assert warm_up(np.concatenate([np.linspace(10, 0, 200), np.zeros(800)]) + noise) == pytest.approx(200, abs=30)
    assert warm_up(np.linspace(0, 10, 1000) + noise) is None  # it never settles
    assert warm_up(np.full(1000, 0.1)) == 0
    assert warm_up(np.zeros(40)) == 0
    assert warm_up([1.0] * 19) is None  # too short to tell


def test_dropping_the_warm_up_takes_the_bias_away() -> None:
    """A level with a long memory that starts far from its mean, 0: the truth is known, and the intervals find it."""
    rng, bias, kept = np.random.default_rng(11), [], []
    for _ in range(300):
        level = np.empty((REPLICATIONS, 500))
        level[:, 0] = 20.0
        for k in range(1, 500):
            level[:, k] = 0.9 * level[:, k - 1] + rng.normal(0, 1, REPLICATIONS)
        cut = warm_up(level.mean(axis=0))
        assert cut is not None
        bias.append(level.mean())
        kept.append(t_interval(level[:, cut:].mean(axis=1)))
    assert np.mean(bias) == pytest.approx(20 / (1 - 0.9) / 500, abs=0.05)
    assert abs(np.mean([interval.mean for interval in kept])) < 0.1 * np.mean(bias)
    assert covered(kept, 0.0) >= 0.9


def test_unstable_queues() -> None:
    rng, times = np.random.default_rng(5), np.arange(0.0, 1000.0, 10)
    noise = rng.normal(0, 1, (10, len(times)))
    growing = 0.1 * times + noise
    assert is_unstable(times, growing, running_mean=20)
    assert not is_unstable(times, growing, running_mean=1000)  # 50 more waiting are no more than noise beside 1,000
    assert not is_unstable(times, 20 + noise, running_mean=20)
    assert not is_unstable(times, -growing, running_mean=20)
    assert not is_unstable(times, np.minimum(growing, 40) + noise, running_mean=20)  # grows in the first half only
    assert not is_unstable(times, growing[:1], running_mean=20)  # one replication has no interval
    assert not is_unstable([0.0], [[1.0], [2.0]], running_mean=1)


@pytest.mark.parametrize(("load", "least", "most"), [(0.8, 0, 10), (1.1, 199, 200)])
def test_a_queue_is_called_unstable_when_it_is(load: float, least: int, most: int) -> None:
    """Of 200 stable queues no more than the 2.5 % that the interval allows, and the rise needed besides; else all."""
    rng, called = np.random.default_rng(7), 0
    for _ in range(200):
        queue = np.zeros((10, 400))
        for k in range(1, 400):
            queue[:, k] = np.maximum(queue[:, k - 1] + rng.poisson(10 * load, 10) - rng.poisson(10, 10), 0)
        called += is_unstable(np.arange(400.0), queue, running_mean=1)
    assert least <= called <= most


def test_stopping() -> None:
    rule = StoppingRule(minimum=10, maximum=30, precision=0.05)
    tight = [100 + (-1) ** k for k in range(40)]
    assert next(n for n in range(1, 31) if rule.enough(tight[:n])) == 10
    wide = [100 + 60 * (-1) ** k for k in range(40)]
    assert [n for n in range(1, 31) if rule.enough(wide[:n])] == [30]
    assert not rule.reached(wide[:30])
    assert StoppingRule(2, 30, 0.05).enough([5.0] * 3)
    assert not StoppingRule(2, 30, 0.05).enough([5.0] * 2)  # two equal values are no proof of precision
    assert not rule.enough([None] * 20)
    assert rule.enough([0.0] * 10)


def test_stopping_when_precise_keeps_the_interval_honest() -> None:
    """To stop at a narrow interval favours those that are too narrow; looking back keeps nearly all of the 95 %."""
    rng, rule = np.random.default_rng(13), StoppingRule(minimum=5, maximum=200, precision=0.1)
    ends = []
    for _ in range(600):
        values = rng.normal(100, 20, rule.maximum).tolist()
        n = next(n for n in range(1, rule.maximum + 1) if rule.enough(values[:n]))
        ends.append(t_interval(values[:n]))
    assert all(interval.half_width <= 0.1 * interval.mean for interval in ends)
    assert 0.93 <= covered(ends, 100.0) <= 0.97
    needed = (1.96 * 20 / 10) ** 2  # replications, were the spread known
    assert needed < np.mean([interval.n for interval in ends]) < 2 * needed


def test_a_precision_reached_by_chance_does_not_stop() -> None:
    rule = StoppingRule(minimum=3, maximum=100, precision=0.05)
    lucky = [100.0, 100.1, 99.9, 180.0, 60.0, 90.0]
    assert rule.enough(lucky[:3])
    assert not any(rule.enough(lucky[:n]) for n in range(4, 7))


@pytest.mark.parametrize(
    ("text", "low", "high", "outcome"),
    [
        ("<= 60", 50, 60, "pass"),
        ("<= 60", 60.1, 70, "fail"),
        ("<= 60", 59, 61, "undecided"),
        ("< 60", 50, 60, "undecided"),
        ("< 60", 60, 70, "fail"),
        (">= 0.95", 0.96, 1, "pass"),
        ("> 0.95", 0.95, 1, "undecided"),
        (">=0.95", 0.9, 0.94, "fail"),
        ("<= 1min", 50, 60, "pass"),
        ("<= 60", None, None, "undecided"),
    ],
)
def test_thresholds(text: str, low: float | None, high: float | None, outcome: str) -> None:
    assert Threshold.parse(text).decide(low, high) == outcome


@pytest.mark.parametrize("text", ["60", "= 60", "<= ", "<= x", "=< 3", "<= nan", "", "<= 1 2"])
def test_what_is_no_threshold(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        Threshold.parse(text)
