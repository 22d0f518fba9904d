"""What is wrong with somebody's input, said in one line a fault."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with an input.

    Attributes
    ----------
    message
        What is wrong, what is allowed, what was perhaps meant; one line.
    file
        Where it was read, as the user wrote it; None for a command-line value.
    line
        Line number counted from 1; None where there is none.
    key
        Dotted key or column that is at fault; None where there is none.
    """

    message: str
    file: str | Path | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        """Return ``file:line: key: message``, without the parts that are unknown."""
        place = None if self.file is None else f"{self.file}" if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


class BadInput(Exception):
    """Input that cannot be used: all its faults at once. The command line prints them and exits with 2."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return `` - did you mean 'x'?`` for the nearest allowed word, or an empty string if none is near."""
    near = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f" - did you mean {near[0]!r}?" if near else ""


def unreadable(error: Exception, file: str | Path) -> Fault:
    """Return the fault of a file that could not be read, in the system's words, without numbers and repeated names."""
    return Fault(f"cannot be read: {getattr(error, 'strerror', None) or error}", file)


def expect_folder(folder: Path, holding: str) -> None:
    """Refuse a folder that is not there in one line, before each of its files is missed.

    Raises
    ------
    BadInput
        If there is none.
    """
    if not folder.is_dir():
        what = "is a file, no folder" if folder.exists() else "no such folder"
        raise BadInput(Fault(f"{what}, so no {holding}", folder))
