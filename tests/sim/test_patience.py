"""Clients who give up: queues with abandonment, what is recorded, and that a patience that lasts changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from policies.output import Adaptive
from policies.retry import Backoff, Retry
from sim.clients.faults import Faults
from sim.records import OUTCOMES, REFUSALS
from sim.replication import Replication, Setting, measure, replicate
from sim.steptime import Line
from tests.sim.queues import WARM_UP, fixed, meets, server, stream
from tests.sim.test_users import EXPONENTIAL, LONG, STEP_S, loop, setting
from workloads import lengths
from workloads.arrivals import Ticks
from workloads.durations import Constant, Duration, Exponential
from workloads.source import Mixture

FIXED = lengths.Constant(256)
SERVICE_S = EXPONENTIAL.moments()[0] * STEP_S


def birth_and_death(rate: float, death: Callable[[int], float], room: int = 400) -> list[float]:
    weights = [1.0]
    for n in range(1, room):
        weights.append(weights[-1] * rate / death(n))
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("key", ["patience", "timeout"])
def test_erlang_a(key: str) -> None:
    """M/M/4+M above its capacity: who waits leaves (patience), or who is served leaves too (timeout)."""
    places, rate, leaving = 4, 5 / SERVICE_S, 1 / (1.5 * SERVICE_S)
    if key == "patience":  # Palm's queue: the first token ends it
        shares = birth_and_death(rate, lambda n: min(n, places) / SERVICE_S + max(0, n - places) * leaving)
        lost = sum(share * max(0, n - places) for n, share in enumerate(shares)) * leaving / rate
    else:
        shares = birth_and_death(rate, lambda n: min(n, places) / SERVICE_S + n * leaving)
        lost = sum(share * n for n, share in enumerate(shares)) * leaving / rate
    horizon_s = 4_000 / rate / (1 - WARM_UP)
    impatient = replace(stream("calls", rate, EXPONENTIAL), **{key: Exponential(1 / leaving)})
    base = setting([impatient], horizon_s, places)
    window = (WARM_UP * horizon_s, horizon_s)
    found = [measure(replicate(base, 1, number), window, {}) for number in range(6)]
    meets([each["abandoned_share"] for each in found], lost, narrow=0.12)
    meets([each["running.mean"] for each in found], sum(share * min(n, places) for n, share in enumerate(shares)))
    waiting = sum(share * max(0, n - places) for n, share in enumerate(shares))
    meets([each["waiting.mean"] for each in found], waiting, narrow=0.12)
    assert all(each["refused_share"] == 0 for each in found)


def happened(base: Setting, key: str, law: Duration | None, **more: object) -> Replication:
    (only,) = base.source.streams
    return replicate(replace(base, source=Mixture([replace(only, **{key: law})]), **more), 1, 0)


@pytest.mark.parametrize("key", ["patience", "timeout"])
def test_a_patience_that_lasts_changes_nothing(key: str) -> None:
    base = setting([stream("calls", 1.0, EXPONENTIAL)], 400.0, places=3)
    never, late = (happened(base, key, law) for law in (None, Constant(1e9)))
    assert late.calls.tobytes() == never.calls.tobytes()
    assert late.requests.tobytes() == never.requests.tobytes()
    assert late.series.reserved[-1] == never.series.reserved[-1]


def test_what_is_recorded_of_a_call_that_is_given_up() -> None:
    """Ten answers of 2.56 s every 100 s, one at a time: two end in 6 s, the third is cut, seven never began."""
    base = setting([replace(stream("calls", 1.0, FIXED), name="ten")], 3_000.0, places=1)
    (only,) = base.source.streams
    run = happened(
        replace(base, source=Mixture([replace(only, arrivals=Ticks(100.0, 10))])), "timeout", Constant(6.005)
    )
    calls, requests = run.calls, run.requests
    gone = calls["outcome"] == OUTCOMES.index("abandoned")
    assert gone.mean() == 0.8
    assert calls["finished_s"][gone] - calls["arrival_s"][gone] == pytest.approx(6.005)
    assert set(requests["refusal"][np.isin(requests["call"], calls["call"][gone])]) == {REFUSALS.index("given up")}
    begun = calls["discarded_tokens"][gone]
    assert sorted(set(begun.tolist())) == [0, 88]  # 6 s less two answers, at 100 tokens a second
    assert (begun > 0).sum() * 10 == len(calls)
    assert (calls["delivered_tokens"][gone] == 0).all()
    metrics = measure(run, (0.0, 3_000.0), {})
    assert metrics["abandoned_share"] == 0.8
    assert metrics["refused_share"] == 0.0
    assert metrics["call.e2e_s.mean"] == pytest.approx((2.56 + 5.12) / 2)
    assert run.series.reserved[-1] == pytest.approx(requests["reserved_token_s"].sum(dtype=float), rel=1e-5)


def test_a_client_gives_up_between_two_attempts_and_in_an_escalation() -> None:
    retry = Retry(refused=Backoff(retries=5, first_s=4.0, factor=2.0), broken=Backoff(retries=0, first_s=1.0))
    base = setting([stream("calls", 0.1, FIXED)], 500.0, places=4)
    refused = happened(base, "patience", Constant(10.0), faults=Faults(rate_limited=1.0), retry=retry)
    assert {OUTCOMES[code] for code in refused.calls["outcome"]} == {"abandoned"}
    assert set(refused.calls["attempts"].tolist()) == {2}  # at once, and after about 4 s; then it would wait 8 s
    escalating = Adaptive(first_cap=100, escalated_floor=1_000, margin_tokens=0, margin_share=0, floor=1)
    late = happened(replace(base, policy=escalating), "timeout", Constant(1.505))  # 100 tokens, then 50 of the next
    assert set(late.calls["discarded_tokens"].tolist()) <= {149, 150}  # one less beside another, whose steps it joins
    assert set(late.calls["attempts"].tolist()) == {2}
    seen = happened(replace(base, policy=escalating), "patience", Constant(1.0001))  # the second attempt's first token
    assert {OUTCOMES[code] for code in seen.calls["outcome"]} == {"complete"}


def test_users_who_gave_up_think_and_call_again() -> None:
    base = setting([replace(loop(2, Constant(1.0), FIXED), timeout=Constant(1.0))], 100.0, places=2)
    calls = replicate(base, 1, 0).calls
    assert {OUTCOMES[code] for code in calls["outcome"]} == {"abandoned"}
    assert len(calls) == 2 * 50  # a second to think, one to wait


def test_a_server_that_charges_what_it_holds_adds_up_when_clients_give_up() -> None:
    """Under `full` what the requests were charged is what the pool held, to the end of the iteration they left in."""
    where = server(3, LONG, Line(0.05, 0.003))
    impatient = replace(stream("calls", 0.4, EXPONENTIAL), timeout=Exponential(6.0))
    run = replicate(Setting(where, fixed(LONG), "", Mixture([impatient]), 2_000.0, False, 10.0), 1, 0)
    assert 0.2 < (run.calls["outcome"] == OUTCOMES.index("abandoned")).mean() < 0.8
    assert run.requests["reserved_token_s"].sum(dtype=float) == pytest.approx(run.series.reserved[-1], rel=1e-5)
