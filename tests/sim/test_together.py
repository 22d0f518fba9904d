"""Sessions on one simulated server."""

from __future__ import annotations

import dataclasses

import pytest

from policies.context import Document001, SendAll, Summarise
from policies.messages import Known
from policies.output import Adaptive, Fixed, ModelLimit
from sim.replica.admission import Prompt as PromptRule
from sim.replica.server import Server
from sim.sessions.agent import End
from sim.sessions.solo import SoloServer, run_alone
from sim.sessions.together import run_together
from sim.steptime import Line
from workloads.agents import AgentMix, Part, Plan, Step

LINE = Line(base_s=0.01, per_context_token_s=1e-7, per_prompt_token_s=1e-5)
SERVER = Server(PromptRule(), LINE, 4_000_000, 1_000_000, 16, 64, 8_192, True, prefix_cache=True)
MIX = AgentMix(count=6, rounds=30, result_median=2_000, result_p99=9_000, every_s=5.0)
OUTPUT = Fixed(max_tokens=30_000)


@pytest.mark.parametrize("policy", [SendAll(), Document001(budget=40_000), Summarise(window=60_000)], ids=repr)
def test_a_session_alone_on_the_server_is_the_closed_form(policy):
    (plan,) = dataclasses.replace(MIX, count=1).plans(4, 0)
    (sitting,), clients = run_together([plan], policy, OUTPUT, SERVER)
    alone = run_alone(plan, policy, SoloServer(LINE))
    assert sitting.agent.end is alone.end is End.FINISHED
    assert sitting.agent.tally == alone.tally
    # The closed form also keeps an answer's last token, which a server never stores: a block more now and then.
    assert 0 <= alone.hit_tokens - sitting.hit_tokens <= 16 * alone.tally.requests
    assert sitting.ttft_s == pytest.approx(alone.prefill_s, rel=0.005)
    assert sitting.ended_s - sitting.begun_s == pytest.approx(alone.duration_s, rel=0.001)
    assert len(clients.requests.all()) == alone.tally.requests


def test_stepping_is_the_same():
    plans = list(MIX.plans(2, 0))
    small = dataclasses.replace(SERVER, kv_tokens=260_000, window=250_000)
    policy = Document001(budget=60_000)
    jump, _ = run_together(plans, policy, OUTPUT, small)
    step, _ = run_together(plans, policy, OUTPUT, small, stepped=True)
    for one, other in zip(jump, step, strict=True):
        assert one.agent.tally == other.agent.tally
        assert one.hit_tokens == other.hit_tokens
        assert one.ended_s == pytest.approx(other.ended_s, rel=1e-9)
    assert sum(sitting.hit_tokens for sitting in jump) > 0


def test_sessions_share_their_system_prompt():
    plans = list(dataclasses.replace(MIX, rounds=0, every_s=100.0, head_tokens=16_000).plans(2, 0))
    sittings, _ = run_together(plans, SendAll(), OUTPUT, SERVER)
    first, *later = sorted(sittings, key=lambda sitting: sitting.begun_s)
    assert first.hit_tokens == 0
    assert {sitting.hit_tokens for sitting in later} == {16_000}


def test_truncated_answers_go_on_without_touching_the_sessions_prompt():
    plans = list(dataclasses.replace(MIX, answer_median=800, answer_p99=3_000).plans(2, 0))
    whole, _ = run_together(plans, SendAll(), OUTPUT, SERVER)
    output = Adaptive(first_cap=500, escalated_floor=700)
    sittings, clients = run_together(plans, SendAll(), output, SERVER)
    requests = clients.requests.all()
    assert (requests["attempt"] > 1).any()
    for one, other in zip(sittings, whole, strict=True):
        assert one.agent.end is End.FINISHED
        assert one.agent.tally.prompt_tokens <= other.agent.tally.prompt_tokens  # some answers stay truncated
    again = requests[requests["attempt"] > 0]
    assert (again["cached_tokens"] >= again["prompt_tokens"] - 1_000).all()  # an escalation finds its own prompt


def test_a_request_beyond_the_window_ends_the_session():
    plans = list(dataclasses.replace(MIX, count=2).plans(2, 0))
    small = dataclasses.replace(SERVER, kv_tokens=60_000, window=50_000)
    sittings, _ = run_together(plans, SendAll(), ModelLimit(), small)
    for sitting in sittings:
        assert sitting.agent.end is End.REFUSED_BY_SERVER
        assert sitting.agent.reason
        assert sitting.ended_s > 0


def known(tokens):
    return Part(Known(tokens), tokens)


def recorded(due_s, kept=300):
    """Return a session of answers of 300 tokens, of which ``kept`` are sent back, with two seconds after each."""
    steps = [Step(known(kept), 300, known(1_000), wait_s=2.0) for _ in due_s[1:]]
    return Plan("recorded", "", "head", known(4_000), known(500), [*steps, Step(known(300), 300)], 10.0, due_s=due_s)


@pytest.mark.parametrize("due_s", [(0.0, 20.0, 45.0, 80.0), (5.0, 5.5, 6.0, 60.0)], ids=["apart", "overlapping"])
@pytest.mark.parametrize("kept", [300, 100])
def test_an_open_loop_sends_when_it_is_due(due_s, kept):
    plan = recorded(due_s, kept)
    (sitting,), clients = run_together([plan], SendAll(), OUTPUT, SERVER)
    requests = clients.requests.all()
    assert sorted(requests["submitted_s"].tolist()) == [10.0 + at_s for at_s in due_s]
    assert sorted(requests["prompt_tokens"].tolist()) == [4_500 + number * (kept + 1_000) for number in range(4)]
    assert sitting.agent.end is End.FINISHED
    assert (sitting.begun_s, sitting.ended_s) == (10.0 + due_s[0], requests["finished_s"].max())
    closed, _ = run_together([dataclasses.replace(plan, due_s=())], SendAll(), OUTPUT, SERVER)
    assert sitting.agent.tally == closed[0].agent.tally
    # Nothing is found that was not computed: of the message before at most what the model said and sends back.
    rows = requests[requests["submitted_s"].argsort()]
    assert (rows["cached_tokens"][1:] <= rows["prompt_tokens"][:-1] + kept).all()


def test_requests_of_an_open_loop_overlap_on_a_slow_server():
    slow = dataclasses.replace(SERVER, step_time=Line(base_s=0.1, per_context_token_s=0.0, per_prompt_token_s=0.0))
    (sitting,), clients = run_together([recorded((0.0, 1.0, 2.0))], SendAll(), OUTPUT, slow)
    requests = clients.requests.all()
    assert requests["finished_s"].min() > requests["submitted_s"].max()
    assert sitting.agent.end is End.FINISHED


def test_an_open_loop_alone_takes_as_long_as_recorded():
    result = run_alone(recorded((0.0, 20.0, 45.0, 80.0)), SendAll(), SoloServer(LINE))
    last_s = result.ttft_s[-1] + SoloServer(LINE).decode_s(299, result.tally.largest_prompt + 1)
    assert result.duration_s == pytest.approx(80.0 + last_s)


def test_summaries_in_an_open_loop_come_with_the_request_that_needs_them():
    policy = Summarise(window=8_000, summary_tokens=200)
    plan = recorded(tuple(10.0 * number for number in range(12)))
    (sitting,), clients = run_together([plan], policy, OUTPUT, SERVER)
    sent = clients.requests.all()["submitted_s"].tolist()
    assert sitting.agent.tally.summaries >= 1
    assert len(sent) == 12 + sitting.agent.tally.summaries
    assert set(sent) == {10.0 + at_s for at_s in plan.due_s}
