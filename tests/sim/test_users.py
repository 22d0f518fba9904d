"""Closed loops: the finite-source queue, a load test of the same kind, and what must not depend on whom."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policies.output import Fixed, OutputPolicy, ToolKind
from sim.clients.tools import Tool
from sim.clients.users import PAUSE_S
from sim.loadtest import Load, closed_loop
from sim.replication import TICKS, Replication, Setting, measure, replicate
from sim.steptime import Line
from sim.study import load_study
from tests.sim.queues import WARM_UP, fixed, meets, server, stream
from tests.sim.test_cli_study import run
from workloads.arrivals import Closed
from workloads.durations import Constant as Seconds
from workloads.durations import Duration, Exponential, Lognormal, Uniform
from workloads.lengths import Constant, Geometric, Length, TwoPoint
from workloads.source import Mixture, Stream

LONG, STEP_S = 4_096, 0.01
EXPONENTIAL = Geometric(256)


def loop(
    users: int, think: Duration | None, output: Length = EXPONENTIAL, name: str = "users", prompt: int = 1
) -> Stream:
    return Stream(name, Closed(users, think), Constant(prompt), output)


def setting(streams: list[Stream], horizon_s: float, places: int = 10, policy: OutputPolicy | None = None) -> Setting:
    where = server(places, 10 * LONG, Line(STEP_S))
    return Setting(where, policy or fixed(10 * LONG), "", Mixture(streams), horizon_s, True, horizon_s / TICKS)


def finite_source(users: int, places: int, ratio: float) -> tuple[float, float]:
    """Return the mean numbers in service and waiting of M/M/c//N, ``ratio`` being service over thinking time."""
    weights = [
        math.comb(users, n)
        * ratio**n
        * (math.factorial(n) / (math.factorial(places) * places ** (n - places)) if n > places else 1)
        for n in range(users + 1)
    ]
    shares = [weight / sum(weights) for weight in weights]
    return (
        sum(share * min(n, places) for n, share in enumerate(shares)),
        sum(share * max(0, n - places) for n, share in enumerate(shares)),
    )


@pytest.mark.parametrize(("users", "places"), [(5, 1), (12, 4)])
def test_the_machine_repair_model(users: int, places: int) -> None:
    """Who thinks and who is served by turns: numbers by the closed form, times by Little's law over the whole loop."""
    service_s = EXPONENTIAL.moments()[0] * STEP_S
    think_s = 2 * service_s
    running, waiting = finite_source(users, places, service_s / think_s)
    rate = running / service_s
    horizon_s = 4_000 / rate / (1 - WARM_UP)
    base = setting([loop(users, Exponential(think_s))], horizon_s, places)
    window = (WARM_UP * horizon_s, horizon_s)
    found = [measure(replicate(base, 1, number), window, {}) for number in range(6)]
    meets([each["running.mean"] for each in found], running)
    meets([each["call.e2e_s.mean"] for each in found], users / rate - think_s)
    meets([each["waiting.mean"] for each in found], waiting, narrow=0.2)


def test_the_time_of_a_loop_has_the_asymptotic_bounds() -> None:
    """Throughput is at most ``min(N / (S + Z), c / S)`` and reaches it where nothing varies."""
    service_s, think_s, places = 200 * STEP_S, 6.0, 4
    for users in (3, 16, 40):
        happened = replicate(setting([loop(users, Seconds(think_s), Constant(200))], 4_000.0, places), 1, 0)
        finished = happened.calls["finished_s"]
        per_second = np.count_nonzero((finished >= 1_000) & (finished < 3_000)) / 2_000
        assert per_second == pytest.approx(min(users / (service_s + think_s), places / service_s), rel=0.02)


def test_without_thinking_it_is_the_load_test_of_the_same_concurrency() -> None:
    base = setting([loop(6, None, Constant(150))], 300.0, places=4)
    calls = replicate(base, 1, 0).requests
    n = 60
    load = Load(*(np.full(n, tokens) for tokens in (1, 10 * LONG, 150)))
    passage = closed_loop(base.server, load, 6).passage
    assert np.sort(calls["finished_s"])[:n].tolist() == np.sort(passage.last_token_s).tolist()


def by_user(stream: Stream, seed: int = 1, replication: int = 0) -> list[list]:
    blocks = [[next(user) for _ in range(3)] for user in stream.users(seed, replication)]
    return [
        [
            np.concatenate([getattr(block, column) for block in mine]).tolist()
            for column in ("think_s", "prompt_tokens", "output_tokens")
        ]
        for mine in blocks
    ]


def test_a_user_makes_the_same_calls_however_many_others_there_are() -> None:
    few = replace(loop(3, Lognormal(10.0, 300.0), TwoPoint(10, 90, 0.5)), prompt=TwoPoint(1, 7, 0.3))
    many = replace(few, arrivals=replace(few.arrivals, concurrency=5))
    assert by_user(many)[:3] == by_user(few)
    assert by_user(few) != by_user(few, replication=1)
    assert len({tuple(user[0]) for user in by_user(many)}) == 5
    assert not list(few.blocks(1, 0))


def outputs_of(run: Replication, kind: str) -> list[tuple[float, int]]:
    mine = run.calls[run.calls["kind"] == run.kinds.index(kind)]
    return sorted(zip(mine["arrival_s"].tolist(), mine["true_tokens"].tolist(), strict=True))


def test_streams_that_arrive_stay_as_they_are_beside_users() -> None:
    arriving = stream("calls", 0.2, EXPONENTIAL)
    alone, beside = (
        replicate(setting(streams, 3_000.0, places=3), 1, 0)
        for streams in ([arriving], [arriving, loop(4, Exponential(5.0))])
    )
    assert outputs_of(beside, "calls") == outputs_of(alone, "calls")
    assert len(np.unique(beside.calls["call"])) == len(beside.calls) > len(alone.calls)
    assert beside.calls["arrival_s"].max() < 3_000


def test_users_whose_calls_are_all_refused_come_to_the_end() -> None:
    happened = replicate(setting([loop(2, None, prompt=100 * LONG)], 50.0, places=1), 1, 0)
    assert len(happened.calls) == 2 * 50 / PAUSE_S
    assert (happened.calls["delivered_tokens"] == 0).all()


@pytest.mark.parametrize("cap", [100, 400])
def test_users_wait_for_their_tasks(cap: int) -> None:
    """A task is over before its user thinks; how the work splits depends on the user and the number of the task."""
    tool = Tool(ToolKind.EDIT, splits=0.5, part=Constant(90), rejections=3)
    base = setting(
        [loop(2, Seconds(1.0), Constant(300))],
        400.0,
        policy=Fixed(max_tokens=cap, margin_tokens=0, margin_share=0, floor=1),
    )
    happened = replicate(replace(base, tools={"users": tool}), 1, 0)
    tasks = np.sort(happened.tasks, order="arrival_s")
    assert len(tasks) > 20
    assert len(np.unique(tasks["task"])) == len(tasks)
    overlap = (tasks["arrival_s"][:, None] < tasks["finished_s"]) & (tasks["finished_s"][:, None] > tasks["arrival_s"])
    assert overlap.sum(axis=1).max() <= 3  # itself, and at most two of the other user's
    assert (tasks["outcome"] == 0).all() == (cap == 400)


def test_a_study_of_users(capsys, monkeypatch, tmp_path: Path) -> None:
    closed = "workload.streams.0.arrivals={kind='closed',concurrency=3,think={kind='uniform',low_s='1s',high_s='2min'}}"
    arm = next(iter(load_study("quickstart", [closed]).arms.values()))
    assert arm.workload.streams[0].build().arrivals == Closed(3, Uniform(1.0, 120.0))
    out = tmp_path / "out.csv"
    code, _, err = run(capsys, monkeypatch, "trace", "synth", "quickstart", "-o", str(out), "--set", closed)
    assert (code, out.exists()) == (2, False)
    assert "arrivals of their own" in err
