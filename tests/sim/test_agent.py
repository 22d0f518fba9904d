"""Agents under context policies: design document 001's two stories, and what every session must keep."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.context import (
    CutUserTurns,
    Document001,
    DropHalf,
    LastObservations,
    MaskToolOutputs,
    SendAll,
    Summarise,
)
from policies.messages import Known, Text
from policies.prompts import CLEARED_RESULT
from policies.tokens import ByScript, CharsPerFour
from sim.replica.prefix_cache import PrefixCache, Prompt
from sim.sessions.agent import Agent, End
from sim.sessions.hosted_cache import HOSTED_CACHES, Account
from sim.sessions.solo import SoloServer, run_alone
from sim.steptime import Line
from workloads.agents import WRITINGS, AgentMix, Part, Plan, Step

LINE = Line(base_s=0.01, per_context_token_s=1e-7, per_prompt_token_s=1e-4)
SERVER = SoloServer(LINE)
READINGS = ("budget", "protected", "protected-hold")


def act(plan, policy, window=1_000_000, room=None):
    """Yield every request of a session and leave the agent at its end."""
    agent = Agent(plan, policy, 0, window, room)
    asks = []
    while (ask := agent.ask()) is not None:
        asks.append((Prompt(zip(ask.prompt.ids, sizes(ask.prompt), strict=True)), ask))
        agent.answered(ask)
    return agent, asks


def sizes(prompt):
    return [end - start for start, end in zip([0, *prompt.ends], prompt.ends, strict=False)]


# ---------------------------------------------------------------- the eight sub-agents


def sub_agents(seed, result_median, rounds):
    """Sub-agents with one instruction that read large files until they would exceed a million tokens twice."""
    mix = AgentMix(
        rounds=rounds, result_median=result_median, result_p99=2.5 * result_median, answer_median=300, answer_p99=2_000
    )
    return list(mix.plans(seed, 0))


@pytest.mark.parametrize(("seed", "result_median", "rounds"), [(1, 15_000, 140), (2, 25_000, 90), (3, 9_000, 240)])
def test_eight_sub_agents(seed, result_median, rounds):
    plans = sub_agents(seed, result_median, rounds)
    for plan in plans:
        agent, _ = act(plan, CutUserTurns(budget=400_000))
        assert agent.end is End.REFUSED_BY_SERVER
        assert 1_000_000 <= agent.tally.largest_prompt < 1_150_000
        for reading in READINGS:
            agent, asks = act(plan, Document001(budget=400_000, clear_to=reading))
            assert agent.end is End.FINISHED
            assert len(asks) == rounds + 1
            assert agent.tally.largest_estimate <= 400_000


# ---------------------------------------------------------------- the Russian reader


def russian_reader(seed, chapter):
    """A sub-agent that reads Russian chapters only; its system prompt and its short answers are English."""
    mix = AgentMix(
        count=1,
        rounds=1_400_000 // chapter,
        results={"russian-chapter": 1.0},
        result_median=chapter,
        result_p99=1.6 * chapter,
        head_tokens=20_000,
        answer_median=400,
        answer_p99=2_400,
    )
    (plan,) = mix.plans(seed, 0)
    return plan


@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.parametrize("chapter", [8_000, 14_000, 22_000])
def test_the_russian_reader(seed, chapter):
    plan = russian_reader(seed, chapter)
    agent, _ = act(plan, Document001(budget=400_000, estimator="chars-per-four"))
    assert agent.tally.largest_estimate <= 400_000
    assert agent.tally.largest_prompt == pytest.approx(640_000, rel=0.05)
    agent, _ = act(plan, Document001(budget=400_000, estimator="by-script"))
    assert agent.end is End.FINISHED
    assert agent.tally.largest_prompt <= 400_000 * 44_600 / 43_423


def test_a_wrong_estimator_lets_the_server_refuse():
    plan = russian_reader(1, 14_000)
    wrong = Document001(budget=400_000, estimator="chars-per-four")
    assert act(plan, wrong, window=600_000)[0].end is End.REFUSED_BY_SERVER
    assert act(plan, Document001(budget=400_000), window=600_000)[0].end is End.FINISHED


@pytest.mark.parametrize(("window", "early"), [(3_001, 2), (1_600, 0)])
def test_early_is_what_the_window_would_have_held(window, early):
    """Results of 500 tokens, estimated at 1,000: two of three are cleared where 1,600 tokens would have been sent."""
    result, nothing = Part(Text("a" * 4_000), 500), Part(Known(0), 0)
    steps = [*(Step(nothing, 1, result) for _ in range(4)), Step(nothing, 1)]
    plan = Plan("early", "", "early", nothing, Part(Known(100), 100), steps)
    agent, _ = act(plan, Document001("chars-per-four", budget=3_000, clear_batch=1), window=window)
    note = Text(CLEARED_RESULT).tokens(CharsPerFour())
    assert agent.end is End.FINISHED
    assert agent.tally.early_tokens == early * (500 - note)
    sent = [(100, 100), (600, 1_100), (1_100, 2_100), (600 + 2 * note, 1_100 + 2 * note)]
    sent.append((1_100 + 2 * note, 2_100 + 2 * note))
    assert (agent.tally.prompt_tokens, agent.tally.estimated_tokens) == tuple(map(sum, zip(*sent, strict=True)))


# ---------------------------------------------------------------- stopping early, reading again


def test_an_agent_that_was_not_told_stops_early():
    (plan,) = AgentMix(count=1, rounds=200, result_median=2_000, result_p99=9_000).plans(3, 0)
    assert act(plan, Document001(budget=400_000))[0].end is End.FINISHED
    agent, _ = act(plan, Document001(budget=400_000), room=400_000)
    assert agent.end is End.STOPPED
    assert agent.tally.largest_prompt <= plan.patience * 400_000


def test_cleared_results_are_read_again():
    mix = AgentMix(count=1, rounds=100, result_median=2_000, result_p99=6_000, look_back_share=0.5, look_back_mean=15)
    (plan,) = mix.plans(3, 0)
    whole, _ = act(plan, SendAll())
    agent, asks = act(plan, Document001(budget=60_000))
    assert agent.end is whole.end is End.FINISHED
    assert whole.tally.rereads == 0
    assert agent.tally.rereads > 5
    assert len(asks) == len(plan.steps) + agent.tally.rereads
    assert agent.tally.reread_tokens > 0


def test_a_refusal_of_the_policy_ends_the_session_with_its_reason():
    plan = Plan(
        "p",
        "s",
        "h",
        Part(WRITINGS["english"].part(8).content, 2),
        WRITINGS["english"].part_of(9_000),
        [Step(WRITINGS["english"].part(5), 1)],
    )
    agent, _ = act(plan, Document001(budget=5_000))
    assert agent.end is End.REFUSED_BY_POLICY
    assert "cannot hold the first message" in agent.reason


def test_a_summary_is_asked_for_first():
    (plan,) = AgentMix(count=1, rounds=60, result_median=2_000, result_p99=6_000).plans(3, 0)
    agent, asks = act(plan, Summarise(window=60_000, summary_tokens=700))
    summaries = [place for place, (_, ask) in enumerate(asks) if ask.is_summary]
    assert agent.tally.summaries == len(summaries) >= 2
    for place in summaries:
        assert asks[place][1].output_tokens == 700
        assert asks[place + 1][0].tokens < asks[place][0].tokens < 60_000


# ---------------------------------------------------------------- what every session must keep

POLICIES = [
    *(Document001(budget=8_000, clear_to=reading) for reading in READINGS),
    Document001(budget=8_000, clear_batch=1, clear_to="budget"),
    SendAll(),
    LastObservations(n=3, polling=2),
    MaskToolOutputs(protect=800, at_least=600),
    DropHalf(window=8_000),
    Summarise(window=8_000, summary_tokens=200),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), turns=st.sampled_from([1, 3]), rounds=st.integers(0, 25))
def test_prompts_are_the_fitted_messages_and_share_what_caches_share(policy, seed, turns, rounds):
    mix = AgentMix(
        count=1,
        turns=turns,
        rounds=rounds,
        head_tokens=300,
        first_tokens=100,
        result_median=400,
        result_p99=2_500,
        answer_median=60,
        answer_p99=400,
        results={"english": 1.0},
        look_back_share=0.2,
        look_back_mean=5,
    )
    (plan,) = mix.plans(seed, 0)
    _, asks = act(plan, policy)
    cache, before = PrefixCache(), Prompt()
    for prompt, ask in asks:
        if ask.is_summary:
            continue
        estimate = ask.fitted.estimate
        # English has 4.955 characters a token and is estimated at 4.
        true = sum(round(m.tokens(ByScript()) * 4 / 4.955) for m in ask.fitted.messages)
        replacement = ask.fitted.replacement
        note = 0 if replacement is None else replacement.tokens(ByScript())  # counted alike by both
        notes = 80 + ask.fitted.shape.cleared * note + ask.fitted.shape.lead
        assert abs(prompt.tokens - true) <= len(ask.fitted.messages) + notes
        assert estimate == sum(m.tokens(ByScript()) for m in ask.fitted.messages)
        hit = cache.use(prompt)
        shared = 0
        for one, other, end, other_end in zip(before.ids, prompt.ids, before.ends, prompt.ends, strict=False):
            if one != other:
                break
            shared = min(end, other_end)
        assert hit >= shared
        if ask.rewritten_tokens == 0 and before.tokens:
            assert shared == before.tokens
        before = prompt


@pytest.mark.parametrize("reading", READINGS)
@given(sizes_of=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900)), min_size=1, max_size=30))
def test_empty_messages_do_not_shift_the_prompt(reading, sizes_of):
    steps = [Step(known(answer), max(answer, 1), known(result)) for answer, result in sizes_of]
    plan = Plan("p", "s", "h", known(50), known(20), [*steps, Step(known(1), 1)])
    _, asks = act(plan, Document001(budget=2_000, clear_to=reading))
    for prompt, ask in asks:
        assert prompt.tokens == sum(m.tokens(ByScript()) for m in ask.fitted.messages)
        assert len(set(prompt.ids)) == len(prompt.ids)


def known(tokens):
    return Part(Known(tokens), tokens)


def test_a_solo_session_adds_up():
    (plan,) = AgentMix(count=1, rounds=20).plans(1, 0)
    result = run_alone(plan, SendAll(), SERVER, [HOSTED_CACHES["none"], HOSTED_CACHES["anthropic-5min"]])
    tally = result.tally
    assert (result.end, tally.requests, len(result.ttft_s)) == (End.FINISHED, 21, 21)
    free, cached = result.accounts
    assert free.sent == free.cost == tally.prompt_tokens
    assert 0.1 * tally.prompt_tokens < cached.cost < tally.prompt_tokens
    new = tally.prompt_tokens - result.hit_tokens
    assert result.prefill_s == pytest.approx(
        1e-4 * new + 0.01 * sum(-(-round(t) // 1) > 0 for t in result.ttft_s), rel=0.2
    )
    assert result.wait_s == pytest.approx(sum(step.wait_s for step in plan.steps))


def test_the_closed_forms_of_a_lone_request():
    assert SERVER.prefill_s(20_000, 0) == pytest.approx(3 * 0.01 + 20_000 * 1e-4)
    assert SERVER.decode_s(3, 1_000) == pytest.approx(3 * 0.01 + (1_000 + 1_001 + 1_002) * 1e-7)
    assert SERVER.decode_s(0, 10) == SERVER.prefill_s(0, 10) == 0


# ---------------------------------------------------------------- hosted caches


def test_hosted_caches_find_what_their_rules_say():
    prompt = Prompt([("head", 2_000), *((n, 100) for n in range(40))])
    openai, anthropic = HOSTED_CACHES["openai"], HOSTED_CACHES["anthropic-5min"]
    assert openai.found(1_023, prompt) == 0
    assert openai.found(1_024 + 2 * 128 + 5, prompt) == 1_024 + 2 * 128
    assert HOSTED_CACHES["deepseek"].found(200, prompt) == 192
    assert anthropic.found(5_950, prompt) == 5_900  # the last segment's end within reach
    assert anthropic.found(3_050, prompt) == 2_000  # more than 20 segments back: only the system prompt's own mark
    assert anthropic.found(1_500, prompt) == 0


def test_bills_add_up():
    account = Account(HOSTED_CACHES["anthropic-5min"])
    prompt = Prompt([("head", 2_000), ("a", 500)])
    assert account.charge(prompt, 0.0) == (0, 2_500, 0, 3_125.0)
    prompt.append("b", 1_000)
    assert account.charge(prompt, 100.0) == (2_500, 1_000, 0, 1_500.0)
    assert account.charge(prompt, 401.0).read == 0  # not used for more than five minutes
    assert account.charge(Prompt([("x", 500)]), 401.0) == (0, 0, 500, 500.0)
    assert (account.sent, account.read) == (2_500 + 3_500 + 3_500 + 500, 2_500)
