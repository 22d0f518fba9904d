"""What a context policy answers: the messages to send, as a view on the history, or a refusal."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

from policies.messages import History, Message
from policies.prompts import TOO_LONG


class Shape(NamedTuple):
    """How the messages to send differ from the history.

    Two fits of a growing history with the same shape differ by the new messages only, so what was sent before is a
    prefix of what is sent now.

    Attributes
    ----------
    cleared
        How many clearable results, from the oldest, are cleared.
    head
        Messages kept at the front where some are left out.
    start
        The first message kept after those left out; `head` (or 0) where none are.
    lead
        Tokens of the message that stands for those left out: a note, or a summary; 0 where none are.
    """

    cleared: int = 0
    head: int = 0
    start: int = 0
    lead: int = 0


WHOLE = Shape()
"""The history as it is."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A request that must be made before the fitted one: the model writes what stands for the messages left out.

    Attributes
    ----------
    prompt_tokens
        Estimated tokens of the conversation that it reads.
    output_tokens
        Tokens that the summary is allowed.
    """

    prompt_tokens: int
    output_tokens: int


class Fitted(NamedTuple):
    """What to send instead of the history. A named tuple, for one is made at every request.

    Attributes
    ----------
    history
        The whole conversation, unchanged.
    estimate
        Estimated tokens of what is sent.
    stage
        How far the policy had to go: 0 nothing, 1 results cleared, 2 whole turns dropped, 3 whole tool rounds dropped.
    shape
        How the messages differ from the history.
    clearable
        Where the clearable results are, the oldest first; the first ``shape.cleared`` of them are cleared.
    replacement, note
        What stands for a cleared result and for the messages left out.
    over
        Whether the estimate is above the policy's budget: only policies that do not refuse send such a request.
    cleared_tokens, dropped_tokens
        Estimated tokens that clearing and leaving out save, notes deducted.
    summary
        The request that must come first; None for policies that do not summarise, or not now.
    """

    history: History
    estimate: int
    stage: int = 0
    shape: Shape = WHOLE
    clearable: Sequence[int] = ()
    replacement: Message | None = None
    note: Message | None = None
    over: bool = False
    cleared_tokens: int = 0
    dropped_tokens: int = 0
    summary: Summary | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """The messages to send, made as they are asked for."""
        return self.history if self.shape == WHOLE else View(self)

    @property
    def cleared(self) -> int:
        """Results that are cleared in what is sent; those among the messages left out do not count."""
        return self.shape.cleared - bisect_left(self.clearable, self.shape.start, 0, self.shape.cleared)

    @property
    def dropped(self) -> int:
        """Messages that are left out."""
        return self.shape.start - self.shape.head

    def is_cleared(self, at: int) -> bool:
        """Return whether the message of the history at this place is a cleared result."""
        place = bisect_left(self.clearable, at, 0, self.shape.cleared)
        return place < self.shape.cleared and self.clearable[place] == at


class View(Sequence[Message]):
    """The messages to send, over the history: nothing is copied."""

    __slots__ = ("_fitted", "_from")

    def __init__(self, fitted: Fitted) -> None:
        self._fitted = fitted
        head, start = fitted.shape.head, fitted.shape.start
        self._from = range(0) if start == head else range(start, len(fitted.history))

    def __len__(self) -> int:
        shape = self._fitted.shape
        return len(self._fitted.history) if shape.start == shape.head else shape.head + 1 + len(self._from)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        if isinstance(at, slice):
            return [self[place] for place in range(len(self))[at]]
        fitted, at = self._fitted, range(len(self))[at]
        head, start = fitted.shape.head, fitted.shape.start
        if start != head and at >= head:
            if at == head:
                assert fitted.note is not None
                return fitted.note
            at += start - head - 1
        message = fitted.history[at]
        if fitted.is_cleared(at):
            assert fitted.replacement is not None
            return message.saying(fitted.replacement.content)
        return message

    def __iter__(self) -> Iterator[Message]:
        return (self[at] for at in range(len(self)))


@dataclass(frozen=True, slots=True)
class Refused:
    """The conversation cannot be made to fit.

    Attributes
    ----------
    reason
        Why, with figures, for the developer.
    estimate
        Estimated tokens of the least that could be sent.
    notice
        What to tell the person: it is theirs to act on, no failure, so nobody is alerted.
    """

    reason: str
    estimate: int
    notice: str = TOO_LONG
