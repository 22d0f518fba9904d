"""What holds for every policy and every sequence of answers; and which real clients break what of it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from policies.exchange import Answer, Exchange, Finished, Request, Requested
from policies.limits import lookup
from policies.messages import Role, user
from policies.output import (
    POLICIES,
    Call,
    Done,
    ErrorKind,
    Fail,
    FinishReason,
    IllegalMove,
    Kind,
    Oracle,
    Outcome,
    Partial,
    Reject,
    State,
    ToolKind,
)
from policies.profiles import PROFILES
from policies.prompts import RECOVERY

CALLS = st.builds(
    Call,
    model=st.sampled_from(["", "gpt-5", "gpt-4.1", "gemini-2.5-pro", "qwen3-32b", "claude-opus-4.6", "deepseek-v4"]),
    window=st.none() | st.integers(1_000, 400_000),
    output_limit=st.none() | st.integers(1, 200_000),
    prompt_tokens=st.integers(0, 300_000),
    user_max_tokens=st.none() | st.integers(-1, 300_000),
    env_max_tokens=st.none() | st.sampled_from(["", "abc", "0", "12abc", "16000"]),
    calls_since_escalation=st.none() | st.integers(0, 5),
)
TOOL_CALLS = st.lists(
    st.builds(
        Requested,
        id=st.uuids().map(str),
        name=st.just("tool"),
        arguments=st.sampled_from(["{}", '{"a": 1}', '{"a": "cut', ""]),
        kind=st.sampled_from(ToolKind),
    ),
    max_size=3,
    unique_by=lambda call: call.id,
).map(tuple)
FULL, SHORT = st.just(1.0), st.floats(0, 1)
ANSWERS = st.one_of(
    st.builds(
        Answer,
        text=st.text("ab|\n", max_size=20),
        reasons=st.booleans(),
        calls=TOOL_CALLS,
        finish=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.LENGTH, FinishReason.TOOL_CALLS]),
        output_tokens=st.integers(0, 200_000),
    ),
    st.builds(Answer, text=st.text("ab", max_size=3), error=st.sampled_from(ErrorKind)),
)


def room(window: int) -> int:
    return window - max(10_000, round(0.05 * window))


@dataclass
class Observed:
    """One call under observation; ``broken`` names the invariants that it has broken so far."""

    policy: object
    call: Call
    exchange: Exchange = None
    now: Request | Finished = None
    sent: list = field(default_factory=list)
    answers: list = field(default_factory=list)
    answered: int = 0
    prompt: int = 0
    window: int = None
    broken: set = field(default_factory=set)

    def __post_init__(self) -> None:
        oracle = isinstance(self.policy, Oracle)
        machine = self.policy.begin(self.call, true_tokens=1_234) if oracle else self.policy.begin(self.call)
        self.exchange = Exchange([user("question")], machine)
        self.prompt = self.call.prompt_tokens
        self.window = (
            lookup(self.policy.table, self.call.model).window if self.call.window is None else self.call.window
        )
        self._hear(self.exchange.first())

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.answered += answer.error is None
        self._hear(self.exchange.after(answer))

    def _hear(self, heard: Request | Finished) -> None:
        self.now = heard
        self._request(heard) if isinstance(heard, Request) else self._end(heard)

    def _breaks(self, name: str, broken: bool) -> None:
        if broken:
            self.broken.add(name)

    def _request(self, request: Request) -> None:
        send = request.send
        if self.sent:
            before, last = self.sent[-1], self.answers[-1]
            if send.kind is Kind.ESCALATION:
                self._breaks("an escalation raises the limit", send.max_tokens <= before.max_tokens)
            else:
                self.prompt += last.response.output_tokens + send.message_tokens
                squeezed = self.window is not None and send.max_tokens == room(self.window) - self.prompt
                self._breaks("a recovery lowers no limit", send.max_tokens < before.max_tokens and not squeezed)
                self._breaks("no call goes without its result", bool(last.calls))
        if self.window is not None:
            self._breaks("the request fits the window", self.prompt + send.max_tokens > self.window)
        self.sent.append(send)
        self._breaks("at most five answers", len(self.sent) > 5)

    def _end(self, end: Finished) -> None:
        last = self.answers[-1] if self.answers else Answer()
        texts = [message.content.text for message in end.appended if message.role is not Role.TOOL]
        roles = [message.role for message in end.appended]
        self._breaks("no recovery message stays", RECOVERY in texts or Role.USER in roles)
        run, received = {call.id for call in end.run}, {call.id for call in last.calls}
        self._breaks("no call of a dropped attempt runs", not run <= received)
        if isinstance(end.decision, Fail):
            kept = not any(answer.text for answer in self.answers) or (
                end.decision.partial is Partial.KEPT and end.text in [answer.text for answer in self.answers]
            )
            self._breaks("no partial is lost on an error", not kept)
        else:
            whole = end.decision.outcome is Outcome.COMPLETE if isinstance(end.decision, Done) else False
            acts = any(call.kind is not ToolKind.READ or not call.complete for call in end.run)
            self._breaks("a truncated answer acts on nothing", not whole and acts)
            if isinstance(end.decision, Done):
                hidden = not whole and end.decision.finish is not FinishReason.LENGTH
                self._breaks("a truncation is told", hidden)
            called = {call.id for message in end.appended for call in message.calls}
            results = {message.answers for message in end.appended if message.role is Role.TOOL}
            if not whole or self.exchange.machine.state is State.REJECTED:
                self._breaks("every call is run or answered", called != results | {call.id for call in end.run})


NAMES = sorted(POLICIES)
DEFECTS = {
    "seed-2026": {
        "an escalation raises the limit",
        "the request fits the window",
        "no partial is lost on an error",
        "no call goes without its result",
        "a truncated answer acts on nothing",
    },
    "qwen-code-0.15": {
        "an escalation raises the limit",
        "the request fits the window",
        "no partial is lost on an error",
        "a truncated answer acts on nothing",
        "a truncation is told",
    },
    "qwen-code-0.24": {
        "an escalation raises the limit",
        "the request fits the window",
        "no partial is lost on an error",
        "a truncated answer acts on nothing",
        "a truncation is told",
    },
}


def stateful(policy):
    class Conversation(RuleBasedStateMachine):
        """Answers of every kind in every order, and illegal moves in between."""

        @initialize(call=CALLS)
        def begin(self, call: Call) -> None:
            self.seen = Observed(policy, call)

        @precondition(lambda self: isinstance(self.seen.now, Request))
        @rule(answer=ANSWERS)
        def answer(self, answer: Answer) -> None:
            self.seen.answer(answer)

        @precondition(lambda self: isinstance(self.seen.now, Request))
        @rule(calls=TOOL_CALLS)
        def fill_the_limit(self, calls) -> None:
            limit = self.seen.sent[-1].max_tokens
            self.seen.answer(Answer("text", calls=calls, finish=FinishReason.LENGTH, output_tokens=limit))

        @precondition(lambda self: isinstance(self.seen.now, Finished))
        @rule(answer=ANSWERS)
        def answer_after_the_end(self, answer: Answer) -> None:
            self.refused(lambda: self.seen.exchange.after(answer))

        @rule()
        def begin_again(self) -> None:
            self.refused(self.seen.exchange.first)

        def refused(self, move) -> None:
            before = self.seen.exchange.machine.state
            with pytest.raises(IllegalMove):
                move()
            assert self.seen.exchange.machine.state is before

        @invariant()
        def nothing_is_broken(self) -> None:
            assert not getattr(self, "seen", None) or not self.seen.broken

    return Conversation


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_keeps_every_invariant(name: str) -> None:
    run_state_machine_as_test(stateful(POLICIES[name]()), settings=settings(max_examples=60, stateful_step_count=8))


def broken_by(policy, call: Call, answers: list[Answer]) -> set[str]:
    seen = Observed(policy, call)
    for answer in answers:
        if isinstance(seen.now, Finished):
            break
        seen.answer(answer)
    return seen.broken


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_profiles_break_nothing_else(name: str) -> None:
    @settings(max_examples=80)
    @given(CALLS, st.lists(ANSWERS, min_size=5, max_size=5))
    def check(call: Call, answers: list[Answer]) -> None:
        assert broken_by(PROFILES[name].policy, call, answers) <= DEFECTS.get(name, set())

    check()


def cut(text: str = "a", *calls: Requested) -> Answer:
    return Answer(text, calls=calls, finish=FinishReason.LENGTH, output_tokens=8_000)


SHELL = Requested("1", "shell", "{}", ToolKind.EXECUTE)
FAILED = Answer(error=ErrorKind.SERVER)
WITNESSES = {
    "an escalation raises the limit": (Call(output_limit=4_000), [cut()]),
    "the request fits the window": (Call(window=10_000, prompt_tokens=9_000), []),
    "no partial is lost on an error": (Call(), [cut(), FAILED]),
    "no call goes without its result": (Call(), [cut(), cut("a", SHELL)]),
    "a truncated answer acts on nothing": (Call(user_max_tokens=100), [cut("a", SHELL)]),
    "a truncation is told": (Call(), [cut(), cut(), FAILED]),
}


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("invariant_name", WITNESSES)
def test_real_clients_break_these(name: str, invariant_name: str) -> None:
    call, answers = WITNESSES[invariant_name]
    broken = broken_by(PROFILES[name].policy, call, answers)
    assert (invariant_name in broken) == (invariant_name in DEFECTS[name])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("invariant_name", WITNESSES)
def test_ours_do_not(name: str, invariant_name: str) -> None:
    call, answers = WITNESSES[invariant_name]
    assert not broken_by(POLICIES[name](), call, answers)


def test_a_rejected_call_is_answered_in_the_history() -> None:
    seen = Observed(POLICIES["fixed"](), Call())
    read, write = Requested("2", "ls", "{}", ToolKind.READ), Requested("3", "write", '{"x', ToolKind.EDIT)
    seen.answer(cut("a", SHELL, read, write))
    end = seen.now
    assert isinstance(end.decision, Reject)
    assert [message.answers for message in end.appended] == [None, "1", "3"]
    assert [call.arguments.text for call in end.appended[0].calls] == ["{}", "{}", "{}"]
    assert [call.id for call in end.run] == ["2"]
