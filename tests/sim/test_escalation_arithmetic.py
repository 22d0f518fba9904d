"""What a policy costs where nobody waits, against formulas that know nothing of machines or servers.

Every call has the server to itself and every token takes the same time, so attempts, thrown away tokens, reserved
token-seconds and the call's time follow from its length alone. The closed forms are those of a length L under a first
limit c: one more request with probability P(L > c), and c tokens thrown away each time.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.output import (
    Adaptive,
    Fixed,
    ModelLimit,
    Oracle,
    OutputPolicy,
    Progressive,
    Quantile,
    Resume,
    WindowClamped,
)
from sim.clients.client import Clients
from sim.clock import Clock
from sim.experiment import settings_of
from sim.replica.admission import Full, Prompt
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replication import measure, replicate
from sim.steptime import Line
from sim.study import load_study
from workloads.trace import Trace

TOKEN_S = 1 / 64
"""Seconds a token, a power of two: sums of it are exact."""

Request = tuple[int, int, int]
"""Tokens of the prompt, limit, tokens written."""


def fixed(limit: int) -> Callable[[int, int], Iterator[Request]]:
    return regenerating((limit,))


def regenerating(caps: tuple[int, ...]) -> Callable[[int, int], Iterator[Request]]:
    def requests(prompt: int, length: int) -> Iterator[Request]:
        for cap in caps:
            yield prompt, cap, min(length, cap)
            if length <= cap:
                return

    return requests


def resuming(caps: tuple[int, ...], message: int) -> Callable[[int, int], Iterator[Request]]:
    def requests(prompt: int, length: int) -> Iterator[Request]:
        for cap in caps:
            yield prompt, cap, min(length, cap)
            if length <= cap:
                return
            prompt, length = prompt + cap + message, length - cap

    return requests


LADDERS: dict[str, tuple[OutputPolicy, Callable[[int, int], Iterator[Request]]]] = {
    "fixed": (Fixed(max_tokens=32_000), fixed(32_000)),
    "adaptive": (Adaptive(), regenerating((8_000, 64_000))),
    "low cap": (Adaptive(first_cap=700), regenerating((700, 64_000))),
    "progressive": (Progressive(), regenerating((8_000, 16_000, 32_000, 64_000))),
    "resume": (Resume(), resuming((8_000, *[64_000] * 4), 46)),
    "quantile": (Quantile(lengths={"": [100, 500, 4_000]}, cost_ratio=1), regenerating((500, 64_000))),
    "model-limit": (ModelLimit(), regenerating((32_000, 64_000))),
    "window-clamped": (WindowClamped(unknown_limit=1_000), regenerating((1_000, 64_000))),
}


def simulate(policy: OutputPolicy, prompts: Any, lengths: Any, rule: Full | Prompt) -> Any:
    """Return the calls, each of which arrives long after the one before has ended."""
    clock = Clock()
    server = Server(rule, Line(base_s=TOKEN_S), 2_000_000, 1_000_000, 1, 4, 1_000_000, chunked_prefill=False)
    clients = Clients(clock, Replica(clock, server, tick_s=1e12), policy, "", 1_000_000)
    arrivals = np.arange(len(lengths)) * 65_536.0
    clients.run(iter([Trace(arrivals, np.asarray(prompts), np.asarray(lengths))]), horizon_s=np.inf, limit_s=np.inf)
    return clients.calls.all()


LENGTHS = st.one_of(st.integers(1, 9_000), st.integers(7_990, 8_010), st.integers(1, 60_000))
CALLS = st.lists(st.tuples(st.sampled_from([1, 2_000, 100_000]), LENGTHS), min_size=1, max_size=12)


@pytest.mark.parametrize("name", LADDERS)
@given(calls=CALLS)
@settings(max_examples=15)
def test_every_call_costs_what_its_length_says(name: str, calls: list[tuple[int, int]]) -> None:
    policy, ladder = LADDERS[name]
    prompts, lengths = zip(*calls, strict=True)
    rows = simulate(policy, prompts, lengths, Full())
    for row, prompt, length in zip(rows, prompts, lengths, strict=True):
        requests = list(ladder(prompt, length))
        written = sum(tokens for _, _, tokens in requests)
        delivered = length if name == "resume" else requests[-1][2]
        assert row["attempts"] == len(requests)
        assert row["delivered_tokens"] == delivered
        assert row["discarded_tokens"] == written - delivered
        assert row["finished_s"] - row["arrival_s"] == written * TOKEN_S
        reserved = sum((p + limit) * tokens * TOKEN_S for p, limit, tokens in requests)
        assert row["reserved_token_s"] == pytest.approx(reserved, rel=1e-6)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("prompt", [100, 2_000, 20_000])
@pytest.mark.parametrize(("median", "sigma"), [(600.0, 1.1), (800.0, 1.6), (200.0, 0.8)])
def test_the_arithmetic_of_one_escalation(seed: int, prompt: int, median: float, sigma: float) -> None:
    """Attempts 1 + P(L > c); thrown away c P(L > c) of E[L]; reserved (P + c) + P(L > c) (P + 64,000) a call."""
    draws = np.random.default_rng(seed).lognormal(np.log(median), sigma, 1_000)
    lengths = np.clip(np.ceil(draws), 1, 60_000).astype(np.int64)
    prompts = np.full(len(lengths), prompt)
    long = (lengths > 8_000).mean()
    adaptive = simulate(Adaptive(), prompts, lengths, Full())
    once = simulate(Fixed(max_tokens=64_000), prompts, lengths, Full())
    assert adaptive["attempts"].mean() == pytest.approx(1 + long)
    assert adaptive["discarded_tokens"].sum() == pytest.approx(8_000 * long * len(lengths))
    first, second = np.minimum(lengths, 8_000), np.where(lengths > 8_000, lengths, 0)
    slot_time = TOKEN_S * ((prompt + 8_000) * first + (prompt + 64_000) * second)
    assert adaptive["reserved_token_s"].sum(dtype=float) == pytest.approx(slot_time.sum(), rel=1e-6)
    gain = once["reserved_token_s"].sum(dtype=float) / adaptive["reserved_token_s"].sum(dtype=float)
    assert gain == pytest.approx(((prompt + 64_000) * lengths).sum() * TOKEN_S / slot_time.sum(), rel=1e-6)
    assert gain <= (prompt + 64_000) / (prompt + 8_000) * (1 + 1e-6)  # what the limits alone promise


LIMIT = 65_536
"""Output limit of the model of the bundled study."""

CAPS: dict[str, tuple[int, ...]] = {
    "fixed-32k": (32_000,),
    "adaptive": (8_000, LIMIT),
    "progressive": (8_000, 16_000, 32_000, 64_000),
    "model-limit": (LIMIT,),
    "window-clamped": (64_000,),
}
"""Limits of the arms that regenerate a truncated answer."""


def expected(arm: str, policy: OutputPolicy, kind: str, prompt: int, lengths: Any) -> dict[str, float]:
    """Return requests a call, tokens thrown away of those generated, and reserved token-steps a call."""
    n = len(lengths)
    if arm == "oracle":
        return {"attempts": 1.0, "wasted": 0.0, "reserved": ((prompt + lengths) * lengths).mean()}
    if arm == "resume":
        left = np.maximum(lengths - 8_000, 0)
        again = (prompt + 8_000 + policy.message_tokens + LIMIT) * left
        kept = (prompt + 8_000) * np.minimum(lengths, 8_000)
        return {"attempts": 1 + (left > 0).mean(), "wasted": 0.0, "reserved": (kept + again).mean()}
    if isinstance(policy, Quantile):
        sample = policy.lengths[kind]
        caps: tuple[int, ...] = (sample[int(0.99 * len(sample)) - 1], LIMIT)
    else:
        caps = CAPS[arm]
    attempts = reserved = 0.0
    wasted = generated = 0
    truncated = np.ones(n, dtype=bool)
    for cap in caps:
        written = np.minimum(lengths, cap) * truncated
        attempts += truncated.mean()
        reserved += ((prompt + cap) * written).mean()
        generated += written.sum()
        truncated = lengths > cap
        wasted += 0 if cap == caps[-1] else (written * truncated).sum()
    return {"attempts": attempts, "wasted": wasted / generated, "reserved": reserved}


ALIKE = [f"server.step_time.{key}=0" for key in ("per_request_s", "per_context_token_s", "per_prompt_token_s")]
ALIKE += ["server.step_time.per_attended_token_s=0", f"server.step_time.base_s={TOKEN_S}"]


@pytest.mark.parametrize("seed", [4, 5])
def test_the_bundled_study_agrees_where_nobody_waits(seed: int) -> None:
    """The study's own arms on its own lengths, one call at a time and every step alike."""
    cases = [f"{lengths}-full" for lengths in ("claude-code-2k", "reasoning-20k", "chat-2k", "claude-code-100k")]
    alone = [f"cases.{case}.workload.streams.calls.arrivals.rate=1e-6" for case in cases]
    alone += [f"cases.{case}.run.horizon=4e8" for case in cases]
    study = load_study("escalation-policies", [*ALIKE, "server.block_tokens=1", *alone], seed=seed)
    settings = settings_of(study)
    arms = {name.partition("/")[2] for name in settings}
    assert arms == {*CAPS, "oracle", "resume", "quantile"}
    for name in (f"{case}/{arm}" for case in cases for arm in arms):
        (stream,) = study.arms[name].workload.streams
        run, policy = replicate(settings[name], seed, number=3), settings[name].policy
        lengths, prompt = run.calls["true_tokens"].astype(np.int64), stream.prompt.build().tokens
        assert len(lengths) > 300
        found = measure(run, (0.0, float("inf")), {})
        closed = expected(name.partition("/")[2], policy, stream.kind, prompt, lengths)
        assert found["call.attempts.mean"] == pytest.approx(closed["attempts"])
        assert found["tokens.wasted_share"] == pytest.approx(closed["wasted"])
        assert found["call.reserved_token_s.mean"] == pytest.approx(closed["reserved"] * TOKEN_S, rel=1e-5)


def test_where_admission_charges_what_is_stored_a_lower_limit_saves_nothing() -> None:
    lengths = [500, 9_000, 3_000, 20_000]
    small = simulate(Adaptive(), [2_000] * 4, lengths, Prompt())
    large = simulate(Fixed(max_tokens=64_000), [2_000] * 4, lengths, Prompt())
    short = np.array(lengths) <= 8_000
    assert (small["reserved_token_s"] == large["reserved_token_s"])[short].all()
    assert (small["reserved_token_s"] > large["reserved_token_s"])[~short].all()


@pytest.mark.parametrize("name", LADDERS)
def test_nobody_beats_the_oracle(name: str) -> None:
    lengths = np.random.default_rng(3).integers(1, 30_000, 200)
    bound = simulate(Oracle(), [1_000] * 200, lengths, Full())
    rows = simulate(LADDERS[name][0], [1_000] * 200, lengths, Full())
    assert (rows["reserved_token_s"] >= bound["reserved_token_s"] * (1 - 1e-6)).all()
    assert bound["discarded_tokens"].sum() == 0


@pytest.mark.parametrize(
    ("cap", "attempts", "wasted", "reservation", "slot_time"),
    [
        (4_000, 1.00840, 0.0760, 7.05, 2.909),
        (8_000, 1.00085, 0.0154, 3.973, 3.417),
        (16_000, 1.00013, 0.0048, 2.00, 1.959),
    ],
)
def test_claude_code(shared, cap: int, attempts: float, wasted: float, reservation: float, slot_time: float) -> None:
    """The figures worked out on the handed sessions: without prompts, against 32,000 for everybody."""
    lengths = np.array(list(_outputs(shared / "data/files/weka-claude-code/weka_sessions_dev.jsonl.gz")))
    ones = np.ones(len(lengths), np.int64)
    rows = simulate(Adaptive(first_cap=cap), ones, lengths, Full())
    fixed_32k = simulate(Fixed(max_tokens=32_000), ones, lengths, Full())
    escalated = rows["attempts"] - 1
    asked = cap + escalated.mean() * 64_000
    assert rows["attempts"].mean() == pytest.approx(attempts, abs=5e-6)
    assert rows["discarded_tokens"].sum() / lengths.sum() == pytest.approx(wasted, abs=5e-5)
    assert 32_000 / asked == pytest.approx(reservation, rel=5e-3)
    gain = fixed_32k["reserved_token_s"].sum(dtype=float) / rows["reserved_token_s"].sum(dtype=float)
    assert gain == pytest.approx(slot_time, rel=5e-3)


def _outputs(path) -> Iterator[int]:
    """Return what the main requests wrote; sub-agents are apart."""
    with gzip.open(path, "rt") as lines:
        for line in lines:
            yield from (request["out"] for request in json.loads(line)["requests"] if "requests" not in request)
