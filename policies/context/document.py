"""The context policy of design document 001, in the three readings its text allows, and its two former versions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from policies.context.base import ContextPolicy, cleared_with, left_out_with
from policies.context.fitted import Fitted, Refused, Shape
from policies.context.fold import ClearFold, Fold, NewestResults, NewestTokens, Zone
from policies.messages import History
from policies.prompts import CLEARED_RESULT, DROPPED_MESSAGES

ClearTo = Literal["budget", "protected", "protected-hold"]

_CLEARED: Final = cleared_with(CLEARED_RESULT)
_DROPPED: Final = left_out_with(DROPPED_MESSAGES)


@dataclass(frozen=True, slots=True)
class Document001(ContextPolicy[ClearFold]):
    """Clears old tool results, then keeps whole user turns, then whole tool rounds: each only if needed.

    The newest results are *protected*: the longest unbroken run of them that sums to at most a share of the budget, at
    least one. Of the others those much larger than the note are *clearable*, counted in batches from the oldest; a last
    batch that is not full is cleared only if full batches do not suffice. Stages two and three work on the cleared
    history and keep the system messages, the first message, a note, and the newest turns or rounds that fit.

    Attributes
    ----------
    budget
        Estimated tokens that a request may have.
    clear_batch
        Results that are cleared together.
    protect_share
        Share of the budget that the newest results may fill and stay whole.
    clear_to
        ``budget``: as many batches as the budget needs. ``protected``: once the raw history exceeds the budget,
        everything that is not protected. ``protected-hold``: everything that is not protected, once the request as it
        would be sent exceeds the budget; then nothing more until it does again (requests made so far are known from the
        history: one before each assistant's message).
    barely_larger
        Results of at most so many times the note stay: clearing them would gain nothing and change the prefix.
    """

    budget: int = 400_000
    clear_batch: int = 4
    protect_share: float = 0.25
    clear_to: ClearTo = "protected-hold"
    barely_larger: float = 2.0

    def faults(self) -> list[str]:
        """Return what is wrong with the constants, one entry each."""
        faults = []
        if self.budget < 1:
            faults.append(f"budget: {self.budget}, must be at least 1 token")
        if self.clear_batch < 1:
            faults.append(f"clear_batch: {self.clear_batch}, must be at least 1")
        if not 0 <= self.protect_share <= 1:
            faults.append(f"protect_share: {self.protect_share}, must lie in 0 ... 1")
        if self.clear_to not in _CLEAR:
            faults.append(f"clear_to: no {self.clear_to!r}, there are {', '.join(_CLEAR)}")
        if self.barely_larger < 1:
            faults.append(f"barely_larger: {self.barely_larger}, must be at least 1")
        return faults

    def zone(self) -> Zone:
        """Return what protects the newest results."""
        return NewestTokens(self.protect_share * self.budget, least=1)

    def fold(self) -> ClearFold:
        """Return a fold over no messages yet."""
        note = _CLEARED.tokens(self.counts)
        holder = self if self.clear_to == "protected-hold" else None
        return ClearFold(self.counts, note, self.barely_larger * note, self.zone(), holder)

    def clear(self, fold: ClearFold, length: int, held: int) -> int:
        """Return how many clearable results, from the oldest, are cleared in a request of the first messages."""
        return _CLEAR[self.clear_to](self, fold, length, held)

    def batches(self, results: int) -> int:
        """Return how many of so many results lie in full batches."""
        return results - results % self.clear_batch

    def shape(self, fold: ClearFold, history: History) -> Fitted | Refused:
        """Return what to send, from a fold that knows the whole history."""
        length = len(history)
        cleared = self.clear(fold, length, fold.held[length])
        estimate = fold.size(length, cleared)
        if estimate > self.budget:
            return self._cut(fold, history, cleared)
        if not cleared:
            return Fitted(history, estimate)
        return Fitted(history, estimate, 1, Shape(cleared), fold.where, _CLEARED, cleared_tokens=fold.saved[cleared])

    def _cut(self, fold: ClearFold, history: History, cleared: int) -> Fitted | Refused:
        length, head = len(history), history.head
        note = _DROPPED.tokens(self.counts)
        room = self.budget - fold.raw[head] - note
        for stage, starts in ((2, history.log.turns), (3, history.log.units)):
            start = first_that_fits(fold, starts, head, length, history.before(starts), cleared, room)
            if start is not None:
                rest = fold.rest(start, length, cleared)
                return Fitted(
                    history,
                    fold.raw[head] + note + rest,
                    stage,
                    Shape(cleared, head, start, note),
                    fold.where,
                    _CLEARED,
                    _DROPPED,
                    cleared_tokens=fold.raw[length] - fold.raw[start] - rest,
                    dropped_tokens=fold.raw[start] - fold.raw[head] - note,
                )
        units = history.log.units
        newest = units[history.before(units) - 1]
        if newest < head:
            least, what = fold.raw[head], "the first message"
        else:
            least = fold.raw[head] + note + fold.rest(newest, length, cleared)
            what = "the first message, the note and the newest round"
        return Refused(f"the budget of {self.budget:,} tokens cannot hold {what}: {least:,} tokens", least)


def first_that_fits(
    fold: ClearFold, starts: list[int], head: int, length: int, count: int, cleared: int, room: int
) -> int | None:
    """Return the earliest of the rising ``starts`` behind the head from which the rest fits the room; None if none."""
    whole = fold.where[cleared] if cleared < len(fold.where) else length  # the first result that is not cleared
    low, needed = bisect_left(starts, head, 0, count), fold.size(length, cleared) - room
    middle = bisect_left(starts, whole, low, count)
    place = bisect_left(starts, needed, low, middle, key=fold.least.__getitem__)
    if place == middle:
        place = bisect_left(starts, needed + fold.saved[cleared], middle, count, key=fold.raw.__getitem__)
    return starts[place] if place < count else None


def _to_budget(policy: Document001, fold: ClearFold, length: int, held: int) -> int:
    excess = fold.raw[length] - policy.budget
    if excess <= 0:
        return 0
    outside = fold.outside[length]
    enough = bisect_left(fold.saved, excess, 0, outside + 1)
    full = policy.batches(enough + policy.clear_batch - 1)
    return full if full <= policy.batches(outside) else outside


def _to_protected(policy: Document001, fold: ClearFold, length: int, held: int) -> int:
    return held if fold.size(length, held) <= policy.budget else _all_outside(policy, fold, length, held)


def _all_outside(policy: Document001, fold: ClearFold, length: int, held: int) -> int:
    outside = fold.outside[length]
    full = max(held, policy.batches(outside))
    return full if fold.size(length, full) <= policy.budget else max(held, outside)


# In "protected" nothing was held, so its rule sees the raw history each time.
_CLEAR: Final[Mapping[str, Callable[[Document001, ClearFold, int, int], int]]] = {
    "budget": _to_budget,
    "protected": _to_protected,
    "protected-hold": _to_protected,
}


@dataclass(frozen=True, slots=True)
class KeepSix(Document001):
    """Document 001's former version of clearing: a fixed number of results stays whole, whatever their size.

    Attributes
    ----------
    keep
        Results that stay whole.
    """

    clear_to: ClearTo = "protected"
    keep: int = 6

    def zone(self) -> Zone:
        """Return what protects the newest results."""
        return NewestResults(self.keep)


@dataclass(frozen=True, slots=True)
class ClearOne(Document001):
    """Document 001 without batches: one more result is cleared whenever the budget needs it."""

    clear_batch: int = 1
    clear_to: ClearTo = "budget"


@dataclass(frozen=True, slots=True)
class CutUserTurns(ContextPolicy[Fold]):
    """Document 001's former version: no clearing, cut only where a user message begins.

    Keeps the system messages, the first message, a note, and the newest user turns that fit; the newest turn is sent
    whole even if it alone exceeds the budget, for there is nowhere to cut it.

    Attributes
    ----------
    budget
        Estimated tokens that a request should have.
    """

    budget: int = 400_000

    def faults(self) -> list[str]:
        """Return what is wrong with the constants, one entry each."""
        return [] if self.budget >= 1 else [f"budget: {self.budget}, must be at least 1 token"]

    def fold(self) -> Fold:
        """Return a fold over no messages yet."""
        return Fold(self.counts)

    def shape(self, fold: Fold, history: History) -> Fitted | Refused:
        """Return what to send, from a fold that knows the whole history."""
        raw, length, head = fold.raw, len(history), history.head
        whole = raw[length]
        if whole <= self.budget:
            return Fitted(history, whole)
        turns = history.log.turns
        count = history.before(turns)
        low = bisect_right(turns, head, 0, count)  # a turn right behind the head leaves nothing out
        if low == count:
            return Fitted(history, whole, over=True)
        note = _DROPPED.tokens(self.counts)
        room = self.budget - raw[head] - note
        place = bisect_left(turns, whole - room, low, count, key=raw.__getitem__)
        start = turns[min(place, count - 1)]
        estimate = raw[head] + note + whole - raw[start]
        return Fitted(
            history,
            estimate,
            2,
            Shape(0, head, start, note),
            note=_DROPPED,
            over=estimate > self.budget,
            dropped_tokens=whole - estimate,
        )
