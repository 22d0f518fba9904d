"""The server against queueing theory: what is exactly known, in replications, with intervals.

Settings. A prompt of one token is computed in one step, and the first token comes with it, so an answer of L tokens
stays L steps. Where c answers fit the pool, the server is a queue with c places; where a step costs the same
whatever is in it, the places do not slow each other down. Lengths are whole numbers with a mean of 200 steps or more:
the half step that an arrival waits for its first boundary is below the tolerance.
The theory is fed with the moments of the whole-number law that is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from policies.output import Adaptive, Fixed, OutputPolicy
from sim.admission import Full, Prompt
from sim.replica import Server
from sim.replication import TICKS, Setting, measure, replicate
from sim.stats import t_interval
from sim.steptime import Line
from workloads.arrivals import Poisson
from workloads.lengths import Constant, Exponential, Length, Lognormal, TwoPoint, Uniform
from workloads.source import Mixture, Stream

TOLERANCE = 0.015
"""Of the reference: what whole tokens, half steps and the first boundary may cost."""

WARM_UP = 0.2
ENOUGH = 1_000_000_000
STEP_S = 0.01

SHORT, LONG = 256, 4096
EXPONENTIAL = Exponential(SHORT)
FIXED = Constant(SHORT)
SPREAD = TwoPoint(32, 1152, 0.2)  # mean 256, variance three times the square of it
LAWS = {"exponential": EXPONENTIAL, "constant": FIXED, "two-point": SPREAD}


def server(places: int, cap: int, step_time: Line, waiting: int | None = None, units: int = 1) -> Server:
    """Return a server whose pool holds so many requests of a one-token prompt and a cap."""
    return Server(
        rule=Full(),
        step_time=step_time,
        kv_tokens=places * (cap + units),
        window=places * (cap + units),
        block_tokens=1,
        max_num_seqs=100_000,
        max_num_batched_tokens=ENOUGH,
        chunked_prefill=False,
        max_waiting=waiting,
    )


def fixed(cap: int) -> Fixed:
    return Fixed(max_tokens=cap, margin_tokens=0, margin_share=0, floor=1)


def simulate(
    where: Server, streams: Sequence[Stream], calls: int, policy: OutputPolicy, replications: int = 10
) -> dict[str, list[float | None]]:
    """Return the metrics of replications of about so many measured calls each."""
    horizon_s = calls / sum(stream.arrivals.rate for stream in streams) / (1 - WARM_UP)
    setting = Setting(where, policy, "", Mixture(streams), horizon_s, True, horizon_s / TICKS)
    window = (WARM_UP * horizon_s, horizon_s)
    runs = [measure(replicate(setting, 1, number), window, {}) for number in range(replications)]
    return {name: [run[name] for run in runs] for name in runs[0]}


def stream(rate: float, output: Length, name: str = "calls", prompt: int = 1) -> Stream:
    return Stream(name, Poisson(rate), Constant(prompt), output)


def meets(values: Sequence[float | None], reference: float, narrow: float = 0.06) -> None:
    """Fail unless the interval meets the reference +- 1.5 %, and is narrow enough to say something.

    It is a 99 % interval: at 95 %, two of the forty that this module looks at would miss by chance. ``narrow`` is the
    largest half-width of the 95 % interval, as a share of the reference.
    """
    interval, usual = t_interval(values, 0.99), t_interval(values)
    assert interval.low is not None
    assert interval.high is not None
    assert usual.half_width is not None
    assert usual.half_width <= narrow * reference, f"{usual} is too wide for {reference}"
    assert interval.low <= reference * (1 + TOLERANCE), f"{interval} lies above {reference}"
    assert interval.high >= reference * (1 - TOLERANCE), f"{interval} lies below {reference}"


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
        ("exponential", 1, 0.5, 2_000),
        ("exponential", 5, 3, 6_000),
        ("constant", 5, 3, 6_000),
        ("two-point", 5, 3, 6_000),
        ("exponential", 20, 16, 6_000),
    ],
)
def test_erlang_b_whatever_the_lengths(law: str, places: int, load: float, calls: int) -> None:
    mean, _ = LAWS[law].moments()
    rate = load / (mean * STEP_S)
    found = simulate(server(places, LONG, Line(STEP_S), waiting=0), [stream(rate, LAWS[law])], calls, fixed(LONG))
    meets(found["refused_share"], erlang_b(places, load), narrow=0.12)
    meets(found["running.mean"], load * (1 - erlang_b(places, load)))


@pytest.mark.parametrize("law", ["exponential", "two-point"])
def test_kaufman_roberts_with_two_sizes(law: str) -> None:
    """A small prompt and a large one under one cap: 9 and 33 units of 128."""
    unit, mean = LONG, LAWS[law].moments()[0]
    rates = [load / (mean * STEP_S) for load in (8, 1)]
    where = server(1, 0, Line(STEP_S), waiting=0, units=128 * unit)
    streams = [stream(rates[0], LAWS[law], "small", 8 * unit), stream(rates[1], LAWS[law], "large", 32 * unit)]
    blocked, taken = kaufman_roberts(128, [(9, 8), (33, 1)])
    found = simulate(where, streams, 6_000, fixed(unit))
    meets(found["refused_share"], (8 * blocked[0] + blocked[1]) / 9, narrow=0.12)
    meets(found["kv.reserved_share.mean"], taken / 128)


@pytest.mark.parametrize("law", LAWS)
def test_little_without_a_limit(law: str) -> None:
    mean, _ = LAWS[law].moments()
    found = simulate(server(1000, LONG, Line(STEP_S)), [stream(10 / (mean * STEP_S), LAWS[law])], 2_000, fixed(LONG))
    meets(found["running.mean"], 10)
    meets(found["call.e2e_s.mean"], mean * STEP_S)


@pytest.mark.parametrize(("places", "load", "calls"), [(2, 1.6, 8_000), (8, 6.4, 12_000)])
def test_erlang_c(places: int, load: float, calls: int) -> None:
    mean, _ = EXPONENTIAL.moments()
    served_s = mean * STEP_S
    found = simulate(server(places, 10**6, Line(STEP_S)), [stream(load / served_s, EXPONENTIAL)], calls, fixed(10**6))
    meets(found["waiting.mean"], erlang_c(places, load) * load / (places - load), narrow=0.2)
    meets(found["request.queue_s.mean"], erlang_c(places, load) * served_s / (places - load), narrow=0.2)


def test_a_bounded_queue() -> None:
    mean, _ = EXPONENTIAL.moments()
    blocked, inside, waiting = queue_of(4, 8, 3.6)
    where = server(4, 10**6, Line(STEP_S), waiting=4)
    found = simulate(where, [stream(3.6 / (mean * STEP_S), EXPONENTIAL)], 6_000, fixed(10**6))
    meets(found["refused_share"], blocked, narrow=0.12)
    meets(found["waiting.mean"], waiting)
    meets(found["running.mean"], inside - waiting)


RHO = [("exponential", 0.8, 8_000), ("constant", 0.6, 6_000), ("two-point", 0.6, 6_000)]


@pytest.mark.parametrize(("law", "rho", "calls"), RHO)
def test_pollaczek_khinchine(law: str, rho: float, calls: int) -> None:
    """One place, any law of lengths: the wait is ``rate * E[S^2] / (2 (1 - rho))``."""
    first, second = LAWS[law].moments()
    rate = rho / (first * STEP_S)
    found = simulate(server(1, LONG, Line(STEP_S)), [stream(rate, LAWS[law])], calls, fixed(LONG))
    meets(found["request.queue_s.mean"], rate * second * STEP_S**2 / (2 * (1 - rho)), narrow=0.2)


@pytest.mark.parametrize(("law", "rho", "calls"), RHO)
def test_a_step_that_grows_with_its_batch_shares_the_processor(law: str, rho: float, calls: int) -> None:
    """The time is ``E[S] / (1 - rho)``, whatever the law of lengths."""
    mean, _ = LAWS[law].moments()
    where = server(10_000, LONG, Line(per_request_s=STEP_S))
    found = simulate(where, [stream(rho / (mean * STEP_S), LAWS[law])], calls, fixed(LONG))
    meets(found["call.e2e_s.mean"], mean * STEP_S / (1 - rho), narrow=0.2)
    meets(found["running.mean"], rho / (1 - rho), narrow=0.2)


@pytest.mark.parametrize(
    ("rate", "rule", "calls"), [(1, Full(), 2_000), (2, Prompt(), 2_000), (4, Full(), 3_000), (8, Prompt(), 16_000)]
)
def test_continuous_batching_is_state_dependent_processor_sharing(rate: int, rule: Full | Prompt, calls: int) -> None:
    """Decode only, step ``a + b n``, the mean length of the Azure conversation trace."""
    law = Uniform(1, 421)  # mean 211
    where = server(10_000, LONG, Line(base_s=0.0279, per_request_s=0.000345))
    where = Server(**{name: getattr(where, name) for name in Server.__slots__} | {"rule": rule})
    number, time_s = processor_sharing(rate, 211, 0.0279, 0.000345)
    found = simulate(where, [stream(rate, law)], calls, fixed(LONG))
    meets(found["call.e2e_s.mean"], time_s)
    meets(found["running.mean"], number)


def test_escalation_costs_what_arithmetic_says() -> None:
    """Attempts ``1 + P(X > C)``, waste ``C P(X > C)``, token-seconds of both reservations; nobody waits."""
    law, cap = Lognormal(median=300, p99=3_000, max=16_000), 1_000
    lengths = law.quantile((np.arange(100_000) + 0.5) / 100_000)
    long = lengths > cap
    long_share, useful = long.mean(), lengths.mean()
    policy = Adaptive(first_cap=cap, escalated_floor=16_000, margin_tokens=0, margin_share=0, floor=1)
    found = simulate(server(1000, 16_000, Line(STEP_S)), [stream(0.01, law)], 4_000, policy)
    meets(found["call.attempts.mean"], 1 + long_share)
    meets(found["truncated.first_share"], long_share)
    assert not any(found["truncated.final_share"])
    meets(found["tokens.wasted_share"], cap * long_share / (useful + cap * long_share))
    reserved = (cap + 1) * np.minimum(lengths, cap) + 16_001 * np.where(long, lengths, 0)
    meets(found["call.reserved_token_s.mean"], reserved.mean() * STEP_S, narrow=0.12)


@pytest.mark.parametrize("law", LAWS)
def test_one_place_is_lindleys_recursion_call_by_call(law: str) -> None:
    """Exactly: ``W(k+1) = max(0, W(k) + S(k) - (A(k+1) - A(k)))``, with whole steps for S, at 95 % load."""
    rate = 0.95 / (LAWS[law].moments()[0] * STEP_S)
    where, horizon_s = server(1, 8 * LONG, Line(STEP_S)), 2_000 / rate
    setting = Setting(
        where, fixed(8 * LONG), "", Mixture([stream(rate, LAWS[law])]), horizon_s, True, horizon_s / TICKS
    )
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
        source = Mixture([stream(0.03125 * speed, SPREAD)])
        setting = Setting(where, fixed(LONG), "", source, horizon_s, True, 128.0 / speed)
        return [measure(replicate(setting, 1, number), (0.0, horizon_s), {}) for number in range(3)]

    for slow, fast in zip(runs(1), runs(2), strict=True):
        for name, value in slow.items():
            # inter-token quantiles come from a histogram, whose bins do not scale; there are no tasks
            if value is not None and name.endswith(("_s.mean", "e2e_s.p50", "ttft_s.p99", "makespan_s")):
                assert fast[name] == pytest.approx(value / 2, rel=1e-12), name
        assert fast["running.mean"] == pytest.approx(slow["running.mean"], rel=1e-12)


def test_a_larger_pool_never_lowers_the_concurrency_nor_lengthens_the_wait() -> None:
    mean, _ = SPREAD.moments()
    streams = [stream(3.6 / (mean * STEP_S), SPREAD)]
    found = [simulate(server(places, LONG, Line(STEP_S)), streams, 3_000, fixed(LONG), 3) for places in (4, 5, 6, 8)]
    waits = [sum(each["request.queue_s.mean"]) for each in found]
    most = [sum(each["running.max"]) for each in found]
    assert waits == sorted(waits, reverse=True)
    assert most == sorted(most)
