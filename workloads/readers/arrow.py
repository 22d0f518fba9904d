"""Arrow columns as numpy arrays, without pandas (which pyarrow's own conversion imports: half a second)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute
from pyarrow import json as arrow_json

from workloads.readers.stream import Chunk
from workloads.trace import Labels


def flat_lines(chunk: Chunk, schema: pa.Schema) -> pa.Table | None:
    """Return JSON lines that are one object each, of just these fields and every one filled, as columns; else None.

    Arrow also takes several objects on a line and one over several lines, so the text is looked at first: where each
    of its braces stands at an end of a line, rows are lines. What is then left to Arrow is read as Python reads it.
    """
    data = chunk.data.removesuffix(b"\n")
    lines = data.count(b"{")
    if not data.startswith(b"{") or not lines == data.count(b"\n") + 1 == data.count(b"}\n{") + 1:
        return None
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except pa.ArrowInvalid:
        return None
    whole = table.num_rows == lines and not any(_empty(column) for column in table.columns)
    return table if whole else None


def _empty(column: pa.ChunkedArray) -> bool:
    """Return whether a cell, or an item of a list in one, is null."""
    return bool(column.null_count or (pa.types.is_list(column.type) and compute.list_flatten(column).null_count))


def numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of numbers or booleans; empty cells of floating-point columns become NaN.

    Integers come as int64, floating-point numbers as float64.
    """
    kind = column.type
    if pa.types.is_boolean(kind):
        return numbers(column.cast(pa.uint8())).astype(np.bool_)
    target, dtype = (pa.float64(), np.float64) if pa.types.is_floating(kind) else (pa.int64(), np.int64)
    if kind != target:
        column = column.cast(target)
    if column.null_count:
        column = compute.fill_null(column, float("nan"))
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
        if len(chunk)
    ]
    if not parts:
        return np.empty(0, dtype)
    return np.concatenate(parts)


def labels(column: pa.ChunkedArray) -> Labels:
    """Return a column of text as categories."""
    whole = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = whole.unify_dictionaries()
    codes = numbers(pa.chunked_array([chunk.indices for chunk in whole.chunks], whole.type.index_type))
    names = whole.chunk(0).dictionary.to_pylist() if whole.num_chunks else []
    return Labels(codes.astype(np.int32), tuple(names))
