"""Context policies found in the wild, with their published defaults, to compare document 001 with.

What each does and its constants: the project's survey of client code and API documentation, versions as of 2026-11.
None of them refuses: what does not fit is sent, and the server refuses it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from policies.context.base import ContextPolicy, cleared_with, left_out_with
from policies.context.fitted import Fitted, Shape, Summary
from policies.context.fold import ClearFold, Cut, DropFold, Fold, NewestResults, NewestTokens, NewestTurns, Zone
from policies.messages import History, Known, Log, Message, tool_result, user
from policies.prompts import CLEARED_RESULT, DROPPED_MESSAGES

_CLEARED: Final = cleared_with(CLEARED_RESULT)
_DROPPED: Final = left_out_with(DROPPED_MESSAGES)


@dataclass(frozen=True, slots=True)
class SendAll(ContextPolicy[Fold]):
    """Sends the whole history each time."""

    def fold(self) -> Fold:
        """Return a fold over no messages yet."""
        return Fold(self.counts)

    def shape(self, fold: Fold, history: History) -> Fitted:
        """Return what to send, from a fold that knows the whole history."""
        return Fitted(history, fold.raw[len(history)])


@dataclass(frozen=True, slots=True)
class _Clears(ContextPolicy[ClearFold]):
    """Clears results by a rule of its own, and holds what was cleared."""

    def zone(self) -> Zone:
        """Return what protects the newest results."""
        raise NotImplementedError

    def clear(self, fold: ClearFold, length: int, held: int) -> int:
        """Return how many clearable results, from the oldest, are cleared in a request of the first messages."""
        raise NotImplementedError

    def replacement(self) -> Message:
        """Return what stands for a cleared result."""
        return _CLEARED

    def fold(self) -> ClearFold:
        """Return a fold over no messages yet."""
        note = self.replacement().tokens(self.counts)
        return ClearFold(self.counts, note, note, self.zone(), self)

    def shape(self, fold: ClearFold, history: History) -> Fitted:
        """Return what to send, from a fold that knows the whole history."""
        length = len(history)
        cleared = self.clear(fold, length, fold.held[length])
        estimate = fold.size(length, cleared)
        if not cleared:
            return Fitted(history, estimate)
        return Fitted(
            history,
            estimate,
            1,
            Shape(cleared),
            fold.where,
            self.replacement(),
            cleared_tokens=fold.saved[cleared],
        )


@dataclass(frozen=True, slots=True)
class ClearToolUses(_Clears):
    """Anthropic's server-side ``clear_tool_uses_20250919``.

    Attributes
    ----------
    trigger
        Clears when a request exceeds so many tokens.
    keep
        Newest results that stay.
    clear_at_least
        Tokens that clearing must save to be worth it.
    exclude_tools
        Tools whose results stay.
    hold
        Whether what was cleared once stays cleared and counts as gone. LangChain's editor works on a copy and sees the
        whole history again at each call, so beyond its trigger it clears one more result at each.
    """

    trigger: int = 100_000
    keep: int = 3
    clear_at_least: int = 0
    exclude_tools: tuple[str, ...] = ()
    hold: bool = True

    def zone(self) -> Zone:
        """Return what protects the newest results."""
        return NewestResults(self.keep)

    def fold(self) -> ClearFold:
        """Return a fold over no messages yet."""
        note = _CLEARED.tokens(self.counts)
        holder = self if self.hold else None
        return ClearFold(self.counts, note, note, self.zone(), holder, excluded=self.exclude_tools)

    def clear(self, fold: ClearFold, length: int, held: int) -> int:
        """Return how many clearable results, from the oldest, are cleared in a request of the first messages."""
        outside = fold.outside[length]
        if fold.size(length, held) <= self.trigger or fold.saved[outside] - fold.saved[held] < self.clear_at_least:
            return held
        return outside


@dataclass(frozen=True, slots=True)
class LangChainClearToolUses(ClearToolUses):
    """LangChain's ``ClearToolUsesEdit``: sees the whole history again at each call."""

    hold: bool = False


@dataclass(frozen=True, slots=True)
class MaskToolOutputs(_Clears):
    """Gemini CLI's masking of tool outputs: beyond the newest, once enough of them has gathered, whatever the budget.

    Attributes
    ----------
    protect
        Tokens of the newest results that stay; the result that crosses the line does not.
    at_least
        Tokens of maskable results that must have gathered.
    preview
        Tokens of a masked output that stay: the first and last 250 characters, at four a token.
    """

    protect: int = 50_000
    at_least: int = 30_000
    preview: int = 125

    def zone(self) -> Zone:
        """Return what protects the newest results."""
        return NewestTokens(self.protect, least=0)

    def replacement(self) -> Message:
        """Return what stands for a masked output, by its size only."""
        return tool_result("", Known(_CLEARED.tokens(self.counts) + self.preview))

    def clear(self, fold: ClearFold, length: int, held: int) -> int:
        """Return how many clearable results, from the oldest, are cleared in a request of the first messages."""
        outside = fold.outside[length]
        return outside if fold.sizes[outside] - fold.sizes[held] >= self.at_least else held


@dataclass(frozen=True, slots=True)
class PruneOldTurns(_Clears):
    """opencode's prune: after a turn, the outputs beyond the newest of the turns before the last two.

    Attributes
    ----------
    protect
        Tokens of the newest results before the protected turns that stay; the one that crosses the line does not.
    more_than
        Tokens of prunable results that must have gathered.
    turns
        Finished turns that stay whole.
    exclude_tools
        Tools whose results stay.
    """

    protect: int = 40_000
    more_than: int = 20_000
    turns: int = 2
    exclude_tools: tuple[str, ...] = ("skill",)

    def fold(self) -> ClearFold:
        """Return a fold over no messages yet."""
        note = _CLEARED.tokens(self.counts)
        zone = NewestTurns(self.turns, NewestTokens(self.protect, least=0))
        return ClearFold(self.counts, note, note, zone, self, excluded=self.exclude_tools)

    def clear(self, fold: ClearFold, length: int, held: int) -> int:
        """Return how many clearable results, from the oldest, are cleared in a request of the first messages."""
        outside = fold.outside[length]
        return outside if fold.sizes[outside] - fold.sizes[held] > self.more_than else held


@dataclass(frozen=True, slots=True)
class LastObservations(_Clears):
    """SWE-agent's ``last_n_observations``: always all but the newest results, by number.

    Attributes
    ----------
    n
        Results that stay.
    polling
        Clears so many at a time, so that between ``n`` and ``n + polling - 1`` stay.
    """

    n: int = 5
    polling: int = 1

    def faults(self) -> list[str]:
        """Return what is wrong with the constants, one entry each."""
        return [
            f"{name}: {value}, must be at least 1"
            for name, value in (("n", self.n), ("polling", self.polling))
            if value < 1
        ]

    def zone(self) -> Zone:
        """Return what protects the newest results."""
        return NewestResults(self.n, self.polling)

    def clear(self, fold: ClearFold, length: int, held: int) -> int:
        """Return how many clearable results, from the oldest, are cleared in a request of the first messages."""
        return fold.outside[length]


@dataclass(frozen=True, slots=True)
class _Drops(ContextPolicy[DropFold]):
    """Leaves messages out once the request reaches a limit, and holds that.

    Attributes
    ----------
    window
        The model's context window in tokens.
    """

    window: int = 200_000

    def faults(self) -> list[str]:
        """Return what is wrong with the constants, one entry each."""
        return [] if self.window >= 1 else [f"window: {self.window}, must be at least 1 token"]

    def cut(self, fold: DropFold, log: Log, length: int, held: Cut) -> Cut:
        """Return what is left out in a request of the first messages."""
        raise NotImplementedError

    def fold(self) -> DropFold:
        """Return a fold over no messages yet."""
        return DropFold(self.counts, self)

    def shape(self, fold: DropFold, history: History) -> Fitted:
        """Return what to send, from a fold that knows the whole history."""
        length = len(history)
        held = fold.held[length]
        cut = self.cut(fold, history.log, length, held)
        estimate = fold.size(length, cut)
        if not cut.start:
            return Fitted(history, estimate)
        return Fitted(
            history,
            estimate,
            2,
            Shape(0, *cut),
            note=self.note(cut),
            dropped_tokens=fold.raw[length] - estimate,
            summary=None if cut is held else self.summary(fold.size(length, held)),
        )

    def note(self, cut: Cut) -> Message:
        """Return what stands for the messages left out."""
        return _DROPPED

    def summary(self, prompt_tokens: int) -> Summary | None:
        """Return the request that writes it."""
        return None


@dataclass(frozen=True, slots=True)
class DropHalf(_Drops):
    """Cline's truncation: half of the conversation behind the first pair goes, three quarters if it is twice too long.

    Cline first replaces repeated reads of one file by notes; messages here do not tell which file, so that is left out.
    """

    @property
    def limit(self) -> int:
        """Tokens at which it cuts."""
        margins = {64_000: 27_000, 128_000: 30_000, 200_000: 40_000}
        margin = margins.get(self.window)
        return self.window - margin if margin else max(self.window - 40_000, self.window * 4 // 5)

    def cut(self, fold: DropFold, log: Log, length: int, held: Cut) -> Cut:
        """Return what is left out in a request of the first messages."""
        size = fold.size(length, held)
        if size < self.limit:
            return held
        units = log.units
        first = bisect_left(units, min(log.head, length)) + 1  # behind the first pair: the first message and its answer
        low = max(first, bisect_left(units, held.start))
        count = bisect_left(units, length) - low
        gone = count * 3 // 4 if size > 2 * self.limit else count // 2
        if gone < 1:
            return held
        return Cut(units[first], units[low + gone], _DROPPED.tokens(self.counts))


@dataclass(frozen=True, slots=True)
class Summarise(_Drops):
    """Qwen Code's compression: at a share of the window the older part is replaced by a summary, which costs a request.

    It cuts between units (a user's message, a tool round) and keeps the first message; the original cuts before user
    messages only, so that a sub-agent with one instruction would lose everything.

    Attributes
    ----------
    trigger_share
        Share of the window at which it summarises.
    keep_share
        Share of the conversation that stays, the newest.
    smallest_share
        Nothing happens if the part to summarise is a smaller share of the conversation.
    summary_tokens
        Tokens of a summary. An assumption: no client publishes it.
    """

    trigger_share: float = 0.7
    keep_share: float = 0.3
    smallest_share: float = 0.05
    summary_tokens: int = 1_500

    def cut(self, fold: DropFold, log: Log, length: int, held: Cut) -> Cut:
        """Return what is left out in a request of the first messages."""
        size = fold.size(length, held)
        if size < self.trigger_share * self.window:
            return held
        raw, head = fold.raw, min(log.head, length)
        low = max(head, held.start)
        span = raw[length] - raw[low]
        units = log.units
        count = bisect_left(units, length)
        place = bisect_left(units, raw[length] - self.keep_share * span, 0, count, key=raw.__getitem__)
        start = units[place] if place < count else length
        if start <= low or raw[start] - raw[low] < self.smallest_share * size:
            return held
        return Cut(head, start, self.summary_tokens + self.kept_apart(fold, log, head, start))

    def kept_apart(self, fold: DropFold, log: Log, head: int, start: int) -> int:
        """Return the tokens of messages before the cut that stay beside the summary."""
        return 0

    def note(self, cut: Cut) -> Message:
        """Return what stands for the messages left out."""
        return user(Known(cut.lead))

    def summary(self, prompt_tokens: int) -> Summary:
        """Return the request that writes it."""
        return Summary(prompt_tokens, self.summary_tokens)


@dataclass(frozen=True, slots=True)
class SummariseAll(Summarise):
    """Codex's compaction: at 90 % of the window a summary and the newest user messages replace everything.

    Attributes
    ----------
    keep_user_tokens
        Tokens of the newest user messages that stay, beside the first.
    """

    trigger_share: float = 0.9
    keep_share: float = 0.0
    keep_user_tokens: int = 20_000

    def kept_apart(self, fold: DropFold, log: Log, head: int, start: int) -> int:
        """Return the tokens of messages before the cut that stay beside the summary."""
        tokens = 0
        for at in reversed(log.turns[bisect_left(log.turns, head) : bisect_left(log.turns, start)]):
            tokens += fold.raw[at + 1] - fold.raw[at]
            if tokens >= self.keep_user_tokens:
                return self.keep_user_tokens
        return tokens
