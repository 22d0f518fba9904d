"""Joining an answer and its continuation into one text.

A model asked to go on often repeats the end of what it wrote, or opens a table again with the same head. What is
repeated is cut. The rules and thresholds are those of the client's later builds (its change 3966): an exact overlap
of at least 6 bytes and 4 characters, or of 4 bytes with Markdown structure, looked for in the last 4,000 characters;
and a replayed head of a table or heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce

SCANNED = 4_000
"""How far back an overlap is looked for, in characters."""

_STRUCTURE = re.compile(r"[|#`*\-\n]")
_HEADING = re.compile(r"#{1,6} \S")
_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?")


def join(texts: Iterable[str]) -> str:
    """Return an answer and its continuations as one text, in the order in which they were written."""
    return reduce(join_pair, texts, "")


def join_pair(text: str, continuation: str) -> str:
    """Return a text and its continuation without what the continuation repeats."""
    end = text[-SCANNED:]
    overlap = _overlap(end, continuation)
    if overlap:
        return text + continuation[overlap:]
    head = _replayed_head(end, continuation)
    between = "\n" if head and not text.endswith("\n") else ""  # a table's next row starts a line
    return text + between + continuation[head:]


def _overlap(text: str, continuation: str) -> int:
    """Return the length of the longest end of a text that a continuation starts with, if it is no chance."""
    for length in range(min(len(text), len(continuation)), 3, -1):
        if text.endswith(continuation[:length]):
            return length if _is_no_chance(continuation[:length]) else 0
    return 0


def _is_no_chance(shared: str) -> bool:
    size = len(shared.encode("utf-8", "surrogatepass"))
    return len(shared) >= 4 and (size >= 6 or (size >= 4 and _STRUCTURE.search(shared) is not None))


def _replayed_head(text: str, continuation: str) -> int:
    """Return the length of a table head or heading that the text's last block has and a continuation repeats."""
    lines = continuation.splitlines(keepends=True)
    head = lines[:2] if len(lines) > 1 and "|" in lines[0] and _RULE.fullmatch(lines[1].strip()) else lines[:1]
    if not head or not (len(head) == 2 or _HEADING.match(head[0])):
        return 0
    block = text.rstrip("\n").rpartition("\n\n")[2].splitlines()
    wanted = [line.strip() for line in head]
    starts = range(len(block) - len(wanted) + 1)
    found = any([line.strip() for line in block[start : start + len(wanted)]] == wanted for start in starts)
    return sum(map(len, head)) if found else 0
