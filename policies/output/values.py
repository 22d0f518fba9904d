"""What an output policy hears and says: tokens and finish reasons, never a response's true length."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FinishReason(Enum):
    """Why a response ended, in the words of the OpenAI API (transports map those of others)."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    ERROR = "error"

    __hash__ = object.__hash__  # members are singletons: the inherited hash runs Python code on every table lookup


class ErrorKind(Enum):
    """What went wrong with a request, as far as a client can tell."""

    INVALID = "invalid"  # the server rejects the request; the same request gets the same answer
    TOO_LONG = "too-long"  # rejected because the conversation does not fit the model
    RATE_LIMITED = "rate-limited"
    SERVER = "server"  # 5xx, or no connection
    CUT = "cut"  # the stream broke off without a finish reason
    EMPTY = "empty"  # a stream without text, reasoning or tool call
    NO_ROOM = "no-room"  # refused before sending: prompt and a useful answer do not fit the window together

    __hash__ = object.__hash__


class ToolKind(Enum):
    """What a tool does to the world. A tool that nobody described counts as OTHER, that is as having side effects."""

    READ = "read"
    EDIT = "edit"
    EXECUTE = "execute"
    OTHER = "other"

    __hash__ = object.__hash__


class Kind(Enum):
    """What a request of a call is for."""

    INITIAL = "initial"
    ESCALATION = "escalation"
    RECOVERY = "recovery"

    __hash__ = object.__hash__


class Carried(Enum):
    """What a request carries beside the messages that the call began with."""

    SAME = "same"  # nothing
    DROP_PARTIAL = "drop-partial"  # nothing: the truncated answer is left out
    KEEP_PARTIAL = "keep-partial"  # everything answered so far, then the recovery message

    __hash__ = object.__hash__


class Retries(Enum):
    """Which transient errors of a request are met by sending it again."""

    NONE = "none"
    REFUSED = "refused"  # 429 and 5xx, before the first byte
    ALL = "all"  # broken and empty streams too

    __hash__ = object.__hash__


class Outcome(Enum):
    """How a call ended that has an answer."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"  # nothing is left to try; the text so far stands
    PARTIAL = "partial"  # a recovery failed; the text before it stands


class Partial(Enum):
    """What became of text that was received before a call failed."""

    NONE = "none"  # there was none
    KEPT = "kept"  # it stays in the history and is handed back
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of a response.

    Attributes
    ----------
    name
        The tool's name.
    kind
        What the tool does to the world.
    complete
        Whether the arguments are whole JSON.
    id
        The provider's id of the call, to answer it by.
    """

    name: str
    kind: ToolKind = ToolKind.OTHER
    complete: bool = True
    id: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One logical model call, as the client knows it before it sends anything.

    Attributes
    ----------
    model
        The model's name in any spelling; empty for one that nobody knows.
    window
        Context window in tokens; None looks it up by the model's name.
    output_limit
        Largest output of the model in tokens; None looks it up by the model's name.
    prompt_tokens
        The client's estimate of the prompt in tokens.
    user_max_tokens, env_max_tokens
        ``max_tokens`` as the user configured it or set it in the environment, where it is text; what of it counts is
        the policy's precedence to say.
    kind, script
        What the call is for and in what script it is written, for policies that keep lengths apart by them.
    calls_since_escalation
        Calls in the present turn or session since the last one that escalated; None if none has. Sticky policies use
        it.
    """

    model: str = ""
    window: int | None = None
    output_limit: int | None = None
    prompt_tokens: int = 0
    user_max_tokens: int | float | str | None = None
    env_max_tokens: int | str | None = None
    kind: str = ""
    script: str = ""
    calls_since_escalation: int | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """What came back for a request.

    Attributes
    ----------
    finish
        Why it ended.
    output_tokens
        Tokens that were generated and received.
    tool_calls
        The tool calls of the response, whole or cut.
    error
        What went wrong; None for an answer.
    prompt_tokens
        The prompt as the server counted it, in tokens; None if it did not say. Replaces the client's estimate.
    empty
        Whether there was neither text nor reasoning nor a tool call in it.
    continued_tokens
        The client's estimate of the prompt of a continuation, recovery message included; None lets the machine add up
        the prompt, what was generated and the message.
    """

    finish: FinishReason
    output_tokens: int = 0
    tool_calls: tuple[ToolUse, ...] = ()
    error: ErrorKind | None = None
    prompt_tokens: int | None = None
    empty: bool = False
    continued_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Decision: send a request.

    Attributes
    ----------
    max_tokens
        The limit that the response gets, in tokens.
    requested
        The limit before the model's own clipped it, in tokens; for dialects that send it so.
    kind, history
        What the request is for, and what it carries.
    is_continuation
        Whether the answer goes on from the text already shown (else the text shown is to be discarded).
    message_tokens
        Size of the recovery message that the request adds to the history, in tokens.
    retry
        Which transient errors of this request go through the retry machine.
    """

    max_tokens: int
    requested: int
    kind: Kind
    history: Carried
    is_continuation: bool = False
    message_tokens: int = 0
    retry: Retries = Retries.ALL


@dataclass(frozen=True, slots=True)
class Done:
    """Decision: the call has its answer.

    Attributes
    ----------
    outcome
        Whether the answer is whole.
    finish
        The finish reason to report to whoever made the call.
    run
        In a truncated answer, the tool calls that may run all the same. (Of a complete answer all run.)
    error
        The error that ended a recovery; None otherwise.
    """

    outcome: Outcome
    finish: FinishReason
    run: tuple[ToolUse, ...] = ()
    error: ErrorKind | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Decision: the answer is truncated and holds tool calls that must not run; the model is told to split its work.

    Attributes
    ----------
    calls
        The tool calls that are answered by the guidance instead of being run.
    guidance
        The text that answers each of them.
    run
        The tool calls of the same answer that may run.
    """

    calls: tuple[ToolUse, ...]
    guidance: str
    run: tuple[ToolUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """Decision: the call failed.

    Attributes
    ----------
    error
        Why.
    partial
        What became of the text received before.
    notice
        What to tell the person, where it is theirs to act on; else empty.
    alert
        Whether the operators should hear of it: not of what a person can mend.
    """

    error: ErrorKind
    partial: Partial = Partial.NONE
    notice: str = ""
    alert: bool = True


Decision = Send | Done | Reject | Fail


class IllegalMove(ValueError):
    """A machine was asked for a move that its transition table does not hold; its state is unchanged."""


class BadConstants(ValueError):
    """Constants of a policy that contradict each other or lie out of range: all of them in one line."""
