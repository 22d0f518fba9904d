"""Where each key of a TOML text stands: ``tomllib`` keeps no positions, and a fault without a line is hard to find.

The text has been parsed by ``tomllib`` before, so the scanner may trust that it is well formed.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping

Path = tuple[str | int, ...]
"""Keys and list indices from the top of a document down."""

_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'{3}(?:.|\n)*?\'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|[\[\]{}=,\n]|[^\s\[\]{}=,\#"']+''',
    re.DOTALL,
)


def split_key(text: str) -> tuple[str, ...]:
    """Return the parts of a dotted TOML key.

    Raises
    ------
    ValueError
        If it is no TOML key.
    """
    if "\n" in text or "=" in re.sub(r'"[^"]*"|\'[^\']*\'', "", text):
        raise ValueError("must be a dotted TOML key")
    node: object = tomllib.loads(f"{text} = 0")
    parts = []
    while isinstance(node, dict):
        ((part, node),) = node.items()
        parts.append(part)
    return tuple(parts)


def key_lines(text: str) -> Mapping[Path, int]:
    """Return the line, counted from 1, on which each key, table and element of a list of tables first stands."""
    lines: dict[Path, int] = {}
    tables: Counter[Path] = Counter()

    def note(base: Path, key: tuple[str, ...], line: int) -> Path:
        for part in key:
            base = (*base, part)
            lines.setdefault(base, line)
            if tables[base]:
                base = (*base, tables[base] - 1)
        return base

    tokens = _Tokens(text)
    prefix: Path = ()
    for word, line in tokens:
        if word == "[":
            double = tokens.skip("[")
            key, line = tokens.key_until("]")
            if double:
                tokens.skip("]")
                parent = note((), key[:-1], line)
                named = (*parent, key[-1])
                lines.setdefault(named, line)
                tables[named] += 1
                prefix = (*named, tables[named] - 1)
                lines.setdefault(prefix, line)
            else:
                prefix = note((), key, line)
                lines[prefix] = line
        elif word != "\n":
            tokens.back()
            key, line = tokens.key_until("=")
            _value(tokens, note(prefix, key, line), lines)
    return lines


class _Tokens:
    """The tokens of a text with their lines, comments left out."""

    def __init__(self, text: str) -> None:
        self._items: list[tuple[str, int]] = []
        line, done = 1, 0
        for match in _TOKEN.finditer(text):
            line += text.count("\n", done, match.start())
            done = match.start()
            if not match[0].startswith("#"):
                self._items.append((match[0], line))
        self._at = 0

    def __iter__(self) -> Iterator[tuple[str, int]]:
        while self.more:
            self._at += 1
            yield self._items[self._at - 1]

    @property
    def more(self) -> bool:
        return self._at < len(self._items)

    @property
    def line(self) -> int:
        """Line of the next token."""
        return self._items[self._at][1]

    def back(self) -> None:
        self._at -= 1

    def peek(self) -> str:
        return self._items[self._at][0]

    def skip(self, *words: str) -> bool:
        """Pass over the next token if it is one of these."""
        found = self.more and self.peek() in words
        self._at += found
        return found

    def key_until(self, end: str) -> tuple[tuple[str, ...], int]:
        line, start = self.line, self._at
        while self.peek() != end:
            self._at += 1
        # a bare dotted key with spaces around its dots comes as several tokens
        text = "".join(token for token, _ in self._items[start : self._at])
        self._at += 1
        return split_key(text), line


def _value(tokens: _Tokens, path: Path, lines: dict[Path, int]) -> None:
    """Pass over one value, noting the keys of inline tables in it."""
    word, _ = next(iter(tokens))
    if word == "{":
        while not tokens.skip("}"):
            if not tokens.skip("\n", ","):
                key, line = tokens.key_until("=")
                inner = path
                for part in key:
                    inner = (*inner, part)
                    lines.setdefault(inner, line)
                _value(tokens, inner, lines)
    elif word == "[":
        index = 0
        while not tokens.skip("]"):
            if not tokens.skip("\n", ","):
                lines.setdefault((*path, index), tokens.line)
                _value(tokens, (*path, index), lines)
                index += 1
    else:
        while tokens.more and tokens.peek() not in ("\n", ",", "]", "}"):  # a date may hold a space
            next(iter(tokens))
