"""Tasks, faults and retries in the simulator, against a few lines of arithmetic that know no machine and no server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.output import (
    Adaptive,
    ErrorKind,
    FinishReason,
    Fixed,
    Oracle,
    OutputPolicy,
    Progressive,
    Resume,
    Rules,
    ToolKind,
)
from policies.retry import Backoff, Retry
from sim.clients.faults import Faults
from sim.clients.tasks import GUIDANCE_TOKENS, TaskClients
from sim.clients.tools import Tool
from sim.clock import Clock
from sim.experiment import conduct, settings_of
from sim.records import FINISHES, OUTCOMES, REFUSALS, TASK_OUTCOMES
from sim.replica.admission import Full
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replication import Replication
from sim.steptime import Line
from sim.study import load_study
from workloads import substreams
from workloads.errors import BadInput
from workloads.lengths import Constant, Uniform
from workloads.trace import Labels, Trace

TOKEN_S = 1 / 64
"""Seconds a token, a power of two: sums of it are exact."""

RETRY = Retry(refused=Backoff(retries=3, first_s=1.0, factor=2.0), broken=Backoff(retries=1, first_s=2.0))
FREE = {"margin_tokens": 0, "margin_share": 0.0, "floor": 1}


def simulate(policy: OutputPolicy, prompts: Any, lengths: Any, prefix_cache: bool = False, **options: Any) -> Any:
    """Return the clients, each of whose tasks arrives long after the one before has ended."""
    clock = Clock()
    server = Server(
        Full(), Line(base_s=TOKEN_S), 2_000_000, 1_000_000, 1, 4, 1_000_000, False, prefix_cache=prefix_cache
    )
    clients = TaskClients(clock, Replica(clock, server, tick_s=1e12), policy, "", 1_000_000, **options)
    arrivals = np.arange(len(lengths)) * 2.0**24
    kinds = Labels.constant("write", len(lengths))
    clients.run(
        iter([Trace(arrivals, np.asarray(prompts), np.asarray(lengths), kind=kinds)]), horizon_s=np.inf, limit_s=np.inf
    )
    return clients


def outcome(rows: Any) -> list[str]:
    return [TASK_OUTCOMES[code] for code in rows["outcome"]]


CAPS: dict[str, tuple[OutputPolicy, tuple[int, ...]]] = {
    "fixed": (Fixed(max_tokens=900), (900,)),
    "adaptive": (Adaptive(first_cap=300, escalated_floor=2_000), (300, 2_000)),
    "resume": (Resume(first_cap=300, escalated_floor=2_000), (300,)),  # a cut tool call cannot be continued
    "progressive": (Progressive(caps=(200, 400, 800)), (200, 400, 800)),
}


@pytest.mark.parametrize("name", CAPS)
@given(
    work=st.lists(st.integers(1, 6_000), min_size=1, max_size=6),
    splits=st.sampled_from([0.0, 0.4, 1.0]),
    parts=st.sampled_from([(50, 50), (100, 1_200), (250, 350)]),
    bound=st.integers(1, 6),
    seed=st.integers(0, 99),
)
@settings(max_examples=25)
def test_a_task_costs_what_its_loop_says(
    name: str, work: list[int], splits: float, parts: tuple[int, int], bound: int, seed: int
) -> None:
    policy, caps = CAPS[name]
    tool = Tool(ToolKind.EDIT, splits, Uniform(*parts), rejections=bound, result_tokens=7)
    clients = simulate(policy, [100] * len(work), work, tools={"write": tool}, seed=seed, replication=3)
    tasks, calls, requests = clients.tasks.all(), clients.calls.all(), clients.requests.all()
    for row, total in enumerate(work):
        told, drawn = (substreams.generator(seed, what, 3, block=row) for what in ("splits", "parts"))
        written = generated = rejections = sent = 0
        prompts, prompt, length, end = [], 100, total, ""
        while not end:
            tries = [min(length, cap) for cap in caps]
            tries = tries[: next((k for k, cap in enumerate(caps) if length <= cap), len(caps)) + 1]
            prompts += [prompt] * len(tries)
            sent += len(tries)
            generated += sum(tries)
            if length <= caps[-1]:
                written += length
                prompt += length + 7
                end = "done" if written == total else ""
            else:
                rejections += 1
                prompt += GUIDANCE_TOKENS
                end = "given up" if rejections == bound else ""
                if end or told.random() >= splits:
                    continue
            if not end:
                length = min(total - written, int(Uniform(*parts).quantile(drawn.random(1))[0]))
        task = tasks[row]
        assert outcome(tasks)[row] == end
        assert (task["rejections"], task["requests"], task["generated_tokens"]) == (rejections, sent, generated)
        assert (task["work_tokens"], task["written_tokens"]) == (total, written)
        assert task["finished_s"] - task["arrival_s"] == generated * TOKEN_S
        mine = calls[calls["task"] == row]
        assert task["calls"] == len(mine)
        assert task["reserved_token_s"] == pytest.approx(mine["reserved_token_s"].sum(dtype=float))
        assert mine["delivered_tokens"].sum() == written
        assert (mine["outcome"] == OUTCOMES.index("rejected")).sum() == rejections
        assert requests[np.isin(requests["call"], mine["call"])]["prompt_tokens"].tolist() == prompts
    assert len(np.unique(calls["call"])) == len(calls)


def test_the_loop_ends_as_often_as_its_chances_say() -> None:
    """With a chance p to split after each rejection, (1 - p)^(bound - 1) of the tasks are given up."""
    tool = Tool(ToolKind.EDIT, splits=0.3, part=Constant(100), rejections=4)
    tasks = simulate(Fixed(max_tokens=200), [10] * 4_000, [500] * 4_000, tools={"write": tool}).tasks.all()
    share = np.mean([end == "given up" for end in outcome(tasks)])
    assert share == pytest.approx(0.7**3, abs=4 * np.sqrt(0.7**3 * (1 - 0.7**3) / 4_000))
    split = tasks[tasks["outcome"] == TASK_OUTCOMES.index("done")]
    assert (split["generated_tokens"] == 200 * split["rejections"] + 500).all()


def test_a_write_that_fits_is_one_call_and_calls_without_a_tool_are_no_tasks() -> None:
    tool = Tool(ToolKind.EDIT, 1.0, Constant(100))
    one = simulate(Adaptive(), [10], [9_000], tools={"write": tool})
    alone = simulate(Adaptive(), [10], [9_000], tools={"other": tool})
    for clients in (one, alone):
        call = clients.calls.all()
        assert (call["attempts"], call["delivered_tokens"], call["discarded_tokens"]) == (2, 9_000, 8_000)
    assert len(alone.tasks.all()) == 0
    assert alone.calls.all()["task"] == -1
    assert outcome(one.tasks.all()) == ["done"]


def test_nobody_wastes_less_than_the_oracle() -> None:
    tool = Tool(ToolKind.EDIT, 0.5, Constant(100))
    lengths = np.random.default_rng(4).integers(1, 20_000, 100)
    bound = simulate(Oracle(**FREE), [10] * 100, lengths, tools={"write": tool}).tasks.all()
    assert (bound["calls"] == 1).all()
    assert (bound["generated_tokens"] == lengths).all()
    for policy, _ in CAPS.values():
        rows = simulate(policy, [10] * 100, lengths, tools={"write": tool}).tasks.all()
        assert (rows["generated_tokens"] >= bound["generated_tokens"])[rows["outcome"] == 0].all()


def test_sticky_escalation_opens_the_next_calls_of_a_task_high() -> None:
    tool = Tool(ToolKind.EDIT, 1.0, Constant(1_500), rejections=5)
    limits = {}
    for sticky in (0, 2, 9):
        policy = Adaptive(first_cap=1_000, escalated_floor=2_000, recoveries=0, sticky=sticky)
        clients = simulate(policy, [10], [6_000], tools={"write": tool})
        limits[sticky] = clients.requests.all()["max_tokens"].tolist()
    # 6,000 are too long; then four parts of 1,500, each cut at 1,000 unless the escalation is remembered
    assert limits[0] == [1_000, 2_000] * 5
    assert limits[2] == [1_000, 2_000, 2_000, 2_000, 1_000, 2_000, 2_000]
    assert limits[9] == [1_000, 2_000, 2_000, 2_000, 2_000, 2_000]


def test_a_cut_call_that_is_continued_has_no_result_and_is_refused() -> None:
    """The documents to the letter continue whatever the answer holds."""
    policy = Adaptive(first_cap=100, escalated_floor=200, rules=Rules(continue_calls=True))
    tool = Tool(ToolKind.EDIT, 1.0, Constant(50))
    clients = simulate(policy, [10], [500], tools={"write": tool})
    assert outcome(clients.tasks.all()) == ["failed"]
    requests = clients.requests.all()
    assert requests["output_tokens"].tolist() == [100, 200, 0]
    assert REFUSALS[requests["refusal"][2]] == "tool call without a result"


def test_a_cut_command_that_runs_all_the_same_writes_nothing() -> None:
    rules = Rules(never_run=frozenset({ToolKind.EDIT}), run_cut=True)
    tool = Tool(ToolKind.EXECUTE, 1.0, Constant(50))
    clients = simulate(Fixed(max_tokens=100, rules=rules), [10], [500], tools={"write": tool})
    assert outcome(clients.tasks.all()) == ["failed"]


def test_a_prefix_cache_finds_what_a_task_wrote_before() -> None:
    tool = Tool(ToolKind.EDIT, 1.0, Constant(100), result_tokens=7)
    clients = simulate(Fixed(max_tokens=150), [1_000], [300], prefix_cache=True, tools={"write": tool})
    requests = clients.requests.all()
    rejected = 1_000 + GUIDANCE_TOKENS  # then parts of 100, each with a result of 7
    assert requests["prompt_tokens"].tolist() == [1_000, rejected, rejected + 107, rejected + 214]
    assert requests["cached_tokens"].tolist() == [0, 1_000, rejected, rejected + 107]


# ---------------------------------------------------------------------- faults and retries

SHARES = st.sampled_from([0.0, 0.1, 0.25])


@pytest.mark.parametrize("name", CAPS)
@given(faults=st.builds(Faults, SHARES, SHARES, SHARES, SHARES), seed=st.integers(0, 99), retried=st.booleans())
@settings(max_examples=20)
def test_tokens_are_delivered_or_discarded_whatever_goes_wrong(
    name: str, faults: Faults, seed: int, retried: bool
) -> None:
    policy, _ = CAPS[name]
    lengths = np.random.default_rng(seed).integers(1, 3_000, 30)
    retry = RETRY if retried else None
    clients = simulate(policy, [10] * 30, lengths, faults=faults, retry=retry, seed=seed)
    calls, requests = clients.calls.all(), clients.requests.all()
    generated = np.bincount(requests["call"], requests["output_tokens"])[calls["call"]]
    assert (generated == calls["delivered_tokens"] + calls["discarded_tokens"]).all()
    assert (calls["delivered_tokens"] <= calls["true_tokens"]).all()
    assert (np.bincount(requests["call"])[calls["call"]] == calls["attempts"]).all()
    complete = calls["outcome"] == OUTCOMES.index("complete")
    assert (calls["delivered_tokens"][complete] == calls["true_tokens"][complete]).all()
    assert len(calls) == 30


def test_faults_are_as_frequent_as_they_should_be_and_the_same_for_every_policy() -> None:
    faults = Faults(0.1, 0.05, 0.08, 0.03)
    met = {}
    for name, (policy, _) in CAPS.items():
        requests = simulate(policy, [10] * 3_000, [150] * 3_000, faults=faults, seed=5).requests.all()
        met[name] = [
            REFUSALS[request["refusal"]] or (FINISHES[request["finish"]].value, int(request["output_tokens"]))
            for request in requests[requests["attempt"] == 0]
        ]
    assert len(set(map(tuple, met.values()))) == 1
    first = met["fixed"]
    broken = [each for each in first if each[0] == "error"]
    for count, share in (
        (first.count("rate limited"), 0.1),
        (first.count("server error"), 0.05),
        (sum(tokens > 1 for _, tokens in broken), 0.08),
        (sum(tokens == 1 for _, tokens in broken), 0.03),
    ):
        assert count / 3_000 == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 3_000))
    places = [tokens for _, tokens in broken if tokens > 1]
    assert np.mean(places) == pytest.approx(75, abs=4 * 43 / np.sqrt(len(places)))  # even over the 150 tokens


def test_waits_and_retries_are_those_of_the_machine() -> None:
    always = simulate(Fixed(), [10], [50], faults=Faults(rate_limited=1.0), retry=RETRY)
    requests = always.requests.all()
    assert requests["submitted_s"].tolist() == [0.0, 1.0, 3.0, 7.0]  # doubling, three retries
    assert OUTCOMES[always.calls.all()["outcome"][0]] == "failed"
    broken = simulate(Fixed(), [10], [50], faults=Faults(empty=1.0), retry=RETRY)
    assert broken.requests.all()["submitted_s"].tolist() == [0.0, TOKEN_S + 2.0]  # one token ends an empty stream
    assert broken.calls.all()["discarded_tokens"][0] == 2
    given_up = simulate(Fixed(), [10], [50], faults=Faults(rate_limited=1.0))
    assert len(given_up.requests.all()) == 1


def test_a_call_may_take_more_requests_than_a_byte_counts() -> None:
    stubborn = Retry(refused=Backoff(retries=300, first_s=0.1, factor=1.0, longest_s=0.1, jitter=0.0))
    run = simulate(Fixed(), [10], [50], faults=Faults(rate_limited=1.0), retry=stubborn)
    assert run.calls.all()["attempts"].tolist() == [301]
    assert run.requests.all()["attempt"].tolist() == list(range(301))


def test_a_stream_cut_in_the_first_request_leaves_its_text() -> None:
    clients = simulate(Fixed(), [10], [500], faults=Faults(cut=1.0))
    call, request = clients.calls.all()[0], clients.requests.all()[0]
    assert OUTCOMES[call["outcome"]] == "truncated"
    assert 0 < call["delivered_tokens"] == request["output_tokens"] < 500
    assert FINISHES[request["finish"]] is FinishReason.ERROR


def test_an_escalation_that_meets_an_error_keeps_the_first_answer() -> None:
    policy, _ = CAPS["adaptive"]  # errors of an escalated request go straight to the caller
    faults = Faults(server_error=0.5)
    clients = simulate(policy, [10] * 200, [1_000] * 200, faults=faults, retry=RETRY)
    calls, requests = clients.calls.all(), clients.requests.all()
    last = requests[requests["attempt"] == calls["attempts"][np.searchsorted(calls["call"], requests["call"])] - 1]
    failed = last["refusal"] == REFUSALS.index("server error")
    kept = calls[np.searchsorted(calls["call"], last["call"][failed & (last["kind"] == 1)])]
    assert len(kept) > 50
    assert (kept["delivered_tokens"] == 300).all()
    assert (kept["outcome"] == OUTCOMES.index("truncated")).all()


def test_error_kinds_are_all_told_apart() -> None:
    faults = Faults(0.1, 0.2, 0.3, 0.4)
    kinds = [faults.of(level) for level in (0.05, 0.2, 0.5, 0.9)]
    assert kinds == [ErrorKind.RATE_LIMITED, ErrorKind.SERVER, ErrorKind.CUT, ErrorKind.EMPTY]
    assert Faults(0.1).of(0.1) is None


# ---------------------------------------------------------------------- in a study

STUDY = """
schema = 1
name = "writes"
seed = 7
[run]
kind = "terminating"
horizon = "20min"
replications = 2
[server]
engine = "trtllm-no-evict"
kv_tokens = 1_000_000
window = 100_000
step_time = { kind = "line", base_s = 0.01 }
faults = { rate_limited = 0.1, cut = 0.05 }
[policy]
retry = {}
output = { name = "adaptive", first_cap = 500, escalated_floor = 1_000 }
[[workload.streams]]
name = "write"
arrivals = { kind = "poisson", rate = 0.2 }
prompt = { kind = "constant", tokens = 200 }
output = { kind = "lognormal", median = 900, p99 = 4_000 }
tool = { splits = 0.5, part = { kind = "constant", tokens = 400 } }
[[workload.streams]]
name = "chat"
arrivals = { kind = "poisson", rate = 0.2 }
prompt = { kind = "constant", tokens = 200 }
output = { kind = "constant", tokens = 100 }
[arms.adaptive]
[arms.fixed]
policy.output = { name = "fixed", max_tokens = 500 }
"""


@pytest.mark.parametrize(
    ("override", "key", "part"),
    [
        ("workload.streams.write.tool.kind=edits", "kind", "did you mean 'edit'"),
        ("workload.streams.write.tool.splits=2", "splits", "less than or equal to 1"),
        ("workload.streams.chat.kind=write", "kind", "need the same tool"),
        ("server.faults.cut=0.95", "faults", "add up to at most 1"),
        ("server.faults.cuts=0.1", "cuts", "did you mean 'cut'"),
        ("policy.retry.refused=-1", "refused", "greater than or equal to 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, override: str, key: str, part: str) -> None:
    path = tmp_path / "writes.toml"
    path.write_text(STUDY, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        load_study(str(path), [override])
    assert any(key in str(fault.key) and part in fault.message for fault in caught.value.faults)


def test_a_study_with_tools_faults_and_retries(tmp_path) -> None:
    path = tmp_path / "writes.toml"
    path.write_text(STUDY, encoding="utf-8")
    study = load_study(str(path))
    runs: dict[str, list[Replication]] = {}
    results = conduct(study, 1, lambda: None, lambda arm, _, run: runs.setdefault(arm, []).append(run))
    for arm, happened in runs.items():
        metrics = results.arms[arm].metrics
        for name, of in (
            ("task.failed_share", lambda tasks: (tasks["outcome"] > 0).mean()),
            ("task.calls.mean", lambda tasks: tasks["calls"].mean()),
            ("task.time_s.mean", lambda tasks: (tasks["finished_s"] - tasks["arrival_s"]).mean()),
            ("task.wasted_share", lambda t: 1 - t["written_tokens"].sum() / t["generated_tokens"].sum()),
        ):
            assert metrics[name].mean == pytest.approx(np.mean([of(run.tasks) for run in happened]))
    first, other = (runs[arm][0].tasks for arm in ("adaptive", "fixed"))
    assert sorted(first["task"].tolist()) == sorted(other["task"].tolist())
    resolved = tmp_path / "resolved.toml"
    resolved.write_text(study.resolved(), encoding="utf-8")
    for name, arm in load_study(str(resolved)).arms.items():
        told = study.arms[name]
        assert (arm.workload, arm.policy, arm.server.faults) == (told.workload, told.policy, told.server.faults)


def test_without_tools_there_is_nothing_to_say_of_tasks(tmp_path) -> None:
    path = tmp_path / "chat.toml"
    text = STUDY.replace('tool = { splits = 0.5, part = { kind = "constant", tokens = 400 } }', "")
    path.write_text(text, encoding="utf-8")
    results = conduct(load_study(str(path)), 1, lambda: None, lambda *_: None)
    for metric, interval in results.arms["fixed"].metrics.items():
        if metric.startswith("task."):
            assert interval.mean is None


def test_a_request_that_takes_too_long_is_broken_off_and_sent_again() -> None:
    """Answers of 640 tokens take 10 s and a step; after 5 s each attempt is broken off, 3 retries wait 1, 2 and 4 s."""
    clients = simulate(Fixed(**FREE), [10], [640], retry=RETRY, timeout_s=5.0)
    (call,), requests = clients.calls.all(), clients.requests.all()
    assert requests["submitted_s"].tolist() == [0.0, 6.0, 13.0, 22.0]
    assert requests["finished_s"].tolist() == [5.0, 11.0, 18.0, 27.0]
    assert requests["output_tokens"].tolist() == [320] * 4  # the first token comes with the prompt
    assert {REFUSALS[code] for code in requests["refusal"]} == {"given up"}
    assert (call["attempts"], call["finished_s"]) == (4, 27.0)
    assert call["delivered_tokens"] + call["discarded_tokens"] == 4 * 320
    in_time = simulate(Fixed(**FREE), [10], [640], retry=RETRY, timeout_s=10.5).calls.all()
    assert (OUTCOMES[in_time["outcome"][0]], in_time["attempts"][0]) == ("complete", 1)


def test_a_study_says_when_requests_are_broken_off() -> None:
    study = load_study("quickstart", ["policy.retry={timeout='10min'}"])
    assert {setting.timeout_s for setting in settings_of(study).values()} == {600.0}
    assert {setting.timeout_s for setting in settings_of(load_study("quickstart")).values()} == {np.inf}
