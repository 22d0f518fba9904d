"""A conversation: immutable messages that know their size, and an immutable history over a shared log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, overload

from policies.tokens import Counts, Estimator, count_classes


class Content(Protocol):
    """What a message holds, as far as its size goes."""

    def tokens(self, estimator: Estimator) -> int:
        """Return its estimated tokens."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text, its characters counted by class once."""

    text: str
    counts: Counts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", count_classes(self.text))

    def tokens(self, estimator: Estimator) -> int:
        """Return its estimated tokens."""
        return estimator.estimate_counts(self.counts)


class Blend:
    """A kind of text known by its character statistics: Russian prose, Python code, JSON. Compared by identity.

    Parameters
    ----------
    name
        What it is.
    counts
        Class counts of a sample of it; the larger, the finer.
    """

    __slots__ = ("_characters", "_latest", "_tokens", "_whole", "counts", "name")

    def __init__(self, name: str, counts: Counts) -> None:
        if not counts.characters:
            raise ValueError(f"blend {name!r}: its sample holds no characters")
        self.name = name
        self.counts = counts
        self._characters = counts.characters
        self._tokens: dict[Estimator, int] = {}
        self._latest: Estimator | None = None
        self._whole = 0

    def tokens(self, estimator: Estimator, characters: int) -> int:
        """Return the estimate for so many characters of it, rounded up."""
        if estimator is not self._latest:
            whole = self._tokens.get(estimator)
            if whole is None:
                whole = self._tokens[estimator] = estimator.estimate_counts(self.counts)
            self._latest, self._whole = estimator, whole
        return -(-self._whole * characters // self._characters)


@dataclass(frozen=True, slots=True)
class Sample:
    """So many characters of a blend: the content of a simulated message, which has no text."""

    blend: Blend
    characters: int

    def tokens(self, estimator: Estimator) -> int:
        """Return its estimated tokens."""
        return self.blend.tokens(estimator, self.characters)


@dataclass(frozen=True, slots=True)
class Known:
    """Content of which only the tokens are known, from a recording; every estimator is right about it."""

    count: int

    def tokens(self, estimator: Estimator) -> int:
        """Return the tokens."""
        return self.count


NOTHING = Known(0)
"""Empty content."""


class Role(Enum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"

    __hash__ = object.__hash__


_SYSTEM, _USER, _ASSISTANT, _TOOL = Role  # of every message: a look into an enumeration takes its time


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of an assistant's message.

    Attributes
    ----------
    id
        What its result refers to it by; unique among the calls that are open at a time.
    name
        The tool.
    arguments
        What it is called with.
    """

    id: str
    name: str = ""
    arguments: Content = NOTHING


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. It never changes, so its estimate is computed once and remembered.

    Attributes
    ----------
    role
        Who speaks.
    content
        What is said.
    calls
        The tool calls of an assistant's message; each must be answered before anything else is said.
    answers
        In a tool's message, the id of the call it is the result of.
    """

    role: Role
    content: Content
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    _known: tuple[Estimator | None, int] = field(default=(None, 0), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.calls and self.role is not _ASSISTANT:
            raise HistoryError(f"a {self.role.value} message cannot call tools")
        if (self.answers is None) is (self.role is _TOOL):
            raise HistoryError("a tool message, and no other, says which call it answers")

    def tokens(self, estimator: Estimator) -> int:
        """Return its estimated tokens, tool calls included."""
        whose, tokens = self._known
        if whose is not estimator:
            tokens = self.content.tokens(estimator)
            for call in self.calls:
                tokens += call.arguments.tokens(estimator)
            object.__setattr__(self, "_known", (estimator, tokens))
        return tokens

    def saying(self, content: Content) -> Message:
        """Return the same message with other content."""
        return Message(self.role, content, self.calls, self.answers)


def system(content: Content | str) -> Message:
    """Return a system message."""
    return Message(_SYSTEM, _content(content))


def user(content: Content | str) -> Message:
    """Return a user's message."""
    return Message(_USER, _content(content))


def assistant(content: Content | str = NOTHING, *calls: ToolCall) -> Message:
    """Return an assistant's message: text, tool calls, or both."""
    return Message(_ASSISTANT, _content(content), calls)


def tool_result(answers: str, content: Content | str) -> Message:
    """Return the result of a tool call."""
    return Message(_TOOL, _content(content), (), answers)


def _content(content: Content | str) -> Content:
    return Text(content) if isinstance(content, str) else content


class HistoryError(ValueError):
    """A conversation that no API accepts: a tool result without its call, or a call without its result."""


class Log:
    """The messages under one or more histories, with what policies remember about them. Only ever grows.

    Attributes
    ----------
    messages
        All messages.
    units
        Where each unit begins that stays together: a system or user message; an assistant's message with the results
        of its tool calls.
    turns
        Where each user message is.
    results
        Where each tool result is.
    tools
        The tool of each result.
    head
        Messages at the front that no policy drops: system messages and the first message of the user.
    memo
        What each policy folded over the messages so far.
    latest
        The memo used last, with its policy.
    """

    __slots__ = ("head", "latest", "memo", "messages", "results", "tools", "turns", "units")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.units: list[int] = []
        self.turns: list[int] = []
        self.results: list[int] = []
        self.tools: list[str] = []
        self.head = 0
        self.memo: dict[Any, Any] = {}
        self.latest: tuple[Any, Any] = (None, None)

    def append(self, message: Message, tool: str) -> None:
        """Add a message that is known to fit; ``tool`` names the tool of a result."""
        at = len(self.messages)
        self.messages.append(message)
        role = message.role
        if role is _TOOL:
            self.results.append(at)
            self.tools.append(tool)
            return
        self.units.append(at)
        if role is _USER:
            self.turns.append(at)
            if self.head == at and len(self.turns) == 1:
                self.head = at + 1
        elif role is _SYSTEM and self.head == at and not self.turns:
            self.head = at + 1


class History(Sequence[Message]):
    """A conversation so far. Appending returns a new history; this one never changes.

    Histories that grew from one another share one log, so appending and what policies fold over the log cost the new
    message only.

    Raises
    ------
    HistoryError
        On appending a tool result that answers no open call, or anything else while calls are open.
    """

    __slots__ = ("_length", "log", "open")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.log = Log()
        self._length = 0
        self.open: tuple[ToolCall, ...] = ()
        """Tool calls that still lack their result."""
        for message in messages:
            grown = self.append(message)
            self._length, self.open = grown._length, grown.open

    def append(self, message: Message) -> History:
        """Return the history with one more message."""
        role, tool, at = message.role, "", self._length
        if role is _TOOL:
            for place, call in enumerate(self.open):
                if call.id == message.answers:
                    tool = call.name
                    still_open = self.open[:place] + self.open[place + 1 :]
                    break
            else:
                raise HistoryError(f"message {at}: result of the tool call {message.answers!r}, which is not open")
        elif self.open:
            raise HistoryError(f"message {at}: the tool call {self.open[0].id!r} has no result")
        else:
            still_open = message.calls
        log = self.log
        if at < len(log.messages):
            if log.messages[at] is not message:
                log = self._fork()
                log.append(message, tool)
        else:
            log.append(message, tool)
        grown = History.__new__(History)
        grown.log, grown._length, grown.open = log, at + 1, still_open
        return grown

    def _fork(self) -> Log:
        log = Log()
        tools = iter(self.log.tools)
        for message in self:
            log.append(message, next(tools) if message.role is _TOOL else "")
        return log

    def check_complete(self) -> None:
        """Raise `HistoryError` if a tool call still lacks its result: no such history can be sent."""
        if self.open:
            raise HistoryError(f"message {self._length}: the tool call {self.open[0].id!r} has no result")

    @property
    def head(self) -> int:
        """Messages at the front that no policy drops."""
        return min(self.log.head, self._length)

    def before(self, places: list[int]) -> int:
        """Return how many of a rising list of places in the log lie in this history."""
        return len(places) if self._length == len(self.log.messages) else bisect_left(places, self._length)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        messages = self.log.messages
        return (messages[at] for at in range(self._length))

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        if isinstance(at, slice):
            return [self.log.messages[place] for place in range(self._length)[at]]
        return self.log.messages[range(self._length)[at]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and len(self) == len(other) and all(map(Message.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]  # compared by its messages, as other sequences are
