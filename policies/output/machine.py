"""One machine for every output policy: it climbs the rungs of a plan, by the moves of one table, without I/O or clock.

The caller sends what the machine says, tells it what came back, and repeats until the decision is not a ``Send``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from policies.output.values import (
    Carried,
    Decision,
    Done,
    ErrorKind,
    Fail,
    FinishReason,
    IllegalMove,
    Kind,
    Outcome,
    Partial,
    Reject,
    Response,
    Retries,
    Send,
    ToolKind,
    ToolUse,
)
from policies.precedence import Precedence, documents
from policies.prompts import SPLIT_WORK, TOO_LONG


class State(Enum):
    """Where a call is: the request in flight, or how the call ended."""

    READY = "ready"
    INITIAL = "initial"
    ESCALATED = "escalated"
    RECOVERING = "recovering"
    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"

    __hash__ = object.__hash__  # singletons; the inherited hash is slow Python code


class Event(Enum):
    """What happened to a call, seen through its plan: what came back and what can follow."""

    START = "there is room: send"
    NO_ROOM = "no room for a useful answer"
    COMPLETE = "complete"
    RAISE = "truncated, a larger cap follows"
    CONTINUE = "truncated, a continuation follows"
    SPENT = "truncated, nothing follows"
    CUT_CALLS = "truncated, with tool calls that must not run"
    ERROR = "error"

    __hash__ = object.__hash__


_ANSWERED = {
    Event.COMPLETE: State.DONE,
    Event.CONTINUE: State.RECOVERING,
    Event.SPENT: State.DONE,
    Event.CUT_CALLS: State.REJECTED,
}

MOVES: Mapping[State, Mapping[Event, State]] = MappingProxyType(
    {
        State.READY: {Event.START: State.INITIAL, Event.NO_ROOM: State.FAILED},
        State.INITIAL: {**_ANSWERED, Event.RAISE: State.ESCALATED, Event.ERROR: State.FAILED},
        State.ESCALATED: {**_ANSWERED, Event.RAISE: State.ESCALATED, Event.ERROR: State.FAILED},
        State.RECOVERING: {**_ANSWERED, Event.ERROR: State.DONE},
        State.DONE: {},
        State.REJECTED: {},
        State.FAILED: {},
    }
)
"""The legal moves, all of them. What a table does not hold raises ``IllegalMove``."""


@dataclass(frozen=True, slots=True)
class Clamp:
    """Keeps prompt and response together inside the model's window.

    Attributes
    ----------
    margin_tokens, margin_share
        Room left free for errors of the prompt estimate: the larger of the tokens and the share of the window.
    floor
        The least room, in tokens, that is worth a request.
    refuse
        Whether less room than the floor refuses the request; else the floor is sent although it does not fit.
    """

    margin_tokens: int = 10_000
    margin_share: float = 0.05
    floor: int = 4_000
    refuse: bool = True

    def room(self, window: int) -> int:
        """Return the tokens of a window that prompt and response may fill."""
        return window - max(self.margin_tokens, round(self.margin_share * window))

    def fit(self, wanted: int, free: int) -> int | None:
        """Return how much of the wanted tokens fits into the free ones, or None to refuse."""
        if wanted <= free:
            return wanted
        least = max(1, self.floor)  # nobody asks for an answer of no tokens
        if free >= least:
            return free
        return None if self.refuse else min(wanted, least)


class Raises(Enum):
    """What an escalation has to raise, so as not to generate the same truncated answer once more."""

    LIMIT = "limit"  # the limit that the response gets
    REQUESTED = "requested"  # the limit asked for, which the model's may clip to the same as before
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a client does beside choosing limits. The defaults keep every invariant.

    Attributes
    ----------
    clamps
        Whether requests are kept inside the window; else what the policy says is sent.
    refuses
        Whether a request with less room than the floor is refused; else the floor is sent although it does not fit.
    raises
        What an escalation has to raise to be sent.
    ceiling_follows
        Whether a recovery asks for at most what the request before it did.
    precedence
        What values of user and environment override the policy.
    keep_partial
        Whether the truncated answer stays in the history until the escalated one is in.
    continue_calls
        Whether a truncated answer with tool calls is continued (the calls then have no results, which servers refuse).
    after_failed_recovery
        The finish reason that a call reports whose recovery failed.
    never_run
        Kinds of tools that never run from a truncated answer.
    run_cut
        Whether calls of the other kinds run although their arguments are incomplete (after a repair).
    empty_is_truncated
        Requests whose empty answer with finish reason length counts as truncated; any other empty answer is an error.
    retried
        Which transient errors of escalations and recoveries are met by sending again, where the policy has them
        retried.
    """

    clamps: bool = True
    refuses: bool = True
    raises: Raises = Raises.LIMIT
    ceiling_follows: bool = False
    precedence: Precedence = documents
    keep_partial: bool = True
    continue_calls: bool = False
    after_failed_recovery: FinishReason = FinishReason.LENGTH
    never_run: frozenset[ToolKind] = frozenset({ToolKind.EDIT, ToolKind.EXECUTE, ToolKind.OTHER})
    run_cut: bool = False
    empty_is_truncated: frozenset[Kind] = frozenset({Kind.INITIAL})
    retried: Retries = Retries.REFUSED

    def runs(self, call: ToolUse) -> bool:
        """Whether a tool call of a truncated answer runs."""
        return call.kind not in self.never_run and (call.complete or self.run_cut)


@dataclass(frozen=True, slots=True)
class Plan:
    """The requests of a call, should every answer be truncated.

    Attributes
    ----------
    rungs
        What is sent first, second and so on; escalations come before recoveries.
    rules
        What the client does beside choosing limits.
    clamp
        What keeps a request inside the room.
    room
        Tokens that prompt and response may fill together; None if nothing bounds them.
    """

    rungs: tuple[Send, ...]
    rules: Rules
    clamp: Clamp
    room: int | None


# Of every call: to look a member up in its enumeration takes as long as ten of the machine's other lines.
_READY, _START, _ENDED, _LENGTH = State.READY, Event.START, Event.COMPLETE, FinishReason.LENGTH
_COMPLETE = {finish: Done(Outcome.COMPLETE, finish) for finish in FinishReason}
_SPENT = Done(Outcome.TRUNCATED, FinishReason.LENGTH)
_NOTICES = {ErrorKind.TOO_LONG: TOO_LONG, ErrorKind.NO_ROOM: TOO_LONG}


def _next(state: State, event: Event) -> State:
    try:
        return MOVES[state][event]
    except KeyError:
        legal = ", ".join(move.name for move in MOVES[state]) or "none, the call has ended"
        raise IllegalMove(f"{event.name} is no legal move of a call that is {state.name}; legal: {legal}") from None


class Machine:
    """One call on its way through a plan.

    Parameters
    ----------
    plan
        The requests, should every answer be truncated.
    prompt_tokens
        The client's estimate of the prompt.
    """

    __slots__ = ("_last", "_plan", "_prompt", "_rung", "_state")

    def __init__(self, plan: Plan, prompt_tokens: int) -> None:
        self._plan = plan
        self._prompt = prompt_tokens
        self._state = _READY
        self._rung = 0
        self._last = plan.rungs[0]

    @property
    def state(self) -> State:
        """Where the call is."""
        return self._state

    def first(self) -> Send | Fail:
        """Return the first request, or the refusal to send one that leaves no room for a useful answer.

        Raises
        ------
        IllegalMove
            If it was asked for before.
        """
        send = self._fit(self._plan.rungs[0], self._prompt)
        if send is None:
            self._state = _next(self._state, Event.NO_ROOM)
            return Fail(ErrorKind.NO_ROOM, notice=TOO_LONG, alert=False)
        self._state = _next(self._state, _START)
        self._last = send
        return send

    def trouble(self, response: Response) -> ErrorKind | None:
        """Return the error that a response amounts to, which a retry may mend; None for an answer, truncated or not."""
        if response.error is None and response.empty:
            truncated = response.finish is FinishReason.LENGTH
            return None if truncated and self._last.kind in self._plan.rules.empty_is_truncated else ErrorKind.EMPTY
        return response.error

    def after(self, response: Response) -> Decision:
        """Return what to do after a response.

        Raises
        ------
        IllegalMove
            If no request is in flight; the state is unchanged.
        """
        if response.error is not None or response.empty:
            trouble = self.trouble(response)
            if trouble is not None:
                return self._failed(response, trouble)
        if response.finish is _LENGTH or (
            response.tool_calls and not all(call.complete for call in response.tool_calls)
        ):  # a provider may say `stop` or `tool_calls` although a call's arguments are cut
            return self._truncated(response)
        self._state = _next(self._state, _ENDED)
        return _COMPLETE[response.finish]

    def _failed(self, response: Response, error: ErrorKind) -> Decision:
        before = self._state
        rules = self._plan.rules
        self._state = _next(before, Event.ERROR)
        if before is State.RECOVERING:
            return Done(Outcome.PARTIAL, rules.after_failed_recovery, error=error)
        if before is State.ESCALATED:
            partial = Partial.KEPT if rules.keep_partial else Partial.LOST
        else:
            partial = Partial.KEPT if response.output_tokens and rules.keep_partial else Partial.NONE
        notice = _NOTICES.get(error, "")
        return Fail(error, partial, notice, alert=not notice)

    def _truncated(self, response: Response) -> Decision:
        rules = self._plan.rules
        prompt = self._prompt if response.prompt_tokens is None else response.prompt_tokens
        for index, rung in enumerate(self._plan.rungs[self._rung + 1 :], start=self._rung + 1):
            if rung.kind is Kind.ESCALATION:
                send = self._fit(rung, prompt)
                if send is None or not self._raises(send):
                    continue
                return self._climb(Event.RAISE, index, send, prompt)
            if response.empty or (response.tool_calls and not rules.continue_calls):
                break
            grown = response.continued_tokens
            if grown is None:
                grown = prompt + response.output_tokens + rung.message_tokens
            send = self._fit(_at_most(rung, self._last) if rules.ceiling_follows else rung, grown)
            if send is None:
                break
            return self._climb(Event.CONTINUE, index, send, grown)
        return self._spent(response.tool_calls)

    def _climb(self, event: Event, index: int, send: Send, prompt: int) -> Send:
        self._state = _next(self._state, event)
        self._rung, self._last, self._prompt = index, send, prompt
        return send

    def _raises(self, send: Send) -> bool:
        what = self._plan.rules.raises
        if what is Raises.LIMIT:
            return send.max_tokens > self._last.max_tokens
        return what is Raises.NOTHING or send.requested > self._last.requested

    def _spent(self, calls: tuple[ToolUse, ...]) -> Decision:
        if not calls:
            self._state = _next(self._state, Event.SPENT)
            return _SPENT
        run = tuple(call for call in calls if self._plan.rules.runs(call))
        rejected = tuple(call for call in calls if not self._plan.rules.runs(call))
        self._state = _next(self._state, Event.CUT_CALLS if rejected else Event.SPENT)
        if rejected:
            return Reject(rejected, SPLIT_WORK, run)
        return Done(Outcome.TRUNCATED, FinishReason.LENGTH, run)

    def _fit(self, rung: Send, prompt: int) -> Send | None:
        if self._plan.room is None:
            return rung
        free = self._plan.room - prompt
        if rung.requested <= free:
            return rung
        fitted = self._plan.clamp.fit(rung.max_tokens, free)
        return None if fitted is None else replace(rung, max_tokens=fitted, requested=max(fitted, free))


def initial(max_tokens: int) -> Send:
    """Return the request that opens a call."""
    return Send(max_tokens, max_tokens, Kind.INITIAL, Carried.SAME)


def escalation(max_tokens: int, retry: Retries = Retries.NONE) -> Send:
    """Return the request that leaves the truncated answer out and generates it again under a larger limit."""
    return Send(max_tokens, max_tokens, Kind.ESCALATION, Carried.DROP_PARTIAL, retry=retry)


def recovery(max_tokens: int, message_tokens: int, retry: Retries = Retries.NONE) -> Send:
    """Return the request that keeps the truncated answer and asks the model to go on from there."""
    return Send(max_tokens, max_tokens, Kind.RECOVERY, Carried.KEEP_PARTIAL, True, message_tokens, retry)


def _at_most(rung: Send, last: Send) -> Send:
    max_tokens, requested = min(rung.max_tokens, last.max_tokens), min(rung.requested, last.requested)
    return rung if requested == rung.requested else replace(rung, max_tokens=max_tokens, requested=requested)
