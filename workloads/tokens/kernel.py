"""A table estimator in numpy: the same integer as `policies.tokens.Table`, faster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.tokens import Counts, Table
from policies.tokens.classes import CELL_OF_LOW, CELL_TABLE, EDGES, INDEX, OTHER, astral_class
from policies.tokens.counts import AT_START, BLOCK, CONTINUATION, LEAD_CODES

_KIND: Final = np.uint8(0x1F)
_BEFORE: Final = np.uint8(0xE0)
_OF_LEAD: Final[NDArray[np.uint8]] = np.frombuffer(LEAD_CODES, np.uint8)
_OF_UNIT: Final[NDArray[np.uint8]] = np.concatenate(
    [
        _OF_LEAD[:0x80],
        _OF_LEAD[np.arange(0x80, 0x800) >> 6 | 0xC0],
        _OF_LEAD[np.arange(0x800, 0x10000) >> 12 | 0xE0],
    ]
)
"""Lead code of each code point of the basic plane, a lone surrogate among them."""


@dataclass(frozen=True, slots=True)
class FastTable:
    """A table that estimates texts with numpy; give it wherever an estimator is wanted.

    Attributes
    ----------
    table
        The weights.
    """

    table: Table
    _pairs: NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _sixteens: NDArray[np.int32] = field(init=False, repr=False, compare=False)
    _far: NDArray[np.int32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cells = np.frombuffer(CELL_TABLE, np.uint8).reshape(256, len(EDGES))
        classes = np.array(self.table.classes, np.int32)
        weights = classes[cells[:, np.frombuffer(CELL_OF_LOW, np.uint8)[::16]].ravel()]
        weights[:8] = 0  # ASCII weighs by its pairs alone
        far = classes[[INDEX[astral_class(plane << 12)] for plane in range(0x110)]]
        object.__setattr__(self, "_pairs", np.frombuffer(self.table.pairs, np.uint8))
        object.__setattr__(self, "_sixteens", weights)
        object.__setattr__(self, "_far", far)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    def estimate(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        weight, before = 0, AT_START
        for at in range(0, len(text), BLOCK):
            piece = text[at : at + BLOCK]
            if piece.isascii():
                codes = _OF_LEAD.take(np.frombuffer(piece.encode("ascii"), np.uint8))
            else:
                units = np.frombuffer(piece.encode("utf-16-le", "surrogatepass"), "<u2")
                weight += int(self._sixteens.take(units >> 4).sum())
                if units.size == len(piece):
                    codes = _OF_UNIT.take(units)
                else:
                    weight += self._beyond_basic_plane(piece)
                    leads = piece.encode("utf-8", "surrogatepass").translate(None, CONTINUATION)
                    codes = _OF_LEAD.take(np.frombuffer(leads, np.uint8))
            pairs = codes & _KIND
            pairs[0] |= before & 0xE0
            pairs[1:] |= codes[:-1] & _BEFORE
            before = int(codes[-1])
            weight += int(self._pairs.take(pairs).sum(dtype=np.uint32))
        return self.table.tokens(weight, text)

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of class counts, rounded up."""
        return self.table.estimate_counts(counts)

    def _beyond_basic_plane(self, piece: str) -> int:
        """Return the weight of a piece's characters of two surrogates each, less what these weighed as if alone."""
        points = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), "<u4")
        far = points[points > 0xFFFF]
        return int(self._far.take(far >> 12).sum()) - 2 * far.size * self.table.classes[INDEX[OTHER]]
