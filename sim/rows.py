"""Logs of rows: written one at a time at the speed of ``struct``, read as numpy columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]
"""A structured array, one record a row."""

BLOCK = 4096
"""Rows that are handed on at once."""

_CODES = {"f8": "d", "f4": "f", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "b1": "?"}


class Log:
    """Takes rows and hands them on in blocks: ``log.rows.append(log.pack(...))``, now and then ``log.flush()``.

    Parameters
    ----------
    dtype
        The row: a structured type, aligned as C does (the fast way of ``struct``).
    take
        Gets every block, as an array of its own.

    Attributes
    ----------
    pack
        Make a row of its fields, in order.
    rows
        Rows that have not been handed on.
    """

    __slots__ = ("_dtype", "_take", "pack", "rows")

    def __init__(self, dtype: np.dtype[Any], take: Callable[[Rows], object]) -> None:
        fields = [dtype[name].str[1:] for name in dtype.names or ()]
        row = Struct("@" + "".join(_CODES[field] for field in fields))
        if row.size < dtype.itemsize:
            row = Struct(f"{row.format}{dtype.itemsize - row.size}x")
        self.pack = row.pack
        self.rows: list[bytes] = []
        self._dtype = dtype
        self._take = take

    def flush(self) -> None:
        """Hand on the rows."""
        if self.rows:
            block = np.frombuffer(b"".join(self.rows), self._dtype)
            self.rows.clear()
            self._take(block)


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Some rows of a structured array, copied column by column as they are asked for: all columns are ten times as big.

    Attributes
    ----------
    rows
        The array.
    mask
        Which of its rows; shape of ``rows``.
    """

    rows: Rows
    mask: NDArray[np.bool_]

    @classmethod
    def every(cls, rows: Rows) -> Self:
        """Return all rows of an array."""
        return cls(rows, np.ones(len(rows), dtype=bool))

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return a column of the chosen rows."""
        return self.rows[column][self.mask]

    def __len__(self) -> int:
        """Return how many rows are chosen."""
        return int(np.count_nonzero(self.mask))

    def where(self, condition: NDArray[np.bool_]) -> Chosen:
        """Return those of the chosen rows that meet a condition; its shape is that of a column."""
        mask = self.mask.copy()
        mask[mask] = condition
        return Chosen(self.rows, mask)
