"""What a reader hands back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
    has_times
        False where the source holds lengths only: all arrivals are 0.
    notes
        What the user should know: skipped rows, ignored columns, sorting.
    weights
        How often each row counts where the source is a histogram; None where each is one call.
    """

    path: str | Path
    format: str
    trace: Trace
    has_times: bool = True
    notes: tuple[str, ...] = ()
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None

    def timed(self) -> Trace:
        """Return the trace; its times count from the first arrival.

        Raises
        ------
        workloads.errors.BadInput
            If the source has no arrival times or no calls.
        """
        if not len(self.trace):
            raise BadInput(Fault("holds no calls", self.path))
        if not self.has_times:
            raise BadInput(
                Fault(
                    f"format {self.format!r} holds lengths without arrival times: use it as an 'empirical' length law",
                    self.path,
                )
            )
        return self.trace
