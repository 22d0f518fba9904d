"""Prompts as caches see them: the messages that the policy sends, and what consecutive ones share."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.context import CutUserTurns, Document001, DropHalf, LastObservations, Refused, SendAll, Summarise
from policies.messages import History, Known, ToolCall, assistant, system, tool_result, user
from sim.sessions.transcript import Transcript

POLICIES = [
    *(Document001(budget=3_000, clear_to=reading) for reading in ("budget", "protected", "protected-hold")),
    Document001(budget=3_000, clear_batch=1, clear_to="budget", protect_share=0.5),
    CutUserTurns(budget=2_000),
    LastObservations(n=2, polling=3),
    DropHalf(window=3_000),
    Summarise(window=3_000, summary_tokens=200),
    SendAll(),
]


def shown(fitted):
    """Return what is sent, message by message: (what it is, its tokens)."""
    shape, counts, out = fitted.shape, SendAll().counts, []
    for at, message in enumerate(fitted.history):
        if shape.start and at == shape.head:
            out.append((("left out", shape.start), shape.lead))
        if not shape.start or at < shape.head or at >= shape.start:
            cleared = fitted.is_cleared(at)
            out.append(((at, cleared), (fitted.replacement if cleared else message).tokens(counts)))
    return [(what, tokens) for what, tokens in out if tokens]


def shared(one, other):
    """Return the tokens of the longest common beginning."""
    tokens = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        tokens += left[1]
    return tokens


def segments(prompt):
    sizes = [end - begin for begin, end in zip([0, *prompt.ends], prompt.ends, strict=False)]
    return list(zip(prompt.ids, sizes, strict=True))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@settings(max_examples=40)
@given(
    rounds=st.lists(
        st.tuples(st.integers(0, 250), st.one_of(st.none(), st.integers(0, 900)), st.booleans()), max_size=40
    )
)
def test_prompts_share_what_their_messages_share(policy, rounds):
    history = History((system(Known(100)), user(Known(50))))
    transcript = Transcript("t")
    transcript.say(100, "head")
    transcript.say(50)
    plain, prompt, sent = [], [], 0
    for number, (said, result, kept) in enumerate([*rounds, (0, None, False)]):
        fitted = policy.fit(history)
        if isinstance(fitted, Refused):
            return
        note = 0 if fitted.replacement is None else fitted.replacement.tokens(policy.counts)
        unchanged = transcript.unchanged
        if fitted.shape == transcript.shape:
            transcript.go_on()
            rewritten = 0
            assert transcript.prompt.tokens == unchanged
        else:
            rewritten = transcript.change(fitted, note)
        before, plain, earlier, prompt = plain, shown(fitted), prompt, segments(transcript.prompt)
        assert [tokens for _, tokens in prompt] == [tokens for _, tokens in plain]
        assert shared(earlier, prompt) == shared(before, plain)
        again = sum(tokens for (what, *_), tokens in plain if what == "left out" or what < sent)
        if before:
            assert rewritten == again - shared(before, plain)
        calls = () if result is None else (ToolCall(str(number)),)
        history = history.append(assistant(Known(said), *calls))
        transcript.say(said)
        sent = len(history) if kept else len(history) - 1
        if kept:
            transcript.go_on()
            prompt = segments(transcript.prompt)
            plain = [*plain, ((len(history) - 1, False), said)] if said else plain
        if result is None:
            history = history.append(user(Known(30)))
            transcript.say(30)
        else:
            history = history.append(tool_result(str(number), Known(result)))
            transcript.say(result)
