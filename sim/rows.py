"""Logs of rows: written one at a time at the speed of ``struct``, read as numpy columns."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]
"""A structured array, one record a row."""

BLOCK = 4096
"""Rows that are handed on at once."""

_CODES = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "b1": "?"}


class Log:
    """Takes rows and hands them on in blocks.

    Parameters
    ----------
    dtype
        The row: a structured type, aligned as C does (the fast way of ``struct``).
    take
        Gets every block, as an array of its own.
    """

    __slots__ = ("_at", "_buffer", "_dtype", "_end", "_pack", "_size", "_take")

    def __init__(self, dtype: np.dtype[Any], take: Callable[[Rows], object]) -> None:
        fields = (dtype[name] for name in dtype.names or ())
        self._pack = Struct("@" + "".join(_CODES[field.str[1:]] for field in fields)).pack_into
        self._dtype = dtype
        self._take = take
        self._size = dtype.itemsize
        self._end = BLOCK * self._size
        self._buffer = bytearray(self._end)
        self._at = 0

    def add(self, *values: float) -> None:
        """Append a row."""
        self._pack(self._buffer, self._at, *values)
        self._at += self._size
        if self._at == self._end:
            self.flush()

    def flush(self) -> None:
        """Hand on what is there."""
        if self._at:
            rows = np.frombuffer(bytes(self._buffer[: self._at]), self._dtype)
            self._at = 0
            self._take(rows)
