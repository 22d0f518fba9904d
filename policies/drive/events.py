"""What a driver tells whoever shows or records a call, in the order in which it happens."""

from __future__ import annotations

from dataclasses import dataclass

from policies.exchange import Answer, Finished, Requested
from policies.output import ErrorKind, Send


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class Cited:
    """A citation, as the API words it."""

    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A request has its answer, whole, truncated or failed.

    Attributes
    ----------
    send
        The request.
    answer
        What was received.
    """

    send: Send
    answer: Answer


@dataclass(frozen=True, slots=True)
class Retried:
    """Another request follows within the call.

    Attributes
    ----------
    is_continuation
        Whether the text already shown goes on; else it is to be discarded.
    kept
        How many characters of the text shown stay; the rest is generated anew.
    max_tokens
        The limit of the request that follows.
    error
        The transient error that is met by sending again; None after a truncation.
    wait_s
        How long the driver waits before, in seconds.
    """

    is_continuation: bool
    kept: int
    max_tokens: int
    error: ErrorKind | None = None
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call to run. It comes after the last request of the call, so never from a discarded attempt."""

    call: Requested


@dataclass(frozen=True, slots=True)
class Ended:
    """The call is over."""

    finished: Finished


Event = Said | Cited | Answered | Retried | Called | Ended
