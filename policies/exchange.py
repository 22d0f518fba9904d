"""One call with its history: what each request carries, and what the history holds when the call is over.

The machine of an output policy sees tokens and finish reasons; an exchange adds the messages. Like the machine it
does no I/O: the caller sends what it says and tells it the answer. The history given is never changed; what is to be
appended comes back at the end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from policies import merge
from policies.messages import Message, Text, ToolCall, assistant, tool_result, user
from policies.output import (
    Decision,
    Done,
    ErrorKind,
    Fail,
    FinishReason,
    Kind,
    Machine,
    Outcome,
    Partial,
    Reject,
    Response,
    Send,
    ToolKind,
    ToolUse,
)
from policies.prompts import RECOVERY

UNKNOWN = ToolKind.OTHER
"""What a tool is whose kind nobody told."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A tool call as it was received: its arguments are raw text, perhaps cut."""

    id: str
    name: str
    arguments: str
    kind: ToolKind = UNKNOWN

    @property
    def complete(self) -> bool:
        """Whether the arguments are a whole JSON object. No arguments at all are an empty object."""
        try:
            return isinstance(json.loads(self.arguments or "{}"), dict)
        except ValueError:
            return False

    @property
    def use(self) -> ToolUse:
        """The call as an output policy sees it."""
        return ToolUse(self.name, self.kind, self.complete, self.id)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was received for a request, up to its end or to where it broke off.

    Attributes
    ----------
    text
        The visible text.
    reasons
        Whether there was reasoning besides.
    calls
        The tool calls, in order.
    finish
        Why it ended.
    output_tokens, prompt_tokens
        Tokens as the server counted them; None for a prompt that it did not count.
    error
        What went wrong; None for an answer.
    retry_after_s
        The least wait before another request that the server asked for, in seconds.
    """

    text: str = ""
    reasons: bool = False
    calls: tuple[Requested, ...] = ()
    finish: FinishReason = FinishReason.ERROR
    output_tokens: int = 0
    prompt_tokens: int | None = None
    error: ErrorKind | None = None
    retry_after_s: float = 0.0

    @property
    def response(self) -> Response:
        """The answer as an output policy sees it."""
        return Response(
            self.finish,
            max(self.output_tokens, bool(self.text)),  # a stream that broke off has no count
            tuple(call.use for call in self.calls),
            self.error,
            self.prompt_tokens,
            empty=self.error is None and not (self.text or self.reasons or self.calls),
        )


@dataclass(frozen=True, slots=True)
class Request:
    """What to send: a history and the machine's decision."""

    messages: Sequence[Message]
    send: Send


@dataclass(frozen=True, slots=True)
class Finished:
    """How a call ended.

    Attributes
    ----------
    decision
        The machine's last word.
    appended
        Messages to append to the history: the answer as one message, then results of the tool calls that are not run.
    text
        The answer's text, or what was received before the call failed; also where no message holds it.
    run
        Tool calls to run; each needs its result in the history before the next request.
    """

    decision: Done | Reject | Fail
    appended: tuple[Message, ...]
    text: str
    run: tuple[Requested, ...]


@dataclass(slots=True)
class Exchange:
    """One call on its way.

    Attributes
    ----------
    history
        The messages that the call begins with.
    machine
        The machine of the call.
    """

    history: Sequence[Message]
    machine: Machine
    _parts: list[Answer] = field(default_factory=list)
    _dropped: Answer | None = None

    def first(self) -> Request | Finished:
        """Return the first request, or the refusal to send one."""
        return self._next(self.machine.first(), Answer())

    def after(self, answer: Answer) -> Request | Finished:
        """Return what follows an answer: another request, or the end.

        Raises
        ------
        IllegalMove
            If no request is in flight; nothing is changed.
        """
        trouble = self.machine.trouble(answer.response)
        decision = self.machine.after(answer.response)
        if trouble is None:
            self._parts.append(answer)
        return self._next(decision, answer)

    def _next(self, decision: Decision, answer: Answer) -> Request | Finished:
        if not isinstance(decision, Send):
            return self._finished(decision, answer)
        if decision.kind is Kind.ESCALATION:
            self._dropped = self._parts.pop()
        return Request([*self.history, *self._continued()] if self._parts else self.history, decision)

    def _continued(self) -> list[Message]:
        """Return the answers so far, each followed by the message that asks for more."""
        return [message for part in self._parts for message in (*_said(part.text), user(RECOVERY))]

    def _finished(self, decision: Done | Reject | Fail, answer: Answer) -> Finished:
        if isinstance(decision, Fail):
            received = (self._dropped.text if self._dropped else "") or answer.text
            text = received if decision.partial is Partial.KEPT else ""
            return Finished(decision, _said(text), text, ())
        broken = isinstance(decision, Done) and decision.outcome is Outcome.PARTIAL
        text = merge.join(part.text for part in ([*self._parts, answer] if broken else self._parts))
        if broken:
            return Finished(decision, _said(text), text, ())
        calls = self._parts[-1].calls
        if isinstance(decision, Reject):
            run, rejected, guidance = decision.run, decision.calls, decision.guidance
        else:
            run = decision.run if decision.outcome is Outcome.TRUNCATED else tuple(call.use for call in calls)
            rejected, guidance = (), ""
        results = (tool_result(use.id, guidance) for use in rejected)
        wanted = {use.id for use in run}
        return Finished(
            decision,
            (*_said(text, *map(_recorded, calls)), *results),
            text,
            tuple(call for call in calls if call.id in wanted),
        )


def _said(text: str, *calls: ToolCall) -> tuple[Message, ...]:
    """Return what the assistant said as a message, or none: servers refuse empty ones."""
    return (assistant(text, *calls),) if text or calls else ()


def _recorded(call: Requested) -> ToolCall:
    """Return a call as the history holds it: cut arguments would make every later request invalid, so they go."""
    return ToolCall(call.id, call.name, Text(call.arguments if call.complete and call.arguments else "{}"))
