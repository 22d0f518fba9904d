"""CSV with known columns: a fast path for clean chunks, a careful one that names every bad cell."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from workloads.errors import did_you_mean
from workloads.readers import values
from workloads.readers.arrow import numbers
from workloads.readers.faults import FaultLog
from workloads.readers.stream import Chunk
from workloads.trace import MAX_TOKENS

Column_ = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a column holds: how a cell is read with care, and the same as a whole column at once."""

    parse: Callable[[object], Any]
    arrow: pa.DataType
    dtype: Any
    fair: Callable[[Column_], bool]
    optional: bool = False  # an empty cell is NaN


TOKENS = Kind(values.tokens, pa.int64(), np.int64, lambda column: column.min() >= 0 and column.max() <= MAX_TOKENS)
SECONDS = Kind(
    values.seconds,
    pa.float64(),
    np.float64,
    lambda column: bool(np.isfinite(column).all()) and column.min() >= 0 and column.max() <= values.MAX_SECONDS,
)


def _maybe_seconds(value: object) -> float:
    return math.nan if value == "" else values.seconds(value)


MAYBE_SECONDS = Kind(
    _maybe_seconds,
    pa.float64(),
    np.float64,
    lambda column: not (np.isinf(column).any() or (column < 0).any() or (column > values.MAX_SECONDS).any()),
    optional=True,
)


def _flag(value: object) -> bool:
    if value not in ("0", "1", "true", "false"):
        raise values.Bad(f"must be true, false, 1 or 0, got {value!r}")
    return value in ("1", "true")


FLAG = Kind(_flag, pa.bool_(), np.bool_, lambda column: True)
TEXT = Kind(values.text, pa.string(), object, lambda column: max(map(len, column)) <= 200)


LAST_NS = values.timestamp(f"{values.LAST_YEAR}-12-31 23:59:59.999999999")
TIME = Kind(
    values.timestamp, pa.timestamp("ns"), np.int64, lambda column: column.min() >= 0 and column.max() <= LAST_NS
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a format.

    Attributes
    ----------
    name
        In the file's header.
    kind
        What its cells hold.
    required
        Whether the file must have it.
    """

    name: str
    kind: Kind
    required: bool = True


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table: one array a column (by the header's name), and the line each row stands on."""

    columns: dict[str, Column_]
    lines: NDArray[np.int64]


def read_table(chunks: Iterator[Chunk], columns: Sequence[Column], log: FaultLog) -> tuple[Rows, list[str]]:
    """Return the good rows of a CSV with a header line, and the names of the columns that were ignored.

    Bad cells go to ``log``; a row with one is left out.

    Raises
    ------
    workloads.errors.BadInput
        If the header lacks a required column or names one twice.
    """
    first = next(chunks, Chunk(1, b""))
    header, body = _header(first, columns, log)
    known = [column for column in columns if column.name in header]
    names = {column.name for column in known}
    parts = [_rows(chunk, header, known, log) for chunk in _chain(body, chunks) if chunk.data.strip()]
    joined = {
        column.name: np.concatenate([part.columns[column.name] for part in parts] or [np.empty(0, column.kind.dtype)])
        for column in known
    }
    lines = np.concatenate([part.lines for part in parts] or [np.empty(0, np.int64)])
    return Rows(joined, lines), [name for name in header if name not in names]


def _chain(first: Chunk, rest: Iterator[Chunk]) -> Iterator[Chunk]:
    yield first
    yield from rest


def _header(first: Chunk, columns: Sequence[Column], log: FaultLog) -> tuple[list[str], Chunk]:
    line, _, rest = first.data.partition(b"\n")
    names = split_header(line)
    missing = [column.name for column in columns if column.required and column.name not in names]
    twice = sorted({name for name in names if names.count(name) > 1})
    for name in missing:
        log.add(None, name, f"this column is missing from the header{did_you_mean(name, names)}")
    for name in twice:
        log.add(None, name, "this column stands twice in the header")
    if missing or twice:
        raise log.fatal(f"the header must name {', '.join(column.name for column in columns if column.required)}", 1)
    return names, Chunk(first.first + 1, rest)


def split_header(line: bytes) -> list[str]:
    """Return the column names of a header line; an empty list where it cannot be split."""
    try:
        row = next(csv.reader([line.decode("utf-8", "replace").strip("\r\n")]), [])
    except csv.Error:
        return []
    return [name.strip() for name in row]


def _rows(chunk: Chunk, header: Sequence[str], columns: Sequence[Column], log: FaultLog) -> Rows:
    return _fast(chunk, header, columns) or _careful(chunk, header, columns, log)


def _fast(chunk: Chunk, header: Sequence[str], columns: Sequence[Column]) -> Rows | None:
    """Return the chunk's rows, or None if anything at all is unusual about them."""
    if b"0x" in chunk.data or b"0X" in chunk.data:  # Arrow reads these as hexadecimal numbers
        return None
    options = arrow_csv.ConvertOptions(
        include_columns=[column.name for column in columns],
        column_types={column.name: column.kind.arrow for column in columns},
        null_values=[""],
        true_values=["1", "true"],
        false_values=["0", "false"],
        strings_can_be_null=False,
        timestamp_parsers=[arrow_csv.ISO8601],
    )
    read = arrow_csv.ReadOptions(column_names=list(header), use_threads=False, block_size=max(len(chunk.data), 1) + 1)
    try:
        table = arrow_csv.read_csv(io.BytesIO(chunk.data), read_options=read, convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError):
        return None
    lines = chunk.data.count(b"\n") + (not chunk.data.endswith(b"\n"))
    if table.num_rows != lines:
        return None
    found: dict[str, Column_] = {}
    for column in columns:
        cells = table.column(column.name)
        if cells.null_count and not column.kind.optional:
            return None
        is_text = column.kind.arrow == pa.string()
        array = np.array(cells.to_pylist(), object) if is_text else numbers(cells)
        if not column.kind.fair(array):
            return None
        found[column.name] = array
    return Rows(found, chunk.first + np.arange(lines, dtype=np.int64))


def _careful(chunk: Chunk, header: Sequence[str], columns: Sequence[Column], log: FaultLog) -> Rows:
    """Return the chunk's good rows, cell by cell, and note the faults of the others."""
    at = [header.index(column.name) for column in columns]
    kept: list[list[Any]] = [[] for _ in columns]
    lines: list[int] = []
    numbers = _Numbered(chunk)
    reader = csv.reader(numbers, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            log.add(numbers.line, None, f"is no CSV: {error}", "is no CSV")
            reader = csv.reader(numbers, strict=True)
            continue
        if row is None:
            break
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            log.add(numbers.line, None, f"has {len(row)} cells, the header has {len(header)}", "other number of cells")
            continue
        cells, bad = [], False
        for column, i in zip(columns, at, strict=True):
            try:
                cells.append(column.kind.parse(row[i]))
            except values.Bad as error:
                log.add(numbers.line, column.name, str(error), "bad value")
                bad = True
        if not bad:
            lines.append(numbers.line)
            for column_cells, cell in zip(kept, cells, strict=True):
                column_cells.append(cell)
    arrays = {
        column.name: np.array(column_cells, column.kind.dtype)
        for column, column_cells in zip(columns, kept, strict=True)
    }
    return Rows(arrays, np.array(lines, np.int64))


class _Numbered:
    """The lines of a chunk as text, remembering the number of the last one handed out."""

    def __init__(self, chunk: Chunk) -> None:
        self._lines = chunk.lines()
        self.line = chunk.first

    def __iter__(self) -> _Numbered:
        return self

    def __next__(self) -> str:
        self.line, line = next(self._lines)
        return line.decode("utf-8", "replace")
