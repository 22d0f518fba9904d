"""A table estimator in numpy: the same integer as `policies.tokens.Table`, several times faster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.tokens import Counts, Table
from policies.tokens.classes import CELL_OF_LOW, CELL_TABLE, EDGES, INDEX, OTHER, astral_class
from policies.tokens.counts import AT_START, LEAD_CODES, pieces, without_ascii

_KIND: Final = np.uint8(0x1F)
_BEFORE: Final = np.uint8(0xE0)


@dataclass(frozen=True, slots=True)
class FastTable:
    """A table that estimates texts with numpy; give it wherever an estimator is wanted.

    Attributes
    ----------
    table
        The weights.
    """

    table: Table
    _sixteens: NDArray[np.int32] = field(init=False, repr=False, compare=False)
    _far: NDArray[np.int32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        cells = np.frombuffer(CELL_TABLE, np.uint8).reshape(256, len(EDGES))
        sixteens = cells[:, np.frombuffer(CELL_OF_LOW, np.uint8)[::16]].ravel()
        weights = np.array(self.table.classes, np.int32)[sixteens]
        weights[:8] = 0  # ASCII weighs by its pairs alone
        object.__setattr__(self, "_sixteens", weights)
        far = [self.table.classes[INDEX[astral_class(plane << 12)]] for plane in range(0x110)]
        object.__setattr__(self, "_far", np.array(far, np.int32))

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    def estimate(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        weight = size = 0
        before = AT_START
        for piece, utf8, leads in pieces(text):
            codes = np.frombuffer(leads.translate(LEAD_CODES), np.uint8)
            pairs = codes & _KIND
            pairs[0] |= before & 0xE0
            pairs[1:] |= codes[:-1] & _BEFORE
            before = int(codes[-1])
            weighed = np.frombuffer(pairs.tobytes().translate(self.table.pairs), np.uint8)
            weight += int(weighed.sum(dtype=np.uint32))
            size += len(utf8)
            if len(utf8) != len(piece):
                weight += self._beyond(piece, utf8)
        return self.table.tokens(weight, size)

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of class counts, rounded up."""
        return self.table.estimate_counts(counts)

    def _beyond(self, piece: str, utf8: bytes) -> int:
        piece, _ = without_ascii(piece, utf8)
        units = np.frombuffer(piece.encode("utf-16-le", "surrogatepass"), "<u2")
        weight = int(self._sixteens.take(units >> 4).sum())
        if units.size != len(piece):  # characters of two surrogates each, weighed above as if they stood alone
            points = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), "<u4")
            far = points[points > 0xFFFF]
            weight += int(self._far.take(far >> 12).sum()) - 2 * far.size * self.table.classes[INDEX[OTHER]]
        return weight
