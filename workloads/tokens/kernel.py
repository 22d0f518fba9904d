"""A table estimator in numpy: the same integer as `policies.tokens.Table`, faster.

A character is told in one byte: ASCII by itself, what is beyond by its class. So two neighbours are a number of 16
bits, and one table of 65,536 has all that the second of them weighs, for its pair and for its class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.tokens import Counts, Table
from policies.tokens.classes import ASCII_CLASSES, INDEX, class_of
from policies.tokens.counts import BLOCK, LEAD_CODES

_BEGINS: Final = (*range(0x80), *range(0x80, 0x10000, 0x10), *range(0x10000, 0x110000, 0x1000))
"""Code points at which another code may begin."""


def _code(point: int) -> int:
    return point if point < 0x80 else 0x80 - len(ASCII_CLASSES) + INDEX[class_of(chr(point))]


_CODES_BEGUN: Final = np.array([_code(point) for point in _BEGINS], np.uint8)
_CODES: Final = np.repeat(_CODES_BEGUN, np.diff(_BEGINS, append=0x110000))
"""Code of each code point, a lone surrogate among them."""
_LEADS: Final = np.zeros(256, np.uint8)
"""Lead code of each code: that of any of its characters."""
_LEADS[_CODES_BEGUN] = [LEAD_CODES[chr(point).encode("utf-8", "surrogatepass")[0]] for point in _BEGINS]


def _codes(text: str) -> NDArray[np.uint8]:
    return _CODES.take(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4"))


@dataclass(frozen=True, slots=True)
class FastTable:
    """A table that estimates texts with numpy; give it wherever an estimator is wanted.

    Attributes
    ----------
    table
        The weights.
    """

    table: Table
    _weights: NDArray[np.uint32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pairs = np.frombuffer(self.table.pairs, np.uint8).astype(np.uint32)
        weights = pairs[_LEADS & 0x1F | (_LEADS & 0xE0)[:, np.newaxis]].T  # the low byte is what stands before
        classes = self.table.classes[len(ASCII_CLASSES) :]
        weights[0x80 : 0x80 + len(classes)] += np.array(classes, np.uint32)[:, np.newaxis]
        object.__setattr__(self, "_weights", weights.ravel())

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    def estimate(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        weight, line = 0, "\n" + text  # before the first character stands a line's end
        for at in range(0, len(text), BLOCK):
            piece = line[at : at + BLOCK + 1]
            codes = piece.encode("ascii") if piece.isascii() else _codes(piece)
            neighbours = np.ndarray(len(piece) - 1, "<u2", codes, strides=(1,))
            weight += int(self._weights.take(neighbours).sum(dtype=np.uint32))
        return self.table.tokens(weight, text)

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of class counts, rounded up."""
        return self.table.estimate_counts(counts)
