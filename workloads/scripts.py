"""Which writing systems the traffic is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workloads.checks import is_number
from workloads.errors import BadInput, Fault, did_you_mean

SCRIPTS = (
    "latin",
    "cyrillic",
    "greek",
    "armenian",
    "georgian",
    "hebrew",
    "arabic",
    "ethiopic",
    "devanagari",
    "bengali",
    "tamil",
    "telugu",
    "sinhala",
    "thai",
    "lao",
    "khmer",
    "burmese",
    "tibetan",
    "han",
    "japanese",
    "hangul",
    "code",
    "other",
)


@dataclass(frozen=True, slots=True)
class ScriptMix:
    """Shares of calls by script; they are divided by their sum.

    Attributes
    ----------
    shares
        Script name (of `SCRIPTS`) to its weight, at least 0.
    """

    shares: Mapping[str, float] = field(default_factory=lambda: {"latin": 1.0})

    def __post_init__(self) -> None:
        faults = [
            Fault(f"no such script; allowed: {', '.join(SCRIPTS)}{did_you_mean(name, SCRIPTS)}", key=name)
            for name in self.shares
            if name not in SCRIPTS
        ]
        faults += [
            Fault(f"must be a finite number, at least 0, got {weight!r}", key=name)
            for name, weight in self.shares.items()
            if not (is_number(weight) and weight >= 0)
        ]
        if not faults and not sum(self.shares.values()) > 0:
            faults.append(Fault("must give at least one script a share above 0"))
        if faults:
            raise BadInput(*faults)

    @property
    def names(self) -> tuple[str, ...]:
        """The scripts, in the order given."""
        return tuple(self.shares)

    def codes(self, u: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the position in `names` at each level u in [0, 1)."""
        levels = np.cumsum(list(self.shares.values()))
        return np.searchsorted(levels / levels[-1], u, side="right").astype(np.int32)
