"""Context policies: the document's three readings against a plain rewriting of its text, and what holds for all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.context import (
    CONTEXT_POLICIES,
    BadConstants,
    ClearToolUses,
    CutUserTurns,
    Document001,
    DropHalf,
    Fitted,
    KeepSix,
    LangChainClearToolUses,
    LastObservations,
    MaskToolOutputs,
    PruneOldTurns,
    Refused,
    SendAll,
    Summarise,
    SummariseAll,
)
from policies.messages import History, HistoryError, Known, Role, ToolCall, assistant, system, tool_result, user
from policies.prompts import CLEARED_RESULT, DROPPED_MESSAGES, TOO_LONG
from policies.tokens import ByScript

NOTE = user(CLEARED_RESULT).tokens(ByScript())
DROPPED = user(DROPPED_MESSAGES).tokens(ByScript())
BUDGET = 2_000
READINGS = ("budget", "protected", "protected-hold")


def rounds(*sizes, text=1):
    """Return tool rounds with results of these sizes."""
    out = []
    for number, size in enumerate(sizes):
        name = f"c{number}-{size}"
        out += [assistant(Known(text), ToolCall(name, "read")), tool_result(name, Known(size))]
    return out


@st.composite
def conversations(draw, largest=700, users=True):
    """Draw a history of user messages, answers and tool rounds, some with several calls."""
    messages = [system(Known(draw(st.integers(0, 50))))] if draw(st.booleans()) else []
    messages.append(user(Known(draw(st.integers(1, 100)))))
    for number in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(["round", "round", "round", "round", "answer", "user" if users else "round"]))
        if kind == "user":
            messages.append(user(Known(draw(st.integers(1, 300)))))
        elif kind == "answer":
            messages.append(assistant(Known(draw(st.integers(1, 300)))))
        else:
            calls = [
                ToolCall(f"{number}.{n}", draw(st.sampled_from(["read", "skill"])))
                for n in range(draw(st.sampled_from([1, 1, 2])))
            ]
            messages.append(assistant(Known(draw(st.integers(0, 40))), *calls))
            messages += [tool_result(call.id, Known(draw(st.integers(0, largest)))) for call in calls]
    return History(messages)


def whole_prefixes(history):
    """Yield every beginning of a history that could be sent."""
    grown = History()
    for message in history:
        grown = grown.append(message)
        if not grown.open:
            yield grown


def tokens(messages):
    return sum(message.tokens(ByScript()) for message in messages)


def plainly_cleared(policy, messages):
    """Return the places of cleared results, as the document's text says it, from nothing but the messages."""
    results = [at for at, message in enumerate(messages) if message.role is Role.TOOL]
    protected, total = set(), 0
    for at in reversed(results):
        total += messages[at].tokens(ByScript())
        if protected and total > policy.protect_share * policy.budget:
            break
        protected.add(at)
    clearable = [
        at for at in results if at not in protected and messages[at].tokens(ByScript()) > policy.barely_larger * NOTE
    ]

    def sent(cleared):
        return sum(NOTE if at in cleared else m.tokens(ByScript()) for at, m in enumerate(messages))

    batches = [
        set(clearable[: n + policy.clear_batch])
        for n in range(0, len(clearable) - policy.clear_batch + 1, policy.clear_batch)
    ]
    if policy.clear_to == "budget":
        for cleared in [set(), *batches, set(clearable)]:
            if sent(cleared) <= policy.budget:
                return cleared
        return set(clearable)
    held = set()
    if policy.clear_to == "protected-hold":
        earlier = [at for at, message in enumerate(messages) if message.role is Role.ASSISTANT]
        if earlier:
            held = plainly_cleared(policy, messages[: earlier[-1]])
    if sent(held) <= policy.budget:
        return held
    full = held | (batches[-1] if batches else set())
    return full if sent(full) <= policy.budget else full | set(clearable)


def plainly_sent(policy, history):
    """Return (stage, messages) as the document's text says it, or None for a refusal."""
    messages = list(history)
    cleared = plainly_cleared(policy, messages)
    shown = [
        message.saying(user(CLEARED_RESULT).content) if at in cleared else message
        for at, message in enumerate(messages)
    ]
    if tokens(shown) <= policy.budget:
        return (1 if cleared else 0), shown
    head = 0
    while head < len(messages) and messages[head].role is Role.SYSTEM:
        head += 1
    head += head < len(messages) and messages[head].role is Role.USER
    turns = [at for at in range(head, len(messages)) if messages[at].role is Role.USER]
    units = [at for at in range(head, len(messages)) if messages[at].role is not Role.TOOL]
    for stage, starts in ((2, turns), (3, units)):
        for start in starts:
            kept = [*shown[:head], user(DROPPED_MESSAGES), *shown[start:]]
            if tokens(kept) <= policy.budget:
                return stage, kept
    return None


def document(**constants):
    return Document001(budget=BUDGET, **constants)


@given(
    history=conversations(),
    reading=st.sampled_from(READINGS),
    batch=st.sampled_from([1, 2, 4]),
    share=st.sampled_from([0.0, 0.25, 0.6, 1.0]),
)
def test_the_document_read_plainly(history, reading, batch, share):
    policy = document(clear_to=reading, clear_batch=batch, protect_share=share)
    for prefix in whole_prefixes(history):
        answer, plain = policy.fit(prefix), plainly_sent(policy, prefix)
        if plain is None:
            assert isinstance(answer, Refused)
            assert answer.notice == TOO_LONG
            assert answer.estimate > BUDGET
        else:
            assert isinstance(answer, Fitted)
            assert (answer.stage, list(answer.messages)) == plain
            assert len(answer.messages) == len(plain[1])
            assert answer.estimate == tokens(plain[1]) <= BUDGET
            assert tokens(prefix) - answer.cleared_tokens - answer.dropped_tokens == answer.estimate
            assert answer.cleared == sum(m.content == user(CLEARED_RESULT).content for m in plain[1])


POLICIES = [
    *(document(clear_to=reading) for reading in READINGS),
    document(clear_batch=1, clear_to="budget", protect_share=0.5),
    KeepSix(budget=BUDGET),
    CutUserTurns(budget=BUDGET),
    SendAll(),
    ClearToolUses(trigger=1_000, clear_at_least=300, exclude_tools=("skill",)),
    LangChainClearToolUses(trigger=1_000),
    MaskToolOutputs(protect=500, at_least=300, preview=10),
    PruneOldTurns(protect=400, more_than=200),
    LastObservations(n=3, polling=2),
    DropHalf(window=2_500),
    Summarise(window=2_500, summary_tokens=100),
    SummariseAll(window=2_000, summary_tokens=100, keep_user_tokens=150),
]
EVERY = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{type(policy).__name__}")


@EVERY
@settings(max_examples=30)
@given(history=conversations())
def test_calls_stay_with_their_results_and_the_history_as_it_was(policy, history):
    before = list(history)
    for prefix in whole_prefixes(history):
        answer = policy.fit(prefix)
        if isinstance(answer, Fitted):
            sent = History(answer.messages)  # raises where a call and its result were separated
            sent.check_complete()
            assert tokens(sent) == answer.estimate
            assert sent[: history.head] == before[: prefix.head]
    assert list(history) == before


@EVERY
@settings(max_examples=30)
@given(history=conversations(), order=st.randoms(use_true_random=False))
def test_a_fit_does_not_depend_on_how_the_history_got_there(policy, history, order):
    prefixes = list(whole_prefixes(history))
    fresh = [replace(policy).fit(History(prefix)) for prefix in prefixes]
    places = list(range(len(prefixes)))
    order.shuffle(places)
    for place in places:
        answer = policy.fit(prefixes[place])
        if isinstance(answer, Refused):
            assert answer == fresh[place]
        else:
            assert (answer.estimate, answer.stage, answer.shape) == (
                fresh[place].estimate,
                fresh[place].stage,
                fresh[place].shape,
            )
            assert list(answer.messages) == list(fresh[place].messages)


@EVERY
@settings(max_examples=30)
@given(history=conversations(largest=40))
def test_nothing_changes_below_every_limit(policy, history):
    for prefix in whole_prefixes(history):
        if tokens(prefix) <= 150:
            answer = policy.fit(prefix)
            if not isinstance(policy, LastObservations):  # the one that clears whatever the size
                assert answer.messages is prefix


@pytest.mark.parametrize("reading", READINGS)
@settings(max_examples=40)
@given(history=conversations())
def test_what_was_cleared_is_never_sent_whole_again(reading, history):
    policy = document(clear_to=reading)
    gone = set()
    for prefix in whole_prefixes(history):
        answer = policy.fit(prefix)
        if isinstance(answer, Refused):
            continue
        sent = {message.answers: message for message in answer.messages if message.role is Role.TOOL}
        cleared = {name for name, message in sent.items() if message.content == user(CLEARED_RESULT).content}
        assert not gone & (sent.keys() - cleared)
        gone |= cleared


@pytest.mark.parametrize("reading", READINGS)
@settings(max_examples=40)
@given(history=conversations(), share=st.sampled_from([0.1, 0.25, 0.9]))
def test_clearing_never_touches_the_protected_run(reading, history, share):
    policy = document(clear_to=reading, protect_share=share)
    for prefix in whole_prefixes(history):
        answer = policy.fit(prefix)
        if isinstance(answer, Refused):
            continue
        total = seen = 0
        for at in range(len(prefix) - 1, -1, -1):
            if prefix[at].role is Role.TOOL:
                total += prefix[at].tokens(ByScript())
                if seen and total > share * BUDGET:
                    break
                seen += 1
                assert not answer.is_cleared(at)


def test_a_history_with_an_open_call_is_not_fitted():
    history = History([user("u"), assistant("", ToolCall("c"))])
    for policy in POLICIES:
        with pytest.raises(HistoryError, match="has no result"):
            policy.fit(history)


def test_hold_waits_until_the_sent_request_is_over():
    policy = document()  # protected: 500 tokens
    history = History([user(Known(10)), *rounds(*[200] * 9, text=0)])
    assert policy.fit(history).stage == 0
    history = History([*history, *rounds(190, text=0)])  # 2,000 tokens
    assert policy.fit(history).stage == 0
    history = History([*history, *rounds(1, text=0)])
    first = policy.fit(history)
    assert (first.stage, first.cleared) == (1, 8)
    for number in range(5):
        history = history.append(assistant(Known(0), ToolCall(str(number)))).append(
            tool_result(str(number), Known(200))
        )
        assert policy.fit(history).shape == first.shape


def test_protected_clears_a_batch_more_whenever_one_leaves_the_quarter():
    policy = document(clear_to="protected")
    history = History([user(Known(10)), *rounds(*[200] * 11, text=0)])
    seen = []
    for number in range(8):
        seen.append(policy.fit(history).cleared)
        history = history.append(assistant(Known(0), ToolCall(str(number)))).append(
            tool_result(str(number), Known(200))
        )
    assert seen == [8, 8, 8, 12, 12, 12, 12, 16]


def test_budget_clears_as_little_as_it_needs():
    policy = document(clear_to="budget")
    assert policy.fit(History([user(Known(10)), *rounds(*[200] * 10, text=0)])).cleared == 4


def test_a_refusal_says_why():
    answer = document().fit(History([user(Known(10)), assistant(Known(3_000))]))
    assert isinstance(answer, Refused)
    assert answer.reason == (
        "the budget of 2,000 tokens cannot hold the first message, the note and the newest round: "
        f"{3_010 + DROPPED:,} tokens"
    )
    alone = document().fit(History([user(Known(2_001))]))
    assert alone.reason == "the budget of 2,000 tokens cannot hold the first message: 2,001 tokens"


def test_cut_user_turns_has_nowhere_to_cut_a_sub_agent():
    policy = CutUserTurns(budget=BUDGET)
    long_turn = [user(Known(10)), *rounds(*[500] * 5)]
    answer = policy.fit(History(long_turn))
    assert (answer.over, answer.stage, len(answer.messages)) == (True, 0, 11)
    answer = policy.fit(History([*long_turn, user(Known(20)), *rounds(70)]))
    assert (answer.over, answer.stage, answer.estimate) == (False, 2, 10 + DROPPED + 20 + 71)


@pytest.mark.parametrize(("polling", "cleared"), [(1, [0, 0, 0, 0, 0, 1, 2, 3, 4]), (3, [0, 0, 0, 0, 0, 1, 1, 1, 4])])
def test_last_observations(polling, cleared):
    policy = LastObservations(n=5, polling=polling)
    seen = [policy.fit(History([user("u"), *rounds(*[100] * n)])).cleared for n in range(1, 10)]
    assert seen == cleared


def test_clear_tool_uses_holds_and_langchain_slides():
    sizes = [100] * 12
    history = History([user(Known(10)), *rounds(*sizes, text=0)])
    held, sliding = ClearToolUses(trigger=1_000), LangChainClearToolUses(trigger=1_000)
    assert (held.fit(history).cleared, sliding.fit(history).cleared) == (7, 9)
    assert ClearToolUses(trigger=1_000, clear_at_least=5_000).fit(history).cleared == 0
    assert ClearToolUses(trigger=1_000, exclude_tools=("read",)).fit(history).cleared == 0


def test_masking_waits_for_enough_beyond_the_newest():
    policy = MaskToolOutputs(protect=250, at_least=300, preview=10)
    seen = [policy.fit(History([user("u"), *rounds(*[100] * n)])).cleared for n in range(1, 10)]
    assert seen == [0, 0, 0, 0, 3, 3, 3, 6, 6]


def test_pruning_skips_the_last_two_turns():
    policy = PruneOldTurns(protect=100, more_than=150)
    messages = []
    seen = []
    for turn in range(6):
        messages += [user("u"), *rounds(100 + turn, 50 + turn)]
        seen.append(policy.fit(History(messages)).cleared)
    assert seen == [0, 0, 0, 0, 3, 5]


def test_halving_keeps_the_first_pair():
    history = History([user(Known(10)), *rounds(*[300] * 5)])
    answer = DropHalf(window=1_500).fit(history)
    assert (answer.stage, answer.dropped) == (2, 4)
    assert [message.role.value for message in answer.messages][:4] == ["user", "assistant", "tool", "user"]
    assert DropHalf(window=200_000).limit == 160_000
    assert DropHalf(window=1_000_000).limit == 960_000


def test_a_summary_costs_a_request_once():
    policy = Summarise(window=2_000, summary_tokens=100)
    history = History([user(Known(10)), *rounds(*[200] * 7, text=0)])
    answer = policy.fit(history)
    assert (answer.summary.prompt_tokens, answer.summary.output_tokens) == (1_410, 100)
    assert answer.estimate == 10 + 100 + 400
    after = policy.fit(History([*history, assistant(Known(50))]))
    assert (after.summary, after.estimate) == (None, 560)
    everything = SummariseAll(window=1_500, summary_tokens=100, keep_user_tokens=50)
    assert everything.fit(history).estimate == 110


def test_constants_out_of_range_are_named_together():
    with pytest.raises(BadConstants, match=r"budget: 0.*clear_batch: 0.*clear_to: no 'x'.*estimator: no 'y'"):
        Document001(budget=0, clear_batch=0, clear_to="x", estimator="y")


def test_the_table_builds_every_policy_with_its_defaults():
    history = History([user("u"), *rounds(*[9_000] * 60)])
    for name, policy in CONTEXT_POLICIES.items():
        answer = policy().fit(history)
        assert isinstance(answer, Fitted), name
        assert (answer.estimate < 540_000) == (name not in ("none", "cut-user-turns", "opencode-prune")), name
