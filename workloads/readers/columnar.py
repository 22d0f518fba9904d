"""The project's own trace files: Parquet and CSV with the columns of `workloads.trace.Trace`.

In CSV a row's segments are one cell, ``id:tokens id:tokens ...``, and ``segment_block`` repeats the block size.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, csv, parquet

from workloads.errors import BadInput, Fault, did_you_mean
from workloads.readers import values
from workloads.readers.arrow import labels, numbers
from workloads.readers.build import Build
from workloads.readers.recording import Recording
from workloads.readers.stream import MAX_RATIO, Chunk
from workloads.readers.table import FLAG, MAYBE_SECONDS, SECONDS, TEXT, TOKENS, Column, Kind, read_table
from workloads.trace import MAX_TOKENS, Labels, Segments, Trace

FREE_ROWS = 10_000_000  # so many rows may always come out of a Parquet file, whatever its size
BLOCK_KEY = b"slotsim.segment_block"


def _segment_cell(value: object) -> tuple[list[int], list[int]]:
    ids, tokens = [], []
    for pair in str(value).split():
        name, colon, size = pair.partition(":")
        if not (colon and name.lstrip("-").isdigit() and size.isdigit() and 1 <= int(size) <= MAX_TOKENS):
            raise values.Bad(f"must be pairs id:tokens separated by spaces, got {pair!r}")
        if not -(2**63) <= int(name) < 2**63:
            raise values.Bad(f"ids must have 64 bits, got {name}")
        ids.append(int(name))
        tokens.append(int(size))
    return ids, tokens


LONG_TEXT = Kind(str, pa.string(), object, lambda column: True)
COLUMNS = (
    Column("arrival_s", SECONDS),
    Column("prompt_tokens", TOKENS),
    Column("output_tokens", TOKENS),
    Column("kind", TEXT, required=False),
    Column("script", TEXT, required=False),
    Column("session", TEXT, required=False),
    Column("segments", LONG_TEXT, required=False),
    Column("segment_block", TOKENS, required=False),
    Column("truncated", FLAG, required=False),
    Column("cached_tokens", TOKENS, required=False),
    Column("reasoning_tokens", TOKENS, required=False),
    Column("session_s", MAYBE_SECONDS, required=False),
    Column("think_s", MAYBE_SECONDS, required=False),
    Column("service_s", MAYBE_SECONDS, required=False),
    Column("patience_s", MAYBE_SECONDS, required=False),
    Column("timeout_s", MAYBE_SECONDS, required=False),
)


def read_csv(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the calls of a CSV in the project's own columns."""
    rows, ignored = read_table(chunks, COLUMNS, build.log)
    build.ignore(ignored)
    columns: dict[str, Any] = dict(rows.columns)
    block = columns.pop("segment_block", None)
    for name in ("kind", "script"):
        if name in columns:
            columns[name] = Labels.of(columns[name])
    if "session" in columns:
        columns["session"] = session_numbers(columns["session"])
    if "segments" in columns:
        columns["segments"] = _segments(
            columns["segments"], rows.lines, build, int(block[0]) if block is not None else 1
        )
    return build.ordered(rows.lines, **columns)


def session_numbers(names: NDArray[Any]) -> NDArray[np.int64]:
    """Return session names as numbers: their own if all are numbers, else counted by first appearance."""
    try:
        return np.array([int(name) for name in names], np.int64)
    except (ValueError, OverflowError):
        return Labels.of(list(names)).codes.astype(np.int64)


def _segments(cells: NDArray[Any], lines: NDArray[np.int64], build: Build, block: int) -> Segments:
    offsets, ids, tokens = [0], [], []
    for line, cell in zip(lines, cells, strict=True):
        try:
            row_ids, row_tokens = _segment_cell(cell)
        except values.Bad as error:
            build.log.add(int(line), "segments", str(error), "bad value")
            row_ids, row_tokens = [], []
        ids += row_ids
        tokens += row_tokens
        offsets.append(len(ids))
    return Segments(np.array(offsets), np.array(ids, np.int64), np.array(tokens, np.int64), max(block, 1))


_ARROW: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "arrival_s": (pa.types.is_floating, "a floating-point number of seconds"),
    "prompt_tokens": (pa.types.is_integer, "an integer"),
    "output_tokens": (pa.types.is_integer, "an integer"),
    "session": (pa.types.is_integer, "an integer"),
    "truncated": (pa.types.is_boolean, "a boolean"),
    "cached_tokens": (pa.types.is_integer, "an integer"),
    "reasoning_tokens": (pa.types.is_integer, "an integer"),
    "session_s": (pa.types.is_floating, "a floating-point number of seconds"),
    "think_s": (pa.types.is_floating, "a floating-point number of seconds"),
    "service_s": (pa.types.is_floating, "a floating-point number of seconds"),
    "patience_s": (pa.types.is_floating, "a floating-point number of seconds"),
    "timeout_s": (pa.types.is_floating, "a floating-point number of seconds"),
    "kind": (lambda kind: pa.types.is_dictionary(kind) or pa.types.is_string(kind), "text"),
    "script": (lambda kind: pa.types.is_dictionary(kind) or pa.types.is_string(kind), "text"),
    "segment_ids": (lambda kind: pa.types.is_list(kind) and pa.types.is_integer(kind.value_type), "a list of integers"),
    "segment_tokens": (
        lambda kind: pa.types.is_list(kind) and pa.types.is_integer(kind.value_type),
        "a list of integers",
    ),
}
_MAYBE = ("session_s", "think_s", "service_s", "patience_s", "timeout_s")  # NaN is an empty cell
_REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")


def read_parquet(path: str | Path, build: Build) -> Recording:
    """Return the calls of a Parquet file in the project's own columns.

    Raises
    ------
    workloads.errors.BadInput
        If it is no Parquet, is damaged, swells beyond reason, or a column is missing, of another type or has empty
        cells.
    """
    try:
        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            if rows > FREE_ROWS and 24 * rows > MAX_RATIO * os.path.getsize(path):
                raise BadInput(Fault(f"swells more than {MAX_RATIO} : 1 when decompressed; that is no log", path))
            _check_schema(schema, build)
            columns = _columns(file, build)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(Fault(f"is no readable Parquet file ({str(error).splitlines()[0]})", path)) from None
    build.ignore([name for name in schema.names if name not in _ARROW])
    for name, values_ in columns.items():
        if name.endswith("_tokens"):
            _check(build, name, (values_ < 0) | (values_ > MAX_TOKENS), f"must lie in 0 .. {MAX_TOKENS:,}")
        elif name == "arrival_s":
            _check(build, name, ~((values_ >= 0) & (values_ <= values.MAX_SECONDS)), "must be finite, at least 0")
        elif name in ("patience_s", "timeout_s"):
            _check(build, name, (values_ < 0) | (values_ > values.MAX_SECONDS), "must be finite, at least 0, or empty")
    if build.log.count:
        raise build.log.fatal("a Parquet trace is used whole or not at all")
    return build.ordered(np.arange(1, rows + 1), **columns)


def _columns(file: parquet.ParquetFile, build: Build) -> dict[str, Any]:
    """Return the file's columns; read one by one, so that only one exists twice at a time."""
    columns: dict[str, Any] = {}
    lists: dict[str, pa.ChunkedArray] = {}
    for name in file.schema_arrow.names:
        if name not in _ARROW:
            continue
        column = file.read([name]).column(name)
        if column.null_count and name not in _MAYBE:
            first = compute.index(compute.is_null(column), True).as_py() + 1
            build.log.add(first, name, f"has {column.null_count:,} empty cells, the first in this row", "empty cells")
        elif name in ("kind", "script"):
            columns[name] = labels(column)
        elif name.startswith("segment_"):
            lists[name] = column
        else:
            columns[name] = numbers(column)
    if len(lists) == 2:
        block = (file.schema_arrow.metadata or {}).get(BLOCK_KEY, b"1")
        columns["segments"] = _segment_lists(lists, int(block) if block.isdigit() else 1, build)
    return columns


def _check_schema(schema: pa.Schema, build: Build) -> None:
    for name in _REQUIRED:
        if name not in schema.names:
            build.log.add(None, name, f"this column is missing{did_you_mean(name, schema.names)}")
    for name in schema.names:
        fair, what = _ARROW.get(name, (None, ""))
        if fair and not fair(schema.field(name).type):
            build.log.add(None, name, f"must be {what}, is {schema.field(name).type}")
    if build.log.count:
        raise build.log.fatal(f"a trace has the columns {', '.join(_REQUIRED)}")


def _check(build: Build, name: str, bad: NDArray[np.bool_], allowed: str) -> None:
    if bad.any():
        build.log.add(
            int(np.argmax(bad)) + 1, name, f"{int(bad.sum()):,} values out of range, the first here; {allowed}"
        )


def _segment_lists(lists: dict[str, pa.ChunkedArray], block: int, build: Build) -> Segments | None:
    ids, tokens = lists["segment_ids"], lists["segment_tokens"]
    counts = numbers(compute.list_value_length(ids))
    flat_ids, flat_tokens = compute.list_flatten(ids), compute.list_flatten(tokens)
    if not np.array_equal(counts, numbers(compute.list_value_length(tokens))):
        build.log.add(None, "segment_tokens", "must have as many values as segment_ids in every row")
    elif flat_ids.null_count or flat_tokens.null_count or (len(flat_tokens) and compute.min(flat_tokens).as_py() < 1):
        build.log.add(None, "segment_tokens", "must be at least 1 everywhere")
    else:
        offsets = np.concatenate(([0], np.cumsum(counts)))
        return Segments(offsets, numbers(flat_ids), numbers(flat_tokens), max(block, 1))
    return None


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace as Parquet or CSV, by the name's suffix; the file appears whole or not at all.

    Raises
    ------
    workloads.errors.BadInput
        If the suffix is neither ``.parquet`` nor ``.csv``, or the file cannot be written.
    """
    path = Path(path)
    writers: dict[str, Callable[[Trace, Path], None]] = {".parquet": _write_parquet, ".csv": _write_csv}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise BadInput(Fault(f"a trace is written as .parquet or .csv, not {path.suffix or 'without a suffix'}", path))
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as error:
        raise BadInput(Fault(f"cannot be written: {error.strerror}", path)) from None
    os.close(handle)
    try:
        write(trace, Path(name))
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        raise BadInput(Fault(f"cannot be written: {error.strerror}", path)) from None
    finally:
        Path(name).unlink(missing_ok=True)


def _flat(trace: Trace) -> dict[str, Any]:
    """Return the columns that Parquet and CSV share, as Arrow arrays by name."""
    flat: dict[str, Any] = {}
    for column in COLUMNS:
        values_ = getattr(trace, column.name, None)
        if isinstance(values_, Labels):
            flat[column.name] = pa.DictionaryArray.from_arrays(
                pa.array(values_.codes), pa.array(values_.names, pa.string())
            )
        elif isinstance(values_, np.ndarray):
            flat[column.name] = pa.array(values_)
    return flat


def _write_parquet(trace: Trace, path: Path) -> None:
    flat, metadata = _flat(trace), {}
    if trace.segments is not None:
        for name, values_ in (("segment_ids", trace.segments.ids), ("segment_tokens", trace.segments.tokens)):
            flat[name] = pa.LargeListArray.from_arrays(pa.array(trace.segments.offsets), pa.array(values_)).cast(
                pa.list_(pa.int64())
            )
        metadata[BLOCK_KEY] = str(trace.segments.block).encode()
    parquet.write_table(pa.table(flat, metadata=metadata or None), path, compression="zstd")


def _write_csv(trace: Trace, path: Path) -> None:
    flat = _flat(trace)
    if trace.segments is not None:
        rows = (trace.segments.row(i) for i in range(len(trace)))
        flat["segments"] = pa.array([" ".join(f"{i}:{t}" for i, t in zip(*row, strict=True)) for row in rows])
        flat["segment_block"] = pa.array(np.full(len(trace), trace.segments.block))
    for name, values_ in flat.items():
        if pa.types.is_dictionary(values_.type):
            flat[name] = values_.cast(pa.string())
        elif name in _MAYBE:
            flat[name] = compute.if_else(compute.is_nan(values_), pa.scalar(None, pa.float64()), values_)
    csv.write_csv(pa.table(flat), path)
