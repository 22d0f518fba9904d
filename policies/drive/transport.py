"""What a driver needs of an API: one request as a stream of deltas, and errors by their kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from policies.messages import Message
from policies.output import ErrorKind, FinishReason
from policies.wire import Dialect


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Reasoning, which is not shown."""

    text: str


@dataclass(frozen=True, slots=True)
class CitationDelta:
    """A citation, as the API words it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a tool call.

    Attributes
    ----------
    index
        Which call of the answer it belongs to.
    id, name
        The call's id and tool, in its first piece.
    arguments
        More of the arguments' JSON text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; None for what it has not told yet."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer has ended. A stream without it was cut off."""

    reason: FinishReason


Delta = TextDelta | ReasoningDelta | CitationDelta | CallDelta | Usage | Finish


class TransportError(Exception):
    """A request failed.

    Attributes
    ----------
    kind
        What that means for the client.
    retry_after_s
        The least wait before another request that the server asked for, in seconds.
    """

    def __init__(self, kind: ErrorKind, message: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message or kind.value)
        self.kind = kind
        self.retry_after_s = retry_after_s


class Transport(Protocol):
    """An API that requests are sent to. It retries nothing itself."""

    dialect: Dialect
    """How the API names the output limit."""

    def stream(self, messages: Sequence[Message], parameters: Mapping[str, object]) -> AsyncIterator[Delta]:
        """Send one request and yield its answer as it comes.

        Raises
        ------
        TransportError
            If the request fails, also in the middle of its answer.
        """
