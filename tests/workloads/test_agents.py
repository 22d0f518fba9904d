"""Plans of agent sessions: recorded and drawn."""

from __future__ import annotations

import numpy as np
import pytest

from policies.tokens import ByScript, CharsPerFour
from workloads.agents import WRITINGS, AgentMix, plans_of, read_plans
from workloads.errors import BadInput
from workloads.readers.weka import Request, Session, SubAgent, read_sessions


def request(tokens, output, start_s=0.0, types=("tool_result",), think_s=1.0):
    return Request(start_s, tokens, output, types, (), "", think_s, None, [], [])


def session(*requests, subagents=()):
    return Session("s", 64, 60, 40, requests, subagents)


def test_a_recording_becomes_what_was_appended():
    (plan,) = plans_of(
        session(request(1_000, 50), request(1_250, 70), request(1_300, 500, types=("text",)), request(2_000, 9))
    )
    assert (plan.head.tokens, plan.first.tokens, len(plan.steps)) == (100, 900, 4)
    first, second, third, last = plan.steps
    assert (first.answer.tokens, first.incoming.tokens, first.user, first.wait_s) == (50, 200, False, 1.0)
    # Grown by 50 only, less than the answer of 70: thinking was not sent back, all of the growth came in.
    assert (second.answer.tokens, second.output_tokens, second.incoming.tokens, second.user) == (0, 70, 50, True)
    assert (third.answer.tokens, third.incoming.tokens) == (500, 200)
    assert (last.incoming, last.output_tokens) == (None, 9)


def test_thinking_that_was_dropped_leaves_the_typical_round():
    (plan,) = plans_of(session(request(1_000, 900), request(1_700, 5)))
    assert (plan.steps[0].answer.tokens, plan.steps[0].incoming.tokens) == (700 - 393, 393)


def test_a_shrunken_prompt_is_caught_up_or_starts_afresh():
    (plan,) = plans_of(
        session(request(1_000, 50), request(900, 50), request(1_200, 50), request(300, 5), request(400, 5))
    )
    ahead, caught_up, fresh, after, _ = plan.steps
    assert (ahead.answer.tokens, ahead.incoming.tokens, ahead.fresh) == (0, 1, False)
    assert ahead.incoming.tokens + 1_000 + caught_up.answer.tokens + caught_up.incoming.tokens == 1_200
    assert (fresh.fresh, fresh.incoming.tokens) == (True, 200)
    assert after.answer.tokens + after.incoming.tokens == 100


def test_in_an_open_loop_requests_are_due_when_they_were_recorded():
    agent = SubAgent(3.0, "Explore", (request(500, 5, 0.5), request(600, 5, 9.0)), ())
    recording = session(request(1_000, 50, 0.0), request(1_100, 50, 7.5), subagents=(agent,))
    plans = list(plans_of(recording, start_s=60.0, open_loop=True))
    assert [(plan.start_s, plan.due_s) for plan in plans] == [(60.0, (0.0, 7.5)), (63.0, (0.5, 9.0))]
    assert [plan.due_s for plan in plans_of(recording)] == [(), ()]


def test_sub_agents_are_sessions_of_their_own():
    inner = SubAgent(4.0, "Explore", (request(10, 1),), ())
    agent = SubAgent(3.0, "Explore", (request(500, 5), request(600, 5)), (inner,))
    plans = list(plans_of(session(request(1_000, 50), subagents=(agent,))))
    assert [(plan.name, plan.start_s, len(plan.steps)) for plan in plans] == [
        ("s", 0, 1),
        ("s/0", 3, 2),
        ("s/0/0", 7, 1),
    ]
    assert len(list(plans_of(session(request(1_000, 50), subagents=(agent,)), subagents=False))) == 1


def test_the_handed_sessions_keep_their_prompts(shared):
    path = shared / "data/files/weka-claude-code/weka_sessions_dev.jsonl.gz"
    plans = {plan.name: plan for plan in read_plans(path)}
    assert sum("/" in name for name in plans) == 48
    exact = transitions = restarts = 0
    for recorded in read_sessions(path):
        plan = plans[recorded.name]
        total = plan.head.tokens + plan.first.tokens
        assert total == recorded.requests[0].input_tokens
        for step, after in zip(plan.steps, recorded.requests[1:], strict=False):
            total = (
                plan.head.tokens + step.incoming.tokens
                if step.fresh
                else total + step.answer.tokens + step.incoming.tokens
            )
            restarts += step.fresh
            transitions += 1
            exact += total == after.input_tokens
            assert total >= after.input_tokens
    assert (transitions, restarts) == (22_022, 91)
    assert exact / transitions > 0.93


def test_a_session_does_not_depend_on_how_many_are_drawn():
    few, many = AgentMix(count=2, rounds=5), AgentMix(count=6, rounds=5)
    drawn = list(few.plans(7, 0))
    assert drawn == list(many.plans(7, 0))[:2]
    assert list(few.plans(8, 0)) != drawn
    assert list(few.plans(7, 1)) != drawn
    assert list(AgentMix(name="others", count=2, rounds=5).plans(7, 0)) != drawn


def test_sizes_follow_the_law():
    mix = AgentMix(count=1, rounds=4_000, result_median=400, result_p99=17_000, look_back_share=0.3, look_back_mean=10)
    (plan,) = mix.plans(1, 0)
    sizes = np.array([step.incoming.tokens for step in plan.steps if step.incoming])
    assert len(sizes) == 4_000
    assert abs(np.median(sizes) / 400 - 1) < 0.1
    assert 0.004 < (sizes > 17_000).mean() < 0.02
    back = np.array([step.look_back for step in plan.steps[:-1]])
    assert abs((back > 0).mean() - 0.3) < 0.03
    assert abs(back[back > 0].mean() - 10) < 1


def test_turns_end_with_a_users_message():
    (plan,) = AgentMix(count=1, turns=3, rounds=2).plans(1, 0)
    assert [step.user for step in plan.steps] == [False, False, True, False, False, True, False, False, False]
    assert plan.steps[-1].incoming is None
    (chat,) = AgentMix(count=1, turns=4, rounds=0).plans(1, 0)
    assert [step.user for step in chat.steps] == [True, True, True, False]


def test_the_chapter_is_the_documents():
    chapter = WRITINGS["russian-chapter"].part(100_092)
    assert chapter.tokens == 44_600
    assert chapter.content.tokens(CharsPerFour()) in (25_023, 25_024)
    assert chapter.content.tokens(ByScript()) == 43_423


@pytest.mark.parametrize(
    "wrong", [{"results": {"rusian": 1.0}}, {"turns": 0}, {"look_back_share": 2}, {"result_p99": 1}]
)
def test_impossible_mixes_are_refused(wrong):
    with pytest.raises(BadInput):
        AgentMix(**wrong)
