"""Corpora: folders of text files, one a class, cut into chunks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workloads.errors import BadInput, Fault, unreadable

CHUNK: Final = 1000
STRESS: Final = "h_"
"""Files whose names begin so are stress classes: reported, never gated."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one file.

    Attributes
    ----------
    label
        The class: the file's name without its ending.
    text
        What is counted.
    source
        Which of the file's sources it comes from, counted from 0.
    place
        Which chunk of the file it is, counted from 0, and of how many.
    origin
        Where its text comes from: the same for the halves of a source, another for each source and each file.
    """

    label: str
    text: str
    source: int = 0
    place: tuple[int, int] = (0, 1)
    origin: tuple[Path, int] = (Path(), 0)

    @property
    def stress(self) -> bool:
        """Whether its class is one of noise and rarities."""
        return self.label.startswith(STRESS)


def own_corpus() -> Path:
    """Return the folder of the project's own passages."""
    return Path(__file__).parent.parent / "corpus"


def cut(text: str, size: int = CHUNK) -> list[str]:
    """Return the text in pieces of `size` code points; a rest below half is dropped, a shorter text is one piece."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return pieces[:-1] if len(pieces) > 1 and 2 * len(pieces[-1]) < size else pieces


def read_text(file: Path) -> str:
    """Return a text file as it is, line ends included.

    Raises
    ------
    BadInput
        If it cannot be read, is not UTF-8 (as lone surrogates are not), holds a NUL, or has nothing in it.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadInput(unreadable(error, file)) from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise BadInput(Fault(f"not UTF-8: {byte}; text files in UTF-8 are needed", file=file, line=line)) from None
    if not text.strip():
        raise BadInput(Fault("empty: no text to count", file=file))
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadInput(Fault("holds a NUL character: a binary file?", file=file, line=line))
    return text


def files_of(corpus: Path) -> list[Path]:
    """Return the text files of a folder, by name, or the file itself.

    Raises
    ------
    BadInput
        If there is no such folder or file, or no ``.txt`` in it.
    """
    if corpus.is_file():
        return [corpus]
    if not corpus.is_dir():
        raise BadInput(Fault("no such file or folder", file=corpus))
    files = sorted(corpus.glob("*.txt"))
    if not files:
        raise BadInput(Fault("no .txt files in this folder: a corpus has one for each class", file=corpus))
    return files


_SOURCE: Final = re.compile(r"^\|\s*corpus\s*\|\s*(\S+)\s*\|.*\|\s*(\d+)\s*\|\s*$")


def sources_of(corpus: Path) -> dict[str, list[int]]:
    """Return how many characters each source of a class has, in the file's order, from a ``SOURCES.md`` beside it.

    The table's rows read ``| corpus | class | origin | licence | characters |``; without the file nothing is known.
    """
    listing = corpus / "SOURCES.md"
    found: dict[str, list[int]] = {}
    if listing.is_file():
        for line in listing.read_text("utf-8").splitlines():
            if row := _SOURCE.match(line):
                found.setdefault(row[1], []).append(int(row[2]))
    return found


def read_corpus(corpora: Iterable[Path], size: int = CHUNK, *, by_source: bool = False) -> list[Chunk]:
    """Return the chunks of corpora, in the order of their files' names.

    Parameters
    ----------
    corpora
        Folders or single files.
    size
        Code points of a chunk.
    by_source
        Cut each source by itself, so that no chunk holds text of two. A class of one source counts as two halves.

    Raises
    ------
    BadInput
        Everything that is wrong with any file.
    """
    chunks: list[Chunk] = []
    faults: list[Fault] = []
    for corpus in corpora:
        try:
            files = files_of(corpus)
        except BadInput as error:
            faults += error.faults
            continue
        lengths = sources_of(corpus) if by_source else {}
        for file in files:
            try:
                text = read_text(file)
            except BadInput as error:
                faults += error.faults
                continue
            parts = [text]
            if by_source:
                parts = _parts(text, lengths.get(file.stem, []))
            found = [(piece, source) for source, part in enumerate(parts) for piece in cut(part, size)]
            several = len(lengths.get(file.stem, [])) > 1
            chunks += [
                Chunk(file.stem, piece, source, (number, len(found)), (file, source if several else 0))
                for number, (piece, source) in enumerate(found)
            ]
    if faults:
        raise BadInput(*faults)
    return chunks


def _parts(text: str, lengths: list[int]) -> list[str]:
    if len(lengths) < 2:
        lengths = [len(text) // 2]
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    starts = [0, *ends[: max(1, len(lengths) - 1)]]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
