"""Arrow columns as numpy arrays, without pandas (which pyarrow's own conversion imports: half a second)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from workloads.trace import Labels


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
