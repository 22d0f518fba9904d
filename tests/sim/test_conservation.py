"""Nothing is lost: calls, requests, tokens and time add up in any study, under every admission rule.

No theory is needed here, only bookkeeping, so it holds exactly (up to rounding) in every single replication.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.output import Adaptive, Fixed, OutputPolicy, Progressive, Resume, Rules
from policies.retry import Backoff, Retry
from sim.clients.faults import Faults
from sim.records import OUTCOMES, REFUSALS
from sim.replica.admission import RULES
from sim.replication import Replication, Setting, measure, replicate
from tests.sim.test_replica import any_line, roofline, servers
from workloads.arrivals import Arrivals, Gamma, Poisson
from workloads.durations import Exponential
from workloads.lengths import Constant, Geometric, Length, Uniform
from workloads.source import Mixture, Stream, until

SEEN: Counter[str] = Counter()
"""What the generated studies really did; a test asserts that nothing interesting is missed."""

AT_ONCE = {"beyond the window", "beyond the pool", "no room for an answer", "rate limited", "server error"}
"""Refusals that take no time."""

GIVEN_UP = REFUSALS.index("given up")


@st.composite
def lengths(draw: st.DrawFn, most: int) -> Length:
    mean = draw(st.integers(1, most))
    return draw(st.sampled_from([Constant(mean), Uniform(1, 2 * mean - 1), Geometric(mean)]))


@st.composite
def policies(draw: st.DrawFn) -> OutputPolicy:
    first, more = draw(st.integers(1, 40)), draw(st.integers(0, 40))
    free = {"margin_tokens": 0, "margin_share": 0, "floor": draw(st.integers(0, 12)), "message_tokens": 2}
    free["rules"] = Rules(clamps=draw(st.booleans()))
    return draw(
        st.sampled_from(
            [
                Fixed(max_tokens=first, **free),
                Adaptive(first_cap=first, escalated_floor=first + more, recoveries=2, **free),
                Resume(first_cap=first, escalated_floor=first + more, recoveries=2, **free),
                Progressive(caps=(first, first + more + 1), **free),
            ]
        )
    )


@st.composite
def studies(draw: st.DrawFn, rule: str) -> Setting:
    server = draw(servers(draw(st.sampled_from([any_line, roofline])), rule))
    rate = draw(st.sampled_from([0.3, 3.0, 30.0]))
    arrivals: Arrivals = draw(st.sampled_from([Poisson(rate), Gamma(rate, 2.0)]))
    limits = st.sampled_from([None, None, None, Exponential(draw(st.floats(0.01, 10)))])
    streams = [
        Stream(
            name=f"stream {k}",
            arrivals=arrivals,
            prompt=draw(lengths(25)),
            output=draw(lengths(40)),
            patience=draw(limits),
            timeout=draw(limits),
        )
        for k in range(draw(st.integers(1, 2)))
    ]
    horizon_s = draw(st.integers(10, 60)) / rate
    faulty = draw(st.sampled_from([None, None, Faults(rate_limited=0.1, server_error=0.1, cut=0.2, empty=0.1)]))
    return Setting(
        server=replace(server, prefix_cache=draw(st.booleans())),
        policy=draw(policies()),
        model="",
        source=Mixture(streams),
        horizon_s=horizon_s,
        steady=draw(st.booleans()),
        tick_s=horizon_s / 7,
        faults=faulty,
        retry=None if faulty is None else Retry(Backoff(retries=2, first_s=0.1), Backoff(retries=1, first_s=0.1)),
    )


def close(left: float, right: float, share: float = 1e-9) -> bool:
    return math.isclose(left, right, rel_tol=share, abs_tol=1e-9)


def calls_add_up(setting: Setting, run: Replication, seed: int) -> None:
    """Every call that arrived before the horizon came to one end, with as many requests as it counts."""
    came = until(setting.source.blocks(seed, 0), setting.horizon_s).arrival_s
    came = came[came < setting.horizon_s]
    calls, requests = run.calls, run.requests
    assert sorted(calls["arrival_s"]) == came.tolist()
    assert len(np.unique(calls["call"])) == len(calls)
    ends = np.bincount(calls["outcome"], minlength=len(OUTCOMES))
    assert ends.sum() == len(came)
    order = np.argsort(calls["call"])
    named, sent = np.unique(requests["call"], return_counts=True)
    assert named.tolist() == calls["call"][order].tolist()
    assert sent.tolist() == calls["attempts"][order].tolist()
    metrics = measure(run, (0.0, math.inf), {})
    if len(calls):
        refused = int(((requests["refusal"] > 0) & (requests["refusal"] != GIVEN_UP)).sum())
        assert close(metrics["refused_share"] * len(requests), refused)
        assert close(metrics["abandoned_share"] * len(calls), ends[OUTCOMES.index("abandoned")])
        assert close(metrics["call.attempts.mean"] * len(calls), len(requests))
    SEEN.update({f"an end: {end}": 1 for end, number in zip(OUTCOMES, ends, strict=True) if number})
    SEEN.update({f"refused: {REFUSALS[code]}": 1 for code in np.unique(requests["refusal"]) if code})
    SEEN["a call of several requests"] += bool((calls["attempts"] > 1).any())
    SEEN["a preemption"] += bool((requests["preemptions"] > 0).any())


def tokens_add_up(run: Replication) -> None:
    """What a call's requests generated was delivered or discarded; a complete call delivered its true length."""
    calls, requests = run.calls, run.requests
    made = np.zeros(int(calls["call"].max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(made, requests["call"], requests["output_tokens"])
    assert made[calls["call"]].tolist() == (calls["delivered_tokens"] + calls["discarded_tokens"]).tolist()
    complete = calls["outcome"] == OUTCOMES.index("complete")
    assert (calls["delivered_tokens"] == calls["true_tokens"])[complete].all()
    assert (calls["delivered_tokens"] <= calls["true_tokens"]).all()
    assert (requests["output_tokens"] <= requests["max_tokens"]).all()
    assert not requests["output_tokens"][(requests["refusal"] > 0) & (requests["refusal"] != GIVEN_UP)].any()
    SEEN["discarded tokens"] += bool(calls["discarded_tokens"].any())


def time_adds_up(setting: Setting, run: Replication) -> None:
    """Little's law without a limit: requests in the system, integrated, are the sum of the times they were in it."""
    requests, series, rule = run.requests, run.series, setting.server.rule
    here = ~np.isin(requests["refusal"], [REFUSALS.index(reason) for reason in AT_ONCE])
    at_once = requests[~here]
    assert (at_once["finished_s"] == at_once["submitted_s"]).all()
    requests = requests[here]
    served = requests[requests["refusal"] == 0]
    assert (served["submitted_s"] <= served["scheduled_s"]).all()
    assert (served["scheduled_s"] < served["first_token_s"]).all()
    assert (served["first_token_s"] <= served["finished_s"]).all()
    inside = math.fsum(requests["finished_s"] - requests["submitted_s"])
    if (requests["refusal"] == GIVEN_UP).any():  # in the batch, it stays there to the end of the iteration
        assert series.running[-1] + series.waiting[-1] >= inside * (1 - 1e-9)
        return
    assert close(series.running[-1] + series.waiting[-1], inside)
    if rule.stay is None and not served["preemptions"].any():  # else who lost a place has been waiting twice
        assert close(series.running[-1], math.fsum(served["finished_s"] - served["scheduled_s"]))
    gaps = series.gaps()
    assert gaps.numbers.sum() == (served["output_tokens"] - 1).sum()
    assert close(gaps.total_s, math.fsum(served["finished_s"] - served["first_token_s"]))


def memory_adds_up(setting: Setting, run: Replication) -> None:
    """What is stored fits what is charged, and that the pool, at all times; what was charged was somebody's."""
    series, single = run.series, 1e-6  # records keep token-seconds in single precision
    asked = math.fsum(run.requests["reserved_token_s"])
    spans = np.diff(series.time_s)
    reserved, used = np.diff(series.reserved), np.diff(series.used)
    slack = 1e-9 * max(1.0, float(series.reserved[-1]))
    assert (reserved <= spans * run.kv_tokens + slack).all()
    if not run.prefix_cache:  # where beginnings are shared, they are charged once and stored by each
        assert (used <= reserved + slack).all()
        if not setting.server.rule.grows:
            assert close(series.reserved[-1], asked, single)
    assert close(math.fsum(run.calls["reserved_token_s"]), asked, single)


def nothing_is_lost(setting: Setting, seed: int) -> None:
    run = replicate(setting, seed, 0)
    calls_add_up(setting, run, seed)
    tokens_add_up(run)
    if not setting.steady:  # else calls that are not recorded were there too
        time_adds_up(setting, run)
        memory_adds_up(setting, run)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(1, 2**31))
def test_nothing_is_lost(rule: str, data: st.DataObject, seed: int) -> None:
    nothing_is_lost(data.draw(studies(rule)), seed)


def test_generated_studies_reach_what_matters() -> None:
    SEEN.clear()
    for rule in ("full", "prompt"):
        test_nothing_is_lost(rule)
    wanted = {  # no tool call is rejected and no pool is smaller than the window: neither is for a study of plain calls
        *(f"an end: {end}" for end in OUTCOMES if end != "rejected"),
        *(f"refused: {reason}" for reason in (AT_ONCE - {"beyond the pool"} | {"queue is full", "given up"})),
        *("a call of several requests", "a preemption", "discarded tokens"),
    }
    assert wanted - {what for what, number in SEEN.items() if number} == set()
