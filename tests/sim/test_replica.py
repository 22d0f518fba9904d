"""Jumping over iterations, stepping through them and looking at every request give the same server."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.output import FinishReason
from sim.clock import Clock, Moment
from sim.hardware import Gpu, Model
from sim.replica.admission import (
    RULES,
    AdmissionRule,
    Batch,
    Chunked,
    Estimated,
    Full,
    OneStep,
    Oracle,
    PowerOfTwo,
    Prompt,
    Slots,
)
from sim.replica.outlook import Estimate
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replica.victims import VICTIMS
from sim.replica.work import GIVEN_UP, Work
from sim.steptime import Chunk, Line, Roofline, Segment, StepTime
from tests.sim.reference import Job, serve

Arrival = tuple[float, int, int, int]
"""When, prompt, max_tokens, true length."""

SEEN: Counter[str] = Counter()
"""What the generated cases really did; a test asserts that nothing interesting is missed."""


def simulate(
    server: Server, arrivals: list[Arrival], resend: bool, stepped: bool, patience: Sequence[float] = ()
) -> tuple[Replica, list[tuple]]:
    clock = Clock()
    replica = Replica(clock, server, tick_s=0.37, stepped=stepped)
    rows: list[tuple] = []

    def call(index: int, prompt: int, max_tokens: int, true: int, attempt: int = 0) -> None:
        def answered(work: Work) -> None:
            rows.append(row(index, attempt, work))
            if resend and work.response.finish is FinishReason.LENGTH and attempt < 2:
                call(index, prompt, 2 * max_tokens, true, attempt + 1)

        work = replica.submit(prompt, max_tokens, true, answered)
        if patience:
            moment = Moment(clock, clock.now + patience[index % len(patience)])
            moment.callbacks.append(lambda _: give_up(index, attempt, work))

    def give_up(index: int, attempt: int, work: Work) -> None:
        if replica.cancel(work):
            rows.append(row(index, attempt, work))

    for index, (at, prompt, max_tokens, true) in enumerate(arrivals):
        arrival = (index, prompt, max_tokens, true)
        Moment(clock, at).callbacks.append(lambda _, arrival=arrival: call(*arrival))
    clock.run()
    return replica, rows


def row(index: int, attempt: int, work: Work) -> tuple:
    times = (work.submitted_s, work.scheduled_s, work.first_token_s, work.finished_s)
    return (index, attempt, work.refusal, work.response.output_tokens, work.preemptions), times


def naive(server: Server, arrivals: list[Arrival], resend: bool, patience: Sequence[float] = ()):
    jobs = [(at, Job(prompt, max_tokens, true)) for at, prompt, max_tokens, true in arrivals]
    names = {id(job): index for index, (_, job) in enumerate(jobs)}
    keep = []
    for (at, job), seconds in zip(jobs, cycle(patience), strict=False):
        job.leaves = at + seconds

    def again(job: Job) -> Job | None:
        if not resend or job.refusal or job.made == job.true or job.attempt == 2:
            return None
        follow = Job(job.prompt, job.max_tokens * 2, job.true, attempt=job.attempt + 1)
        names[id(follow)] = names[id(job)]
        if patience:
            follow.leaves = job.finished + patience[names[id(job)] % len(patience)]
        keep.append(follow)
        return follow

    outcome = serve(server, jobs, again)
    nan = math.nan
    rows = [
        (
            (names[id(job)], job.attempt, job.refusal, job.made, job.preemptions),
            tuple(nan if t is None else t for t in (job.submitted, job.scheduled, job.first, job.finished)),
        )
        for job in outcome.finished
    ]
    return outcome, rows


def same(left: float, right: float, exact: bool) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right if exact else abs(left - right) <= 1e-9 * max(1.0, abs(left))


def check(server: Server, arrivals: list[Arrival], resend: bool, exact: bool, patience: Sequence[float] = ()) -> None:
    jump, jumped = simulate(server, arrivals, resend, stepped=False, patience=patience)
    step, stepped = simulate(server, arrivals, resend, stepped=True, patience=patience)
    outcome, looked = naive(server, arrivals, resend, patience)
    if patience:  # who gives up at the same time does so in no particular order
        for rows in (jumped, stepped, looked):
            rows.sort(key=lambda row: row[0][:2])
    for rows in (stepped, looked):
        assert [what for what, _ in jumped] == [what for what, _ in rows]
        for (_, left), (_, right) in zip(jumped, rows, strict=True):
            assert all(same(a, b, exact) for a, b in zip(left, right, strict=True)), (left, right)
    assert jump.iterations == step.iterations == outcome.iterations
    integrals = (outcome.running, outcome.reserved, outcome.used, outcome.waiting)
    series = [replica.close() for replica in (jump, step)]
    for one in series:
        last = [column[-1] for column in (one.running, one.reserved, one.used, one.waiting)]
        assert all(same(a, b, exact) for a, b in zip(last, integrals, strict=True)), (last, integrals)
    for name in ("time_s", "running", "reserved", "used", "waiting"):
        left, right = (getattr(one, name).tolist() for one in series)
        assert all(same(a, b, exact=False) for a, b in zip(left, right, strict=True)), name
    for one in series:
        gaps = one.gaps()
        assert gaps.numbers.sum() == len(outcome.gaps)
        assert same(gaps.total_s, math.fsum(outcome.gaps), exact=False)
        if exact and outcome.gaps:
            for share in (0.0, 0.5, 0.99, 1.0):
                true = sorted(outcome.gaps)[math.floor(share * (len(outcome.gaps) - 1))]
                assert abs(gaps.quantile_s(share) / true - 1) <= 0.0026
    cut = len(series[0].time_s) // 2
    for part in ((0, cut), (cut, None)):
        left, right = (one.gaps(*part) for one in series)
        assert left.numbers.sum() == right.numbers.sum()
        assert same(left.total_s, right.total_s, exact=False)
    assert series[0].most_running.tolist() == series[1].most_running.tolist()
    note(jump, jumped, arrivals)


class ShortStays(Chunked):
    """TGI's rule with stays that the short answers of these tests exceed."""

    stay = 3


class QuickGuess(Estimated):
    """SGLang's rule with a clip and a fall that the short answers of these tests reach."""

    estimate = Estimate(clip_tokens=9, first_share=0.7, least_share=0.1, fall_steps=20, retract_tokens=2)


def rules(window: int) -> dict[str, list[AdmissionRule]]:
    made = [Full(), ShortStays(), Slots(window), Batch(), Oracle(), PowerOfTwo(), OneStep(), QuickGuess()]
    return {"prompt": [Prompt(), Prompt(watermark=0.1)]} | {rule.name: [rule] for rule in made}


@st.composite
def servers(draw: st.DrawFn, step_time: Callable[[st.DrawFn], StepTime], name: str | None = None) -> Server:
    window = draw(st.integers(24, 90))
    some = rules(window)
    growing = st.sampled_from(["prompt", "prompt", "onestep", "estimated"])
    chosen = draw(st.one_of(growing, growing, st.sampled_from(list(some)))) if name is None else name
    rule = draw(st.sampled_from(some[chosen]))
    block = draw(st.sampled_from([1, 4, 16]))
    seqs = draw(st.integers(1, 6))
    return Server(
        rule=rule,
        step_time=step_time(draw),
        kv_tokens=draw(st.integers(window + block, (2 if rule.grows else 4) * window + block)),
        window=window,
        block_tokens=block,
        max_num_seqs=seqs,
        max_num_batched_tokens=draw(st.integers(seqs, 40)),
        chunked_prefill=draw(st.booleans()),
        max_waiting=draw(st.sampled_from([None, None, 0, 2])),
        victim=draw(st.sampled_from([None, None, *VICTIMS])),
    )


def calls(unit: float) -> st.SearchStrategy[list[Arrival]]:
    one = st.tuples(
        st.integers(0, 200).map(lambda k: k * unit), st.integers(1, 40), st.integers(1, 50), st.integers(1, 60)
    )
    return st.lists(one, min_size=1, max_size=25).map(lambda rows: sorted(rows, key=lambda row: row[0]))


def dyadic_line(draw: st.DrawFn) -> StepTime:
    part = st.integers(0, 3).map(lambda k: k / 64)
    return Line(draw(st.integers(1, 8)) / 64, draw(part), draw(part) / 16, draw(part))


def any_line(draw: st.DrawFn) -> StepTime:
    part = st.floats(0, 0.01)
    return Line(draw(st.floats(0.001, 0.1)), draw(part), draw(part) / 50, draw(part))


def roofline(draw: st.DrawFn) -> StepTime:
    """A toy model on a toy GPU whose attention turns from memory-bound to compute-bound within a few dozen tokens."""
    model = Model("toy", 2, 64, 8, 8, 8, 256, 4096, "made up", ffn=128)
    kv_s = model.kv_bytes_per_token("bf16", 1) / (1e6 * 0.8)
    peak = model.attention_flops_per_pair(absorbed=True) / (0.45 * kv_s * draw(st.floats(1.02, 1.3)))
    gpu = Gpu("toy", "toy", {"bf16": peak}, 1e6, 1e9, 1e9, "made up")
    return Watched(Roofline(gpu, model, layer_s=1e-3, step_s=1e-3))


class Watched:
    """A step-time model that counts how often its segments end."""

    def __init__(self, model: StepTime) -> None:
        self.model = model
        self.provenance = model.provenance

    def segment(self, decodes: int, context: int, chunks: Sequence[Chunk] = ()) -> Segment:
        found = self.model.segment(decodes, context, chunks)
        SEEN["a segment that ends"] += 1 < found[2] < 60
        return found


def note(replica: Replica, rows: list[tuple], arrivals: list[Arrival]) -> None:
    SEEN["preemption"] += replica.preemptions > 0
    SEEN["arrivals at one time"] += len({at for at, *_ in arrivals}) < len(arrivals)
    ends = {times[3] for _, times in rows}
    SEEN["an arrival at the end of an iteration"] += any(at in ends for at, *_ in arrivals if at > 0)
    SEEN["a prompt in pieces"] += replica.server.chunked_prefill and any(
        prompt > replica.server.max_num_batched_tokens for _, prompt, *_ in arrivals
    )
    refusals = {what[2] for what, _ in rows}
    for reason in ("beyond the window", "queue is full"):
        SEEN[reason] += reason in refusals
    SEEN["a resend"] += any(what[1] for what, _ in rows)
    for what, times in rows:
        if what[2] == GIVEN_UP:
            SEEN["given up in the queue"] += math.isnan(times[1])
            SEEN["given up before the first token"] += times[1] <= times[3] and math.isnan(times[2])
            SEEN["given up in the answer"] += not math.isnan(times[2])
            SEEN["given up after a preemption"] += what[4] > 0
            SEEN["given up as another answer begins or ends"] += any(
                times[3] in other[2:] for w, other in rows if not w[2]
            )


@settings(max_examples=200)
@given(server=servers(dyadic_line), arrivals=calls(1 / 64), resend=st.booleans())
def test_all_three_agree_exactly_on_dyadic_times(server: Server, arrivals: list[Arrival], resend: bool) -> None:
    check(server, arrivals, resend, exact=True)


@given(server=servers(any_line), arrivals=calls(0.013), resend=st.booleans())
def test_all_three_agree_on_any_times(server: Server, arrivals: list[Arrival], resend: bool) -> None:
    check(server, arrivals, resend, exact=False)


@given(server=servers(roofline), arrivals=calls(0.013), resend=st.booleans())
def test_all_three_agree_where_a_roofline_breaks(server: Server, arrivals: list[Arrival], resend: bool) -> None:
    check(server, arrivals, resend, exact=False)


def patience(unit: float) -> st.SearchStrategy[list[float]]:
    some = st.one_of(st.integers(1, 60), st.integers(60, 900), st.just(10_000)).map(lambda k: k * unit)
    return st.lists(some, min_size=2, max_size=7)


def equal_steps(draw: st.DrawFn) -> StepTime:
    """A line whose steps often end when somebody gives up."""
    return dyadic_line(draw) if draw(st.booleans()) else Line(draw(st.integers(1, 3)) / 64)


@settings(max_examples=200)
@given(
    server=st.one_of(
        servers(equal_steps), *(servers(equal_steps, name) for name in ("prompt", "onestep", "estimated"))
    ),
    arrivals=calls(1 / 64),
    resend=st.booleans(),
    patience=patience(1 / 64),
)
def test_all_three_agree_where_clients_give_up(
    server: Server, arrivals: list[Arrival], resend: bool, patience: list[float]
) -> None:
    check(server, arrivals, resend, exact=True, patience=patience)


@given(server=servers(any_line), arrivals=calls(0.013), resend=st.booleans(), patience=patience(0.0131))
def test_all_three_agree_where_clients_give_up_at_any_time(
    server: Server, arrivals: list[Arrival], resend: bool, patience: list[float]
) -> None:
    check(server, arrivals, resend, exact=False, patience=patience)


def test_all_three_agree_whenever_one_of_three_gives_up() -> None:
    """At steps' ends and between them: in a pool too small for all, so after a preemption too, and in one for all."""
    SEEN.clear()
    server = Server(Prompt(), Line(1 / 64), 60, 50, 4, 3, 16, chunked_prefill=True)
    arrivals = [(0.0, 20, 30, 25), (1 / 64, 18, 30, 28), (2 / 64, 12, 20, 18)]
    for half_steps in range(1, 120, 7):
        for who in range(3):
            times = [10_000.0] * 3
            times[who] = half_steps / 128
            check(server, arrivals, resend=False, exact=True, patience=times)
    assert SEEN["given up after a preemption"]
    for steps in range(1, 9):
        check(server, [(0.0, 4, 10, 5), (0.0, 4, 10, 9)], resend=False, exact=True, patience=[10_000.0, steps / 64])
    assert SEEN["given up as another answer begins or ends"]


def test_generators_reach_what_matters() -> None:
    SEEN.clear()
    test_all_three_agree_where_clients_give_up()
    test_all_three_agree_exactly_on_dyadic_times()
    test_all_three_agree_where_a_roofline_breaks()
    wanted = {
        "preemption",
        "arrivals at one time",
        "an arrival at the end of an iteration",
        "a prompt in pieces",
        "beyond the window",
        "queue is full",
        "a resend",
        "a segment that ends",
        "given up in the queue",
        "given up before the first token",
        "given up in the answer",
    }
    assert {what: SEEN[what] for what in wanted if SEEN[what] < 5} == {}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=50)
@given(data=st.data(), resend=st.booleans())
def test_all_three_agree_under_each_rule(name: str, data: st.DataObject, resend: bool) -> None:
    check(data.draw(servers(dyadic_line, name)), data.draw(calls(1 / 64)), resend, exact=True)


@given(server=servers(dyadic_line), arrivals=calls(1 / 64))
def test_tiny_pools_make_progress(server: Server, arrivals: list[Arrival]) -> None:
    """Every request ends, and within the iterations that serving one after the other would take with recomputation."""
    replica, rows = simulate(server, arrivals, resend=False, stepped=False)
    assert len(rows) == len(arrivals)
    tokens = sum(min(true, limit) for _, _, limit, true in arrivals)
    recomputed = sum(what[4] for what, _ in rows) * server.window
    prompts = sum(-(-prompt // server.max_num_batched_tokens) for _, prompt, *_ in arrivals)
    assert replica.iterations <= tokens + prompts + recomputed


@given(server=servers(dyadic_line), arrivals=calls(1 / 64), data=st.data())
def test_decisions_do_not_depend_on_lengths_yet_to_come(
    server: Server, arrivals: list[Arrival], data: st.DataObject
) -> None:
    """Up to the first end of an answer, a run with longer answers is the same run: nobody has seen the lengths."""
    assume(not server.rule.knows)
    longer = [(at, prompt, limit, true + data.draw(st.integers(1, 9))) for at, prompt, limit, true in arrivals]
    (_, short), (_, long) = (simulate(server, calls, resend=False, stepped=False) for calls in (arrivals, longer))
    ends = min((times[3] for what, times in short if not what[2]), default=math.inf)
    seen = [
        sorted((what[0], *times[:3]) for what, times in rows if times[1] < ends and times[2] <= ends)
        for rows in (short, long)
    ]
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("rule", "within"), [(Full(), 1e-12), (Prompt(), 0.02)], ids=lambda value: str(value))
def test_reserved_token_seconds_add_up(rule: AdmissionRule, within: float) -> None:
    """What the requests reserved is what the pool held: exactly for `full`, nearly for a rule that grows."""
    server = Server(rule, Line(0.01, 0.0005, 1e-6), 40_000, 8_000, 16, 64, 2_048, chunked_prefill=True)
    clock = Clock()
    replica = Replica(clock, server, tick_s=10.0)
    done: list[Work] = []
    for k in range(200):
        Moment(clock, k * 0.21).callbacks.append(
            lambda _, k=k: replica.submit(50 + 37 * k % 900, 400, 20 + 61 * k % 500, done.append)
        )
    clock.run()
    held = replica.close().reserved[-1]
    assert len(done) == 200
    assert abs(sum(work.reserved_token_s for work in done) / held - 1) <= within


def test_a_rule_that_charges_pieces_lets_in_what_it_must_pause() -> None:
    """Two prompts of 30 tokens, computed 10 at a time, in a pool of 50: the second enters, and is paused."""
    line = Line(1.0)
    sizes = {"kv_tokens": 50, "window": 45, "block_tokens": 1, "max_num_seqs": 4, "max_num_batched_tokens": 10}
    arrivals = [(0.0, 30, 12, 12), (0.0, 30, 12, 12)]
    paused, whole = (
        simulate(Server(rule, line, chunked_prefill=True, **sizes), arrivals, resend=False, stepped=False)
        for rule in (OneStep(), Prompt())
    )
    assert paused[0].preemptions > 0 == whole[0].preemptions
    scheduled = [times[1] for _, times in paused[1]]
    assert scheduled[1] < min(times[3] for _, times in paused[1]) <= whole[1][1][1][1]


def test_a_static_batch_lets_nobody_in_before_all_have_left() -> None:
    server = Server(Batch(), Line(1.0), 1_000, 100, 1, 2, 50, chunked_prefill=True)
    _, rows = simulate(server, [(0.0, 5, 9, 9), (0.0, 5, 3, 3), (0.5, 5, 3, 3)], resend=False, stepped=False)
    times = {what[0]: at for what, at in rows}
    assert times[2][1] == times[0][3] > times[1][3]


def test_what_is_told_is_told_only_to_rules_that_say_so() -> None:
    assert {name for name, rule in RULES.items() if rule.knows} == {"oracle", "power-of-two"}
    assert [PowerOfTwo().told(true, 1_000) for true in (1, 2, 3, 512, 513)] == [1, 2, 4, 512, 1_000]
    assert [Oracle().told(true, 10) for true in (3, 12)] == [3, 10]


@pytest.mark.parametrize(
    ("rule", "blocks"),
    [
        (Full(), 132),  # 100 + 2,000 tokens in blocks of 16
        (Batch(), 132),
        (Chunked(), 71),  # 100 + 1,024
        (Slots(4_096), 256),
        (Prompt(), 7),
        (OneStep(), 7),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_what_a_rule_charges(rule: AdmissionRule, blocks: int) -> None:
    assert rule.need(100, 2_000, 0, 16) == blocks


def test_a_stay_is_charged_by_what_it_may_still_make() -> None:
    assert Chunked().need(100, 2_000, 1_024, 1) == 100 + 2_000
    assert Chunked().need(100, 5_000, 1_024, 1) == 100 + 2_048


def test_a_stay_ends_at_the_tail_of_the_queue() -> None:
    server = Server(ShortStays(), Line(1.0), 1_000, 100, 1, 1, 50, chunked_prefill=True)
    replica, rows = simulate(server, [(0.0, 5, 9, 9), (0.0, 5, 2, 2)], resend=False, stepped=False)
    assert [what[0] for what, _ in rows] == [1, 0]  # the short one is served between two stays of the long one
    assert rows[1][0][3] == 9
    assert replica.preemptions == 0
