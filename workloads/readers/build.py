"""From checked rows to a recording: order of arrival, notes, faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.readers.faults import FaultLog
from workloads.readers.recording import Recording
from workloads.trace import Labels, Segments, Trace

Column = NDArray[Any] | Labels | Segments | None


class Build:
    """Gathers what one reader finds in one file.

    Parameters
    ----------
    path
        The file, as the user wrote it.
    format
        Name of the format.
    skip_bad
        Leave bad rows out and count them.
    """

    def __init__(self, path: str | Path, format: str, skip_bad: bool = False) -> None:
        self.path, self.format = path, format
        self.log = FaultLog(path, skip_bad)
        self.notes: list[str] = []

    def ignore(self, columns: Sequence[str]) -> None:
        """Note columns of the file that are not used."""
        if columns:
            self.notes.append(f"ignored columns: {', '.join(columns)}")

    def ordered(self, lines: NDArray[np.int64], arrival_s: NDArray[np.float64], **columns: Column) -> Recording:
        """Return the recording of a format that promises rows in order of arrival; a row out of order is a fault."""
        late = np.flatnonzero(arrival_s < np.maximum.accumulate(arrival_s)) if len(arrival_s) else np.empty(0, np.int64)
        for i in late:
            self.log.add(
                int(lines[i]), None, "arrives before the row above it; sort the file by time", "arrives out of order"
            )
        rows = np.setdiff1d(np.arange(len(arrival_s)), late) if len(late) else None
        return self._close({"arrival_s": arrival_s, **columns}, rows)

    def sorted(self, arrival_s: NDArray[np.float64], **columns: Column) -> Recording:
        """Return the recording of a log that is written when answers end; rows are brought into order of arrival."""
        order = np.argsort(arrival_s, kind="stable")
        moved = int((arrival_s[1:] < np.maximum.accumulate(arrival_s)[:-1]).sum()) if len(arrival_s) else 0
        if moved:
            self.notes.append(f"{moved:,} rows brought into order of arrival")
        return self._close({"arrival_s": arrival_s, **columns}, order if moved else None)

    def untimed(self, why: str, **columns: Column) -> Recording:
        """Return the recording of a source whose rows have no common clock, in the order given."""
        return replace(self._close(columns, None), untimed=why)

    def _close(
        self,
        columns: dict[str, Column],
        rows: NDArray[np.int64] | None,
    ) -> Recording:
        self.notes.extend(self.log.close())
        picked: dict[str, Any] = {name: values for name, values in columns.items() if values is not None}
        if rows is not None:
            for name, values in picked.items():
                picked[name] = values.take(rows) if isinstance(values, Labels | Segments) else values[rows]
        arrival = picked["arrival_s"]
        if not len(arrival):
            raise self.log.fatal("holds no calls")
        if arrival[0]:
            picked["arrival_s"] = arrival - arrival[0]
        return Recording(self.path, self.format, Trace(**picked), notes=tuple(self.notes))
