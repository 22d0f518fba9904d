"""The server against queueing theory: what is exactly known, in replications, with intervals.

Settings. A prompt is computed in one step, and the first token comes with it, so an answer of L tokens stays L steps.
Where c answers fit the pool, the server is a queue with c places; where a step costs the same whatever is in it, the
places do not slow each other down. Lengths are whole numbers with a mean of 1,800 steps (211 where continuous batching
is looked at), and a step takes 1 / 1,800 s: a mean service takes 1 s, and the half step that an arrival waits for its
first boundary is far below the tolerance. The theory is fed with the moments of the whole-number law that is drawn.

Every case draws numbers of its own, under seed 1 and replications 0, 1, 2...: an unlucky draw does not show in all.
No seed was picked by its outcome; how many calls a case needs follows from what its interval must tell apart, see
:func:`tells`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from policies.output import Adaptive, OutputPolicy, Quantile
from sim.records import OUTCOMES
from sim.replica.admission import Full, Prompt
from sim.replica.server import Server
from sim.replication import TICKS, Replication, Setting, measure, replicate
from sim.steptime import Line
from tests.sim.queues import WARM_UP, fixed, meets, server, stream
from workloads.lengths import Constant, Geometric, Length, Lognormal, TwoPoint, Uniform
from workloads.source import Mixture, Stream

LONGER = 1.03
"""Times the true service: an error that every interval must be narrow enough to see."""

LOSING = 1.05
"""The same where calls are refused: what they lose makes up for most of the error."""

REPLICATIONS = 20

TOKENS = 1_800
STEP_S = 1 / TOKENS
LONG = 65_536
LAWS = {
    "exponential": Geometric(TOKENS),
    "constant": Constant(TOKENS),
    "two-point": TwoPoint(600, 12_600, 0.1),  # variance four times the square of the mean
}
"""All with a mean of 1 s."""


@dataclass(frozen=True, slots=True)
class Found:
    """Replications of one setting, and what they measure behind the warm-up."""

    runs: list[Replication]
    window: tuple[float, float]
    metrics: list[dict[str, float | None]]

    def __getitem__(self, name: str) -> list[float | None]:
        return [metrics[name] for metrics in self.metrics]

    def failed_share(self, kind: str) -> list[float]:
        """Return how many calls of a kind failed."""
        calls = (run.calls[run.calls["kind"] == run.kinds.index(kind)] for run in self.runs)
        inside = (rows[self.inside(rows["arrival_s"])] for rows in calls)
        return [float((rows["outcome"] == OUTCOMES.index("failed")).mean()) for rows in inside]

    def waiting_share(self, above_s: float) -> list[float]:
        """Return how many requests waited longer."""
        inside = (run.requests[self.inside(run.requests["submitted_s"])] for run in self.runs)
        return [float((rows["scheduled_s"] - rows["submitted_s"] > above_s).mean()) for rows in inside]

    def inside(self, times_s: np.ndarray) -> np.ndarray:
        """Return which times are behind the warm-up and before the horizon."""
        return (times_s >= self.window[0]) & (times_s < self.window[1])


def simulate(
    where: Server, streams: Sequence[Stream], calls: int, policy: OutputPolicy, replications: int = REPLICATIONS
) -> Found:
    """Return replications of about so many measured calls each."""
    horizon_s = calls / sum(stream.arrivals.rate for stream in streams) / (1 - WARM_UP)
    setting = Setting(where, policy, "", Mixture(streams), horizon_s, True, horizon_s / TICKS)
    window = (WARM_UP * horizon_s, horizon_s)
    runs = [replicate(setting, 1, number) for number in range(replications)]
    return Found(runs, window, [measure(run, window, {}) for run in runs])


def tells(values: Sequence[float | None], formula: Callable[[float], float], longer: float = LONGER) -> None:
    """Fail unless the 95 % interval meets the formula's value +- 1.5 %, and tells it from a slightly wrong one.

    ``formula(k)`` is the value for services k times as long. The interval must leave out ``formula(longer)``, and be at
    most half as wide, to each side, as the way there: one that is vague proves nothing.
    """
    right, wrong = formula(1.0), formula(longer)
    interval = meets(values, right, abs(wrong / right - 1) / 2)
    assert not interval.low <= wrong <= interval.high, f"{interval} of {right:.6g} may as well be {wrong:.6g}"


def erlang_b(places: int, load: float) -> float:
    blocking = 1.0
    for c in range(1, places + 1):
        blocking = load * blocking / (c + load * blocking)
    return blocking


def erlang_c(places: int, load: float) -> float:
    blocking = erlang_b(places, load)
    return blocking / (1 - load / places * (1 - blocking))


def queue_of(places: int, room: int, load: float) -> tuple[float, float, float]:
    """Return blocking, mean number in the system and mean number waiting of M/M/c/K."""
    weights = [load**n / (math.factorial(min(n, places)) * places ** max(0, n - places)) for n in range(room + 1)]
    shares = [weight / sum(weights) for weight in weights]
    inside = sum(n * share for n, share in enumerate(shares))
    waiting = sum(max(0, n - places) * share for n, share in enumerate(shares))
    return shares[-1], inside, waiting


def kaufman_roberts(capacity: int, classes: Sequence[tuple[int, float]]) -> tuple[list[float], float]:
    """Return the blocking of each class (units, load), and the mean units taken."""
    weights = [1.0]
    for taken in range(1, capacity + 1):
        inner = (load * units * weights[taken - units] for units, load in classes if units <= taken)
        weights.append(sum(inner) / taken)
    total = sum(weights)
    blocked = [sum(weights[capacity - units + 1 :]) / total for units, _ in classes]
    return blocked, sum(taken * weight for taken, weight in enumerate(weights)) / total


def processor_sharing(rate: float, mean_tokens: float, base_s: float, per_request_s: float) -> tuple[float, float]:
    """Return mean number and mean time of a server that gives n requests a token each in ``base + n * per_request``.

    ``p(n) ~ prod_i rate * E[X] * (base + per_request * i) / i``: insensitive to the law of X.
    """
    log_weights = [0.0]
    while log_weights[-1] > max(log_weights) - 50 or len(log_weights) < 100:
        n = len(log_weights)
        log_weights.append(log_weights[-1] + math.log(rate * mean_tokens * (base_s + per_request_s * n) / n))
    top = max(log_weights)
    weights = [math.exp(weight - top) for weight in log_weights]
    number = sum(n * weight for n, weight in enumerate(weights)) / sum(weights)
    return number, number / rate


@pytest.mark.parametrize(
    ("mean", "fault"),
    [
        (1.030, "above"),
        (0.970, "below"),
        (1.022, "may as well be"),
    ],
)
def test_what_does_not_meet_a_reference(mean: float, fault: str) -> None:
    """Around 1, with an error of 3 % in mind and half-widths of 1 %; of 10 % in the end."""
    tells([0.996, 1.0, 1.004], lambda longer: longer)
    with pytest.raises(AssertionError, match=fault):
        tells([mean - 0.004, mean, mean + 0.004], lambda longer: longer)
    with pytest.raises(AssertionError, match="too wide"):
        tells([0.96, 1.0, 1.04], lambda longer: longer)


def test_a_step_three_percent_longer_is_seen() -> None:
    """What the checks are for: the server is wrong by 3 %, the theory is not."""
    streams = [stream("wrong", 10, LAWS["constant"])]
    found = simulate(server(1000, LONG, Line(STEP_S * LONGER)), streams, 1_500, fixed(LONG))
    for metric, reference in (("running.mean", 10.0), ("call.e2e_s.mean", 1.0)):
        with pytest.raises(AssertionError, match=r"lies above|may as well be"):
            tells(found[metric], lambda longer, reference=reference: reference * longer)


def test_the_references_are_the_published_values() -> None:
    assert [erlang_b(*args) for args in ((1, 0.5), (5, 3), (20, 16))] == pytest.approx(
        [0.33333333, 0.11005435, 0.06441092], abs=5e-9
    )
    assert [erlang_c(*args) for args in ((2, 1.6), (8, 6.4), (64, 60))] == pytest.approx(
        [0.71111111, 0.45764493, 0.50686627], abs=5e-9
    )
    assert queue_of(4, 8, 3.6)[:2] == pytest.approx((0.09663550, 4.33193772), abs=5e-9)
    (small, large), taken = kaufman_roberts(128, [(9, 8), (33, 1)])
    assert (small, large, taken) == pytest.approx((0.09275749, 0.41374673, 84.667798), rel=2e-6)
    times = [processor_sharing(rate, 211, 0.0279, 0.000345)[1] for rate in (1, 2, 4, 8)]
    assert times == pytest.approx([6.427592, 6.975217, 8.407910, 14.269933], abs=5e-7)


@pytest.mark.parametrize(
    ("law", "places", "load", "calls"),
    [
        ("exponential", 1, 0.5, 4_000),
        ("exponential", 5, 3, 2_500),
        ("constant", 5, 3, 1_500),
        ("two-point", 5, 3, 5_000),
        ("exponential", 20, 16, 2_500),
    ],
)
def test_erlang_b_whatever_the_lengths(law: str, places: int, load: float, calls: int) -> None:
    where, name = server(places, LONG, Line(STEP_S), waiting=0), f"erlang-b {law} {places}"
    found = simulate(where, [stream(name, load, LAWS[law])], calls, fixed(LONG))
    tells(found["refused_share"], lambda longer: erlang_b(places, load * longer), LOSING)
    tells(found["running.mean"], lambda longer: load * longer * (1 - erlang_b(places, load * longer)), LOSING)


def test_kaufman_roberts_with_two_caps() -> None:
    """A default cap of 8,000 and an override of 32,000, with prompts of 1,000: 9 and 33 units of 128; no length is
    exponential."""
    where = server(1, 0, Line(STEP_S), waiting=0, units=128_000)
    caps = {"default": (8_000,), "override": (32_000,)}
    policy = Quantile(lengths=caps, escalated_floor=32_000, margin_tokens=0, margin_share=0, floor=1)
    streams = [
        stream("default", 8, Uniform(1, 2 * TOKENS - 1), 1_000),
        stream("override", 1, LAWS["two-point"], 1_000),
    ]
    found = simulate(where, streams, 8_000, policy)

    def blocked(number: int) -> Callable[[float], float]:
        return lambda longer: kaufman_roberts(128, [(9, 8 * longer), (33, longer)])[0][number]

    for number, kind in enumerate(caps):
        tells(found.failed_share(kind), blocked(number), LOSING)
    reserved = found["kv.reserved_share.mean"]
    tells(reserved, lambda longer: kaufman_roberts(128, [(9, 8 * longer), (33, longer)])[1] / 128, LOSING)


@pytest.mark.parametrize(("law", "calls"), [("constant", 1_500), ("two-point", 4_500)])
def test_little_without_a_limit(law: str, calls: int) -> None:
    found = simulate(server(1000, LONG, Line(STEP_S)), [stream(f"little {law}", 10, LAWS[law])], calls, fixed(LONG))
    tells(found["running.mean"], lambda longer: 10 * longer)
    tells(found["call.e2e_s.mean"], lambda longer: longer)


@pytest.mark.parametrize(
    ("places", "load", "calls", "replications"),
    [(2, 1.6, 4_000, 20), (4, 3.2, 4_000, 20), (8, 6.4, 5_000, 20), (64, 60, 12_000, 10)],
)
def test_erlang_c(places: int, load: float, calls: int, replications: int) -> None:
    """How many wait, how long, and how many longer than a mean service takes."""
    streams = [stream(f"erlang-c {places}", load, LAWS["exponential"])]
    found = simulate(server(places, LONG, Line(STEP_S)), streams, calls, fixed(LONG), replications)

    def waits(longer: float) -> float:
        return erlang_c(places, load * longer)

    def waits_long(longer: float) -> float:
        return waits(longer) * math.exp(-(places / longer - load))

    def wait_s(longer: float) -> float:
        return waits(longer) / (places / longer - load)

    tells(found.waiting_share(STEP_S), waits)  # who finds a place waits for the next boundary, a step at most
    tells(found["request.queue_s.mean"], wait_s)
    tells(found["waiting.mean"], lambda longer: load * wait_s(longer))
    if places <= 4:  # with more, a second is so long a wait that too few see it
        tells(found.waiting_share(1.0), waits_long)


def test_a_bounded_queue() -> None:
    where, streams = server(4, LONG, Line(STEP_S), waiting=4), [stream("bounded", 3.6, LAWS["exponential"])]
    found = simulate(where, streams, 3_000, fixed(LONG))

    def blocked(longer: float) -> float:
        return queue_of(4, 8, 3.6 * longer)[0]

    def inside(longer: float) -> float:
        return queue_of(4, 8, 3.6 * longer)[1]

    tells(found["refused_share"], blocked, LOSING)
    tells(found["call.e2e_s.mean"], lambda longer: inside(longer) / (3.6 * (1 - blocked(longer))), LOSING)
    tells(found["waiting.mean"], lambda longer: queue_of(4, 8, 3.6 * longer)[2], LOSING)
    both = zip(found["running.mean"], found["waiting.mean"], strict=True)
    tells([running + waiting for running, waiting in both], inside, LOSING)


RHO = 0.8


@pytest.mark.parametrize(("law", "calls"), [("exponential", 4_000), ("constant", 2_500), ("two-point", 9_000)])
def test_pollaczek_khinchine(law: str, calls: int) -> None:
    """One place, any law of lengths: the wait is ``rate * E[S^2] / (2 (1 - rho))``, here 4, 2 and 10 s."""
    second = LAWS[law].moments()[1] * STEP_S**2
    found = simulate(server(1, LONG, Line(STEP_S)), [stream(f"pk {law}", RHO, LAWS[law])], calls, fixed(LONG))
    tells(found["request.queue_s.mean"], lambda longer: RHO * second * longer**2 / (2 * (1 - RHO * longer)))


@pytest.mark.parametrize(("law", "calls"), [("exponential", 5_000), ("constant", 2_500), ("two-point", 10_000)])
def test_a_step_that_grows_with_its_batch_shares_the_processor(law: str, calls: int) -> None:
    """The time is ``E[S] / (1 - rho)``, 5 s, whatever the law of lengths."""
    where = server(10_000, LONG, Line(per_request_s=STEP_S))
    found = simulate(where, [stream(f"shared {law}", RHO, LAWS[law])], calls, fixed(LONG))
    tells(found["call.e2e_s.mean"], lambda longer: longer / (1 - RHO * longer))
    tells(found["running.mean"], lambda longer: RHO * longer / (1 - RHO * longer))


@pytest.mark.parametrize(
    ("rate", "rule", "law", "calls", "replications"),
    [
        (1, Full(), Constant(211), 1_500, 20),
        (2, Prompt(), TwoPoint(111, 1_111, 0.1), 4_500, 20),
        (4, Full(), Geometric(211), 2_500, 20),
        (8, Prompt(), Uniform(1, 421), 16_000, 10),
    ],
)
def test_continuous_batching_is_state_dependent_processor_sharing(
    rate: int, rule: Full | Prompt, law: Length, calls: int, replications: int
) -> None:
    """Decode only, step ``a + b n``, the mean length of the Azure conversation trace, whatever the law."""
    where = replace(server(10_000, LONG, Line(base_s=0.0279, per_request_s=0.000345)), rule=rule)
    found = simulate(where, [stream(f"batching {rate}", rate, law)], calls, fixed(LONG), replications)

    def number(longer: float) -> float:
        return processor_sharing(rate, 211 * longer, 0.0279, 0.000345)[0]

    tells(found["running.mean"], number)
    tells(found["call.e2e_s.mean"], lambda longer: number(longer) / rate)


def test_escalation_costs_what_arithmetic_says() -> None:
    """Attempts ``1 + P(X > C)``, waste ``C P(X > C)``, token-seconds of both reservations; nobody waits."""
    law, cap = Lognormal(median=300, p99=3_000, max=16_000), 1_000
    lengths = law.quantile((np.arange(100_000) + 0.5) / 100_000)
    policy = Adaptive(first_cap=cap, escalated_floor=16_000, margin_tokens=0, margin_share=0, floor=1)
    found = simulate(server(1000, 16_000, Line(STEP_S)), [stream("escalation", 1, law)], 3_000, policy)

    def reserved_token_s(longer: float) -> float:
        stretched = lengths * longer
        first = (cap + 1) * np.minimum(stretched, cap)
        return float(np.mean(first + 16_001 * np.where(stretched > cap, stretched, 0)) * STEP_S)

    tells(found["truncated.first_share"], lambda longer: np.mean(lengths * longer > cap), LOSING)
    tells(found["call.reserved_token_s.mean"], reserved_token_s, LOSING)
    assert not any(found["truncated.final_share"])
    useful = [run.calls["true_tokens"][found.inside(run.calls["arrival_s"])].mean() for run in found.runs]
    cut = np.array(found["truncated.first_share"])
    assert found["call.attempts.mean"] == pytest.approx(1 + cut, rel=1e-12)
    assert found["tokens.wasted_share"] == pytest.approx(cap * cut / (useful + cap * cut), rel=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_one_place_is_lindleys_recursion_call_by_call(law: str) -> None:
    """Exactly: ``W(k+1) = max(0, W(k) + S(k) - (A(k+1) - A(k)))``, with whole steps for S, at 95 % load."""
    source, horizon_s = Mixture([stream(f"lindley {law}", 0.95, LAWS[law])]), 2_000.0
    setting = Setting(server(1, LONG, Line(STEP_S)), fixed(LONG), "", source, horizon_s, True, horizon_s / TICKS)
    run = replicate(setting, 1, 0)
    calls = run.calls[np.argsort(run.calls["call"])]
    requests = run.requests[np.argsort(run.requests["call"])]
    waits = np.zeros(len(calls))
    served_s, gaps_s = calls["true_tokens"] * STEP_S, np.diff(calls["arrival_s"])
    for k, gap_s in enumerate(gaps_s):
        waits[k + 1] = max(0.0, waits[k] + served_s[k] - gap_s)
    assert (waits > 0).mean() > 0.8
    assert requests["scheduled_s"] - requests["submitted_s"] == pytest.approx(waits, abs=1e-7)
    assert requests["finished_s"] - requests["submitted_s"] == pytest.approx(waits + served_s, abs=1e-7)


def test_twice_the_rate_and_twice_the_speed_halve_every_time() -> None:
    """Exactly: halving is exact in binary floating point, and the same calls arrive."""

    def runs(speed: int) -> list[dict[str, float | None]]:
        where = server(4, LONG, Line(base_s=0.25 / speed, per_request_s=0.125 / speed))
        horizon_s = 65536.0 / speed
        source = Mixture([stream("scaled", 0.03125 * speed, TwoPoint(32, 1_152, 0.2))])
        setting = Setting(where, fixed(LONG), "", source, horizon_s, True, 128.0 / speed)
        return [measure(replicate(setting, 1, number), (0.0, horizon_s), {}) for number in range(3)]

    for slow, fast in zip(runs(1), runs(2), strict=True):
        for name, value in slow.items():
            # inter-token quantiles come from a histogram, whose bins do not scale; there are no tasks
            if value is not None and name.endswith(("_s.mean", "e2e_s.p50", "ttft_s.p99", "makespan_s")):
                assert fast[name] == pytest.approx(value / 2, rel=1e-12), name
        assert fast["running.mean"] == pytest.approx(slow["running.mean"], rel=1e-12)


def test_a_larger_pool_never_lowers_the_concurrency_nor_lengthens_the_wait() -> None:
    streams = [stream("larger pools", 3.6, LAWS["two-point"])]
    found = [simulate(server(places, LONG, Line(STEP_S)), streams, 3_000, fixed(LONG), 3) for places in (4, 5, 6, 8)]
    waits = [sum(each["request.queue_s.mean"]) for each in found]
    most = [sum(each["running.max"]) for each in found]
    assert waits == sorted(waits, reverse=True)
    assert most == sorted(most)
