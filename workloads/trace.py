"""A trace: calls as columns, in order of arrival."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Index = NDArray[Any]

MAX_TOKENS = 100_000_000  # a column above it is not tokens: a hundred times the longest window on offer (facts: 1M)
BLOCK_S = 300.0  # shortest block of the bootstrap: longer than the bursts and most think times of the public traces


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A categorical column: ``names[codes[i]]`` is the label of row i.

    Attributes
    ----------
    codes
        int32[n], each in ``0 .. len(names) - 1``.
    names
        The categories.
    """

    codes: NDArray[np.int32]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        codes = np.ascontiguousarray(self.codes, dtype=np.int32)
        object.__setattr__(self, "codes", codes)
        if len(codes) and not (codes.min() >= 0 and codes.max() < len(self.names)):
            raise ValueError(f"label codes must lie in 0 .. {len(self.names) - 1}")

    @classmethod
    def of(cls, values: Sequence[str]) -> Self:
        """Return the column of these strings; categories in order of first appearance."""
        seen: dict[str, int] = {}
        codes = np.fromiter((seen.setdefault(value, len(seen)) for value in values), np.int32, len(values))
        return cls(codes, tuple(seen))

    @classmethod
    def constant(cls, name: str, n: int) -> Self:
        """Return n times the same label."""
        return cls(np.zeros(n, np.int32), (name,))

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, index: Index | slice) -> Labels:
        """Return the rows at ``index``; the categories stay."""
        return Labels(self.codes[index], self.names)

    def strings(self) -> list[str]:
        """Return the labels as text, one a row."""
        return [self.names[code] for code in self.codes]

    @staticmethod
    def concat(parts: Sequence[Labels]) -> Labels:
        """Return the columns one after the other, categories merged by name."""
        names: dict[str, int] = {}
        codes = []
        for part in parts:
            table = np.array([names.setdefault(name, len(names)) for name in part.names], np.int32)
            codes.append(table[part.codes] if len(part) else part.codes)
        return Labels(np.concatenate(codes), tuple(names))


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """What prompts are made of: a ragged column of segment ids, so that a prefix cache can tell what prompts share.

    Row i holds ``ids[offsets[i]:offsets[i + 1]]``, from the start of its prompt. Equal ids mean equal contents. Prompt
    tokens beyond the row's segments belong to no other prompt.

    Attributes
    ----------
    offsets
        int64[n + 1], from 0, nondecreasing.
    ids
        int64[m].
    tokens
        int64[m]: tokens of each segment, at least 1.
    block
        Tokens of a block in the source; a segment is a whole number of blocks, the last of a prompt may be partial.
    """

    offsets: Ints
    ids: Ints
    tokens: Ints
    block: int = 1

    def __post_init__(self) -> None:
        for name in ("offsets", "ids", "tokens"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=np.int64))
        offsets, m = self.offsets, len(self.ids)
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != m or bool((np.diff(offsets) < 0).any()):
            raise ValueError(f"segment offsets must rise from 0 to {m}")
        if len(self.tokens) != m or (m and self.tokens.min() < 1) or self.block < 1:
            raise ValueError("every segment needs a token count of at least 1, and block must be at least 1")

    @classmethod
    def none(cls, n: int) -> Self:
        """Return n rows without segments."""
        return cls(np.zeros(n + 1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def blocks(cls, offsets: Ints, ids: Ints, prompt_tokens: Ints, block: int) -> Self:
        """Return prompts cut into blocks from their start; the last of a row is partial where the prompt ends in it.

        A row has no more blocks than its prompt needs.
        """
        tokens = np.full(len(ids), block, np.int64)
        counts = np.diff(offsets)
        filled = counts > 0
        tokens[offsets[1:][filled] - 1] = np.minimum(block, prompt_tokens - block * (counts - 1))[filled]
        return cls(offsets, ids, tokens, block)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> tuple[Ints, Ints]:
        """Return ``(ids, tokens)`` of row i."""
        part = slice(self.offsets[i], self.offsets[i + 1])
        return self.ids[part], self.tokens[part]

    def take(self, index: Index | slice) -> Segments:
        """Return the rows at ``index``."""
        starts, counts = self.offsets[:-1][index], np.diff(self.offsets)[index]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        at = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
        return Segments(offsets, self.ids[at], self.tokens[at], self.block)

    @staticmethod
    def concat(parts: Sequence[Segments]) -> Segments:
        """Return the columns one after the other; equal ids stay equal contents."""
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        return Segments(
            np.concatenate(([0], np.cumsum(counts))),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.tokens for part in parts]),
            math.gcd(*(part.block for part in parts)),
        )

    def totals(self) -> Ints:
        """Return int64[n]: tokens that the segments of each row cover."""
        return np.diff(self._sums()[self.offsets])

    def ends(self) -> Ints:
        """Return int64[m]: tokens of its row up to the end of each segment."""
        sums = self._sums()
        ends: Ints = sums[1:] - np.repeat(sums[self.offsets[:-1]], np.diff(self.offsets))
        return ends

    def _sums(self) -> Ints:
        return np.concatenate(([0], np.cumsum(self.tokens)))


_PLAIN = {
    "session": np.int64,
    "truncated": np.bool_,
    "cached_tokens": np.int64,
    "reasoning_tokens": np.int64,
    "session_s": np.float64,
    "think_s": np.float64,
    "service_s": np.float64,
    "patience_s": np.float64,
    "timeout_s": np.float64,
}
_JOIN: dict[str, Callable[[Any], Any]] = {"kind": Labels.concat, "script": Labels.concat, "segments": Segments.concat}


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Calls in order of arrival, one row a call. Optional columns are None where the source does not tell.

    Attributes
    ----------
    arrival_s
        float64[n], seconds, at least 0, nondecreasing.
    prompt_tokens
        int64[n], at least 0.
    output_tokens
        int64[n], at least 0: the *true* length, what the model would write if nothing stopped it. Where ``truncated``
        is true only a lower bound of it was recorded.
    kind
        Kind of call (chat, agent, file-write...).
    script
        Writing system of the text.
    session
        int64[n]: calls of one session share it.
    segments
        What the prompts share.
    truncated
        bool[n]: the answer was cut by a limit, its true length is right-censored.
    cached_tokens
        int64[n]: prompt tokens that the recorded server read from its cache.
    reasoning_tokens
        int64[n]: output tokens spent on hidden reasoning (part of ``output_tokens``).
    session_s
        float64[n]: seconds since the session's first call.
    think_s
        float64[n]: seconds between the previous answer in the session and this call; NaN where unknown.
    service_s
        float64[n]: recorded seconds from call to end of the answer; NaN where unknown.
    patience_s, timeout_s
        float64[n]: seconds after which the client gives the call up if its first token, or the end of its answer, is
        not there; NaN where it never does.

    Raises
    ------
    ValueError
        If a column has another length than ``arrival_s`` or a value is out of range.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    kind: Labels | None = None
    script: Labels | None = None
    session: Ints | None = None
    segments: Segments | None = None
    truncated: Bools | None = None
    cached_tokens: Ints | None = None
    reasoning_tokens: Ints | None = None
    session_s: Floats | None = None
    think_s: Floats | None = None
    service_s: Floats | None = None
    patience_s: Floats | None = None
    timeout_s: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrival_s", _column("arrival_s", self.arrival_s, np.float64))
        object.__setattr__(self, "prompt_tokens", _column("prompt_tokens", self.prompt_tokens, np.int64))
        object.__setattr__(self, "output_tokens", _column("output_tokens", self.output_tokens, np.int64))
        for name, dtype in _PLAIN.items():
            if (values := getattr(self, name)) is not None:
                object.__setattr__(self, name, _column(name, values, dtype))
        n = len(self.arrival_s)
        for field in fields(self):
            values = getattr(self, field.name)
            if values is not None and len(values) != n:
                raise ValueError(f"{field.name} has {len(values)} rows, arrival_s has {n}")
        if n == 0:
            return
        arrival = self.arrival_s
        if not (arrival[0] >= 0 and math.isfinite(arrival[-1]) and bool((arrival[1:] >= arrival[:-1]).all())):
            raise ValueError("arrival_s must be finite, at least 0 and nondecreasing")
        for name in ("prompt_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"):
            counts = getattr(self, name)
            if counts is not None and not (counts.min() >= 0 and counts.max() <= MAX_TOKENS):
                raise ValueError(f"{name} must lie in 0 .. {MAX_TOKENS:,}")

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __getitem__(self, rows: slice) -> Trace:
        return self.take(np.arange(len(self))[rows])

    def take(self, index: ArrayLike) -> Trace:
        """Return the rows at ``index`` (integers or a mask), which must keep the order of arrival."""
        at = np.asarray(index)
        columns: dict[str, Any] = {name: _rows(values, at) for name, values in self._columns() if values is not None}
        return Trace(**columns)

    def _columns(self) -> Iterator[tuple[str, Any]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    @staticmethod
    def concat(traces: Sequence[Trace]) -> Trace:
        """Return the traces one after the other; their arrivals must already be in order.

        Raises
        ------
        ValueError
            If one trace has an optional column that another lacks, or the arrivals are out of order.
        """
        return Trace(**_stacked(traces)) if traces else Trace.empty()

    @staticmethod
    def merge(traces: Sequence[Trace]) -> Trace:
        """Return the calls of all traces in order of arrival, at equal times in the order of the traces.

        Raises
        ------
        ValueError
            If one trace has an optional column that another lacks.
        """
        if not traces:
            return Trace.empty()
        columns = _stacked(traces)
        order = np.argsort(columns["arrival_s"], kind="stable")
        return Trace(**{name: _rows(values, order) for name, values in columns.items()})

    @staticmethod
    def empty() -> Trace:
        """Return a trace without calls."""
        return Trace(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0

    def scaled(self, factor: float) -> Trace:
        """Return the trace with all arrival times multiplied by ``factor``: 0.5 doubles the rate."""
        return replace(self, arrival_s=self.arrival_s * factor)

    def prefix_reuse(self) -> float | None:
        """Return the share of prompt blocks that an unlimited prefix cache would find, or None without segments.

        In order of arrival; a block is found if it and all blocks before it in its prompt were in earlier prompts.
        Blocks of the source count alike, also partial ones (so Mooncake's synthetic trace gives 77,953 / 121,877).
        """
        if self.segments is None or len(self.segments.ids) == 0:
            return None
        segments = self.segments
        counts = np.diff(segments.offsets)
        row = np.repeat(np.arange(len(segments)), counts)
        _, first, inverse = np.unique(segments.ids, return_index=True, return_inverse=True)
        new = row[first][inverse] == row  # not in any earlier prompt
        news = np.concatenate(([0], np.cumsum(new)))
        hit = news[1:] == np.repeat(news[segments.offsets[:-1]], counts)  # nothing new so far in this prompt
        blocks = -(-segments.tokens // segments.block)
        return float(blocks[hit].sum() / blocks.sum())

    def resample(self, generator: np.random.Generator, block_s: float = BLOCK_S) -> Trace:
        """Return a bootstrap of the trace: contiguous blocks of time, drawn with replacement, of the same total length.

        A circular block bootstrap (Politis and Romano 1992): each block starts at a uniform time and wraps around the
        end, so every call is drawn once on average. A session belongs to the block of its first call and comes whole,
        with its own gaps, under a new session number; segment ids are kept. Blocks are ``block_s`` long, the last one
        shorter.

        Parameters
        ----------
        generator
            Where the starts are drawn from.
        block_s
            Length of a block in seconds, at least 300: shorter ones would cut bursts apart.

        Raises
        ------
        ValueError
            If ``block_s`` is below 300.
        """
        if not block_s >= BLOCK_S:
            raise ValueError(f"blocks must be at least {BLOCK_S:g} s long, got {block_s:g}")
        n = len(self)
        if n < 2:
            return self
        start = self.arrival_s - self.arrival_s[0]
        circle = self.span_s * n / (n - 1)  # the mean gap closes the circle between last call and first
        head, family = np.arange(n), np.arange(n)  # first call of each call's session; the session's number
        if self.session is not None:
            _, first, family = np.unique(self.session, return_index=True, return_inverse=True)
            head = first[family]
        by_head = np.argsort(head, kind="stable")
        heads = start[head][by_head]
        rows, times, sessions = [], [], []
        for k in range(max(1, math.ceil(circle / block_s))):
            length = min(block_s, circle - k * block_s)
            origin = generator.uniform(0.0, circle)
            for turn in (0.0, circle):  # what the block covers before and after the wrap
                low, high = np.searchsorted(heads, (origin - turn, origin - turn + length))
                picked = by_head[low:high]
                rows.append(picked)
                times.append(start[picked] + turn - origin + k * block_s)
                sessions.append(family[picked] + k * n)
        index, at = np.concatenate(rows), np.concatenate(times)
        order = np.lexsort((index, at))
        columns: dict[str, Any] = {
            name: None if values is None else _rows(values, index[order]) for name, values in self._columns()
        }
        columns["arrival_s"] = np.maximum(at[order], 0.0)
        if self.session is not None:
            columns["session"] = np.concatenate(sessions)[order]
        return Trace(**columns)


def _column(name: str, values: ArrayLike, dtype: type) -> NDArray[Any]:
    given = np.asarray(values)
    if given.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got {given.ndim}")
    if dtype is np.int64 and given.dtype.kind == "f" and not bool(np.equal(np.mod(given, 1), 0).all()):
        raise ValueError(f"{name} must be whole numbers")
    return np.ascontiguousarray(given, dtype=dtype)


def _stacked(traces: Sequence[Trace]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for field in fields(Trace):
        parts = [getattr(trace, field.name) for trace in traces]
        missing = sum(part is None for part in parts)
        if missing == len(parts):
            continue
        if missing:
            raise ValueError(f"{missing} of {len(parts)} traces have no column {field.name!r}")
        columns[field.name] = _JOIN.get(field.name, np.concatenate)(parts)
    return columns


def _rows(values: Any, index: Index) -> Any:  # noqa: ANN401 - any column to the same kind of column
    return values[index] if isinstance(values, np.ndarray) else values.take(index)
