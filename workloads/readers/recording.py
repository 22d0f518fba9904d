"""What a reader hands back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.errors import BadInput, Fault
from workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class Recording:
    """A trace and what is to be said about it.

    Attributes
    ----------
    path
        The file, as the user wrote it.
    format
        Name of the format.
    trace
        The calls.
    untimed
        Why the calls have no common clock, None where they have one.
    notes
        What the user should know: skipped rows, ignored columns, sorting.
    weights
        How often each row counts where the source is a histogram; None where each is one call.
    clusters
        Which rows hang together (client), beside their session; None where unknown.
    calls
        How many calls the source was made from where rows are not calls; None where unknown or where they are.
    """

    path: str | Path
    format: str
    trace: Trace
    untimed: str | None = None
    notes: tuple[str, ...] = ()
    weights: NDArray[np.float64] | None = None
    clusters: NDArray[np.int64] | None = None
    calls: int | None = None

    @property
    def has_times(self) -> bool:
        """Whether the calls have a common clock."""
        return self.untimed is None

    @property
    def requests(self) -> int | None:
        """How many calls were recorded; None where the source does not tell."""
        return self.calls if self.weights is not None else len(self.trace)

    def timed(self) -> Trace:
        """Return the trace; its times count from the first arrival.

        Raises
        ------
        workloads.errors.BadInput
            If the source has no arrival times or no calls.
        """
        if not len(self.trace):
            raise BadInput(Fault("holds no calls", self.path))
        if self.untimed:
            raise BadInput(Fault(f"cannot be replayed: {self.untimed}", self.path))
        return self.trace
