"""What a policy remembers of a log, so that a fit costs the new messages only.

Everything here grows by one entry a message (or result) and is never changed afterwards: it is a function of the
messages alone, and a shorter history over the same log reads a prefix of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from policies.messages import Log, Role
from policies.tokens import Estimator

_USER, _ASSISTANT, _TOOL = Role.USER, Role.ASSISTANT, Role.TOOL


class Zone:
    """Which of the newest results are protected.

    Attributes
    ----------
    outside
        How many of the oldest results lie outside the zone.
    """

    __slots__ = ("outside",)

    def __init__(self) -> None:
        self.outside = 0

    def add(self, tokens: int) -> None:
        """Take the next result in."""
        raise NotImplementedError

    def next_turn(self) -> None:
        """Take note of a user's message."""


class NewestTokens(Zone):
    """The longest unbroken run of newest results that sums to at most ``limit`` tokens, but at least so many."""

    __slots__ = ("_inside", "_least", "_limit", "_tokens")

    def __init__(self, limit: float, least: int) -> None:
        super().__init__()
        self._limit, self._least = limit, least
        self._inside: deque[int] = deque()
        self._tokens = 0

    def add(self, tokens: int) -> None:
        """Take the next result in."""
        self._inside.append(tokens)
        self._tokens += tokens
        while self._tokens > self._limit and len(self._inside) > self._least:
            self._tokens -= self._inside.popleft()
            self.outside += 1


class NewestResults(Zone):
    """So many of the newest results; with ``together`` above 1 they are let go in groups of so many."""

    __slots__ = ("_count", "_keep", "_together")

    def __init__(self, keep: int, together: int = 1) -> None:
        super().__init__()
        self._keep, self._together, self._count = keep, together, 0

    def add(self, tokens: int) -> None:
        """Take the next result in."""
        self._count += 1
        self.outside = max(0, self._count // self._together * self._together - self._keep)


class NewestTurns(Zone):
    """The results of so many newest turns, the present one not counted, and of those before them the newest tokens."""

    __slots__ = ("_older", "_recent", "_turns")

    def __init__(self, turns: int, older: NewestTokens) -> None:
        super().__init__()
        self._turns, self._older = turns, older
        self._recent: deque[list[int]] = deque([[]])

    def add(self, tokens: int) -> None:
        """Take the next result in."""
        self._recent[-1].append(tokens)

    def next_turn(self) -> None:
        """Take note of a user's message."""
        self._recent.append([])
        if len(self._recent) > self._turns + 1:
            for tokens in self._recent.popleft():
                self._older.add(tokens)
            self.outside = self._older.outside


class Clearing(Protocol):
    """What a fold needs to know of the policy that clears."""

    def clear(self, fold: ClearFold, length: int, held: int) -> int:
        """Return how many clearable results, from the oldest, are cleared in a request of the first messages."""


class Fold:
    """Prefix sums of a log's estimates.

    Attributes
    ----------
    raw
        Estimated tokens of the first n messages, at n.
    """

    __slots__ = ("estimator", "raw")

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator
        self.raw = [0]

    def extend(self, log: Log, length: int) -> None:
        """Take the log's messages in up to a length."""
        raw, estimator = self.raw, self.estimator
        for message in log.messages[len(raw) - 1 : length]:
            raw.append(raw[-1] + message.tokens(estimator))


class ClearFold(Fold):
    """Which results can be cleared, what that saves, and what was cleared at the requests so far.

    Parameters
    ----------
    estimator
        Counts tokens.
    note
        Tokens of what replaces a cleared result.
    smallest
        Results of at most so many tokens are not worth clearing.
    zone
        Protects the newest results.
    policy
        Decides what to clear at each request that was made, that is before each assistant's message; None for a
        policy that looks at the whole history afresh each time.
    excluded
        Tools whose results are never cleared.

    Attributes
    ----------
    where
        The clearable results: their places in the log, the oldest first.
    saved, sizes
        Tokens that clearing the first k of them saves, and that they have, at k.
    least
        Estimated tokens of the first n messages if all of them were cleared, at n.
    outside
        How many of them lie outside the zone in the first n messages, at n.
    held
        How many of them were cleared at the last request in the first n messages, at n.
    """

    __slots__ = (
        "_excluded",
        "_note",
        "_ordinals",
        "_policy",
        "_results",
        "_smallest",
        "_zone",
        "held",
        "least",
        "outside",
        "saved",
        "sizes",
        "where",
    )

    def __init__(
        self,
        estimator: Estimator,
        note: int,
        smallest: float,
        zone: Zone,
        policy: Clearing | None,
        excluded: Collection[str] = (),
    ) -> None:
        super().__init__(estimator)
        self.where: list[int] = []
        self.saved = [0]
        self.sizes = [0]
        self.least = [0]
        self.outside = [0]
        self.held = [0]
        self._results = 0  # among the messages so far
        self._ordinals: list[int] = []  # of each clearable result among all results
        self._note, self._smallest = note, smallest
        self._zone, self._policy, self._excluded = zone, policy, excluded

    def extend(self, log: Log, length: int) -> None:
        """Take the log's messages in up to a length."""
        raw, outside, held, saved = self.raw, self.outside, self.held, self.saved
        estimator, policy = self.estimator, self._policy
        total, free, kept = raw[-1], outside[-1], held[-1]
        for at, message in enumerate(log.messages[len(raw) - 1 : length], len(raw) - 1):
            tokens = message.tokens(estimator)
            role = message.role
            if role is not _ASSISTANT:
                free = self._protect(at, role, tokens, log.tools)
            elif policy is not None:
                kept = policy.clear(self, at, kept)
            total += tokens
            raw.append(total)
            self.least.append(total - saved[-1])
            outside.append(free)
            held.append(kept)

    def _protect(self, at: int, role: Role, tokens: int, tools: Sequence[str]) -> int:
        """Take in a message that may move the zone; return how many clearable results lie outside."""
        zone, ordinals, free = self._zone, self._ordinals, self.outside[-1]
        if role is _TOOL:
            ordinal = self._results
            self._results += 1
            zone.add(tokens)
            if tokens > self._smallest and tools[ordinal] not in self._excluded:
                self.where.append(at)
                ordinals.append(ordinal)
                self.saved.append(self.saved[-1] + tokens - self._note)
                self.sizes.append(self.sizes[-1] + tokens)
        elif role is _USER:
            zone.next_turn()
        while free < len(ordinals) and ordinals[free] < zone.outside:
            free += 1
        return free

    def size(self, length: int, cleared: int) -> int:
        """Return the tokens of the first messages with so many results cleared."""
        return self.raw[length] - self.saved[cleared]

    def rest(self, start: int, length: int, cleared: int) -> int:
        """Return the tokens of the messages from ``start`` on, with so many results of the log cleared."""
        before = bisect_left(self.where, start, 0, cleared)
        return self.raw[length] - self.raw[start] - self.saved[cleared] + self.saved[before]


class Dropping(Protocol):
    """What a fold needs to know of the policy that leaves messages out."""

    def cut(self, fold: DropFold, log: Log, length: int, held: Cut) -> Cut:
        """Return what is left out in a request of the first messages."""


class Cut(NamedTuple):
    """Messages left out behind the head.

    Attributes
    ----------
    head, start
        Messages kept at the front, and the first one kept after those left out; both 0 where none are.
    lead
        Tokens of what stands for them.
    """

    head: int = 0
    start: int = 0
    lead: int = 0


class DropFold(Fold):
    """What was left out at the requests so far.

    Attributes
    ----------
    held
        What was left out at the last request in the first n messages, at n.
    """

    __slots__ = ("_policy", "held")

    def __init__(self, estimator: Estimator, policy: Dropping) -> None:
        super().__init__(estimator)
        self._policy = policy
        self.held = [Cut()]

    def extend(self, log: Log, length: int) -> None:
        """Take the log's messages in up to a length."""
        raw, held = self.raw, self.held
        for at in range(len(raw) - 1, length):
            message = log.messages[at]
            cut = held[at]
            if message.role is _ASSISTANT:
                cut = self._policy.cut(self, log, at, cut)
            raw.append(raw[-1] + message.tokens(self.estimator))
            held.append(cut)

    def size(self, length: int, cut: Cut) -> int:
        """Return the tokens of the first messages with those left out replaced by what stands for them."""
        return self.raw[length] - self.raw[cut.start] + self.raw[cut.head] + cut.lead
