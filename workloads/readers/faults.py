"""Collecting what is wrong with a file, row by row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from workloads.errors import BadInput, Fault

SHOWN = 20


class FaultLog:
    """The bad rows of one file: all refused together, or counted where the user allows skipping.

    Parameters
    ----------
    path
        The file, as the user wrote it.
    skip_bad
        Leave bad rows out and count them, instead of refusing the file.
    """

    def __init__(self, path: str | Path, skip_bad: bool = False) -> None:
        self.path, self.skip_bad = path, skip_bad
        self.first: list[Fault] = []
        self.rows: set[int] = set()
        self.reasons: Counter[str] = Counter()
        self.count = 0

    def add(self, line: int | None, key: str | None, message: str, reason: str | None = None) -> None:
        """Note one fault; ``reason`` is its class for the count of skipped rows (the message without its value)."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(Fault(message, self.path, line, key))
        if line is not None and self.skip_bad:
            self.rows.add(line)
        self.reasons[f"{key}: {reason or message}" if key else reason or message] += 1

    def fatal(self, message: str, line: int | None = None, key: str | None = None) -> BadInput:
        """Return the error of a fault that no skipping helps, together with those noted so far."""
        return BadInput(*self.first, Fault(message, self.path, line, key))

    def close(self) -> tuple[str, ...]:
        """Return the notes on what was skipped.

        Raises
        ------
        workloads.errors.BadInput
            If there are faults and skipping was not allowed.
        """
        if not self.count:
            return ()
        if not self.skip_bad:
            more = self.count - len(self.first)
            rest = [Fault(f"... and {more:,} more faults", self.path)] if more else []
            raise BadInput(*self.first, *rest)
        reasons = "; ".join(f"{n:,} x {reason}" for reason, n in self.reasons.most_common(5))
        return (f"skipped {len(self.rows):,} bad rows ({reasons})",)
