"""A replica with a prefix cache: jumping, stepping and a naive pool of single blocks give the same server."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.output import Adaptive, Progressive
from sim.clients.client import Clients
from sim.clock import Clock, Moment
from sim.replica.admission import Prompt as PromptRule
from sim.replica.prefix_cache import Prompt
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replica.work import Work
from sim.steptime import Line
from tests.sim.blocks import block_names
from tests.sim.reference import Job, serve
from tests.sim.test_replica import any_line, dyadic_line, patience, same, servers
from workloads.trace import Segments, Trace

SEEN: Counter[str] = Counter()
TURNS = 3

Talk = tuple[float, list[tuple[int, int]], int, int, bool]
"""When it begins, its first prompt's segments, max_tokens, true length, whether answers stay in the prompt."""


def talks(unit: float) -> st.SearchStrategy[list[Talk]]:
    segments = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), min_size=1, max_size=4)
    one = st.tuples(
        st.integers(0, 200).map(lambda k: k * unit), segments, st.integers(1, 30), st.integers(1, 40), st.booleans()
    )
    return st.lists(one, min_size=1, max_size=12).map(lambda rows: sorted(rows, key=lambda row: row[0]))


def canonical(segments):
    """Keep the prompts prefix-consistent: no segment follows itself."""
    out = []
    for segment, tokens in segments:
        if not (out and out[-1][0] == segment):
            out.append((segment, tokens))
    return out


def simulate(
    server: Server, begun: list[Talk], stepped: bool, patience: Sequence[float] = ()
) -> tuple[Replica, list[tuple]]:
    clock = Clock()
    replica = Replica(clock, server, tick_s=0.37, stepped=stepped)
    rows: list[tuple] = []

    def ask(index: int, turn: int, prompt: Prompt) -> None:
        _, _, max_tokens, true, keeps = begun[index]

        def note(work: Work) -> None:
            times = (work.submitted_s, work.scheduled_s, work.first_token_s, work.finished_s)
            what = (index, turn, work.refusal, work.response.output_tokens, work.preemptions, work.cached)
            rows.append((what, times))

        def give_up(_: simpy.Event) -> None:
            if replica.cancel(work):
                note(work)

        def answered(work: Work) -> None:
            note(work)
            if work.refusal or turn == TURNS:
                return
            if keeps:
                prompt.append(("answer", index, turn), work.generated)
            prompt.append(("user", index, turn), 3)
            ask(index, turn + 1, prompt)

        work = replica.submit(prompt.tokens, max_tokens, true, answered, prompt)
        if patience:
            Moment(clock, clock.now + patience[index % len(patience)]).callbacks.append(give_up)

    for index, (at, segments, *_) in enumerate(begun):
        Moment(clock, at).callbacks.append(
            lambda _, index=index, segments=segments: ask(index, 0, Prompt(canonical(segments)))
        )
    clock.run()
    return replica, rows


def naive(server: Server, begun: list[Talk], patience: Sequence[float] = ()):
    jobs, names, keep = [], {}, []
    for index, (at, segments, max_tokens, true, _) in enumerate(begun):
        text = [(segment, n) for segment, tokens in canonical(segments) for n in range(tokens)]
        job = Job(len(text), max_tokens, true, text=text)
        names[id(job)] = index
        if patience:
            job.leaves = at + patience[index % len(patience)]
        jobs.append((at, job))

    def again(job: Job) -> Job | None:
        index = names[id(job)]
        if job.refusal or job.attempt == TURNS:
            return None
        if begun[index][4]:
            job.said = [(("answer", index, job.attempt), n) for n in range(job.made)]
        more = job.said + [(("user", index, job.attempt), n) for n in range(3)]
        text = job.text + more
        job.said = more  # what its client appended is all that can be kept of what was generated
        follow = Job(len(text), job.max_tokens, job.true, attempt=job.attempt + 1, text=text)
        names[id(follow)] = index
        if patience:
            follow.leaves = job.finished + patience[index % len(patience)]
        keep.append(follow)
        return follow

    outcome = serve(server, jobs, again)
    rows = [
        (
            (names[id(job)], job.attempt, job.refusal, job.made, job.preemptions, job.cached),
            tuple(math.nan if t is None else t for t in (job.submitted, job.scheduled, job.first, job.finished)),
        )
        for job in outcome.finished
    ]
    return outcome, rows


def check(server: Server, begun: list[Talk], tight: bool, exact: bool, patience: Sequence[float] = ()) -> None:
    server = replace(server, prefix_cache=True)
    if tight:
        server = replace(server, kv_tokens=server.window + server.block_tokens)
    jump, jumped = simulate(server, begun, stepped=False, patience=patience)
    step, stepped = simulate(server, begun, stepped=True, patience=patience)
    outcome, looked = naive(server, begun, patience)
    if patience:  # who gives up at the same time does so in no particular order
        for rows in (jumped, stepped, looked):
            rows.sort(key=lambda row: row[0][:2])
    for rows in (stepped, looked):
        assert [what for what, _ in jumped] == [what for what, _ in rows]
        for (_, left), (_, right) in zip(jumped, rows, strict=True):
            assert all(same(a, b, exact) for a, b in zip(left, right, strict=True)), (left, right)
    assert jump.iterations == step.iterations == outcome.iterations
    for replica in (jump, step):
        assert replica._cache.pinned == 0
        assert replica._pool.held == 0
        assert replica._cache.held <= replica._pool.blocks
        series = replica.close()
        for column, total in (("running", outcome.running), ("reserved", outcome.reserved), ("used", outcome.used)):
            assert same(getattr(series, column)[-1], total, exact)
    assert jump._cache.held == step._cache.held
    SEEN["cached"] += any(what[5] for what, _ in jumped)
    SEEN["preempted"] += jump.preemptions > 0
    whole = {name for job in outcome.finished if job.finished for name in block_names(job.text, server.block_tokens)}
    SEEN["evicted"] += jump._cache.held < len(whole)
    SEEN["refused"] += any(what[2] for what, _ in jumped)


@settings(max_examples=150)
@given(server=servers(dyadic_line), begun=talks(1 / 64), tight=st.booleans())
def test_all_three_agree_exactly_on_dyadic_times(server: Server, begun: list[Talk], tight: bool) -> None:
    check(server, begun, tight, exact=True)


@given(server=servers(any_line), begun=talks(0.013), tight=st.booleans())
def test_all_three_agree_on_any_times(server: Server, begun: list[Talk], tight: bool) -> None:
    check(server, begun, tight, exact=False)


@settings(max_examples=150)
@given(server=servers(dyadic_line), begun=talks(1 / 64), tight=st.booleans(), patience=patience(1 / 64))
def test_all_three_agree_where_clients_give_up(
    server: Server, begun: list[Talk], tight: bool, patience: list[float]
) -> None:
    check(server, begun, tight, exact=True, patience=patience)


def test_nothing_interesting_was_missed() -> None:
    if SEEN:  # else the tests above ran elsewhere
        assert min(SEEN[what] for what in ("cached", "preempted", "evicted", "refused")) >= 5, SEEN


def test_a_conversation_computes_only_what_is_new() -> None:
    clock = Clock()
    server = Server(
        rule=PromptRule(),
        step_time=Line(base_s=1.0, per_prompt_token_s=0.001),
        kv_tokens=100_000,
        window=50_000,
        block_tokens=16,
        max_num_seqs=4,
        max_num_batched_tokens=50_000,
        chunked_prefill=True,
        prefix_cache=True,
    )
    replica = Replica(clock, server)
    prompt = Prompt([("head", 16_000)])
    first_s = []

    def answered(work: Work) -> None:
        first_s.append(work.first_token_s - work.submitted_s)
        if len(first_s) < 3:
            prompt.append(("answer", len(first_s)), work.generated)
            prompt.append(("user", len(first_s)), 1_600)
            replica.submit(prompt.tokens, 100, 33, answered, prompt)

    replica.submit(prompt.tokens, 100, 33, answered, prompt)
    clock.run()
    # 33 tokens generated, 32 of them stored as two whole blocks: the last one and the new message are computed.
    assert first_s[0] == 1.0 + 16.0
    assert abs(first_s[1] - 2.601) < 1e-9
    assert abs(first_s[2] - 2.6) < 0.04


def test_a_trace_tells_what_its_prompts_share_and_an_escalation_finds_its_own_prompt() -> None:
    ids = [7, 8, 9]
    trace = Trace(
        arrival_s=np.array([0.0, 1_000.0, 2_000.0]),
        prompt_tokens=np.array([1_500, 1_200, 1_000]),
        output_tokens=np.array([10, 10, 90]),
        segments=Segments([0, 3, 5, 5], [*ids, ids[0], ids[1]], [512, 512, 476, 512, 512], 512),
    )
    clock = Clock()
    server = Server(PromptRule(), Line(base_s=0.01), 100_000, 50_000, 16, 4, 8_192, True, prefix_cache=True)
    policy = Progressive(caps=(50, 200))
    clients = Clients(clock, Replica(clock, server), policy, "", server.window)
    clients.run(iter([trace]), math.inf, math.inf)
    rows = clients.requests.all()
    # The second prompt's own 176 tokens are new; the third's are its own, and its escalation finds all but the last.
    assert rows["cached_tokens"].tolist() == [0, 1_024, 0, 992]
    assert rows["prompt_tokens"].tolist() == [1_500, 1_200, 1_000, 1_000]


def test_a_call_that_its_policy_refuses_is_recorded() -> None:
    trace = Trace(arrival_s=np.zeros(1), prompt_tokens=np.array([49_000]), output_tokens=np.array([5]))
    clock = Clock()
    server = Server(PromptRule(), Line(base_s=0.01), 100_000, 50_000, 16, 4, 8_192, True)
    clients = Clients(clock, Replica(clock, server), Adaptive(), "", server.window)
    clients.run(iter([trace]), math.inf, math.inf)
    (row,) = clients.requests.all()
    assert (row["prompt_tokens"], row["cached_tokens"], row["max_tokens"], row["refusal"]) == (49_000, 0, 0, 4)
