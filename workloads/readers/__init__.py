"""Readers of recorded traffic: one module a format, all streamed, all strict, all listed in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workloads.errors import BadInput, Fault, did_you_mean
from workloads.readers import azure, columnar, jsonl, mooncake
from workloads.readers.build import Build
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk, chunks, open_bytes
from workloads.readers.table import split_header

__all__ = ["FORMATS", "Recording", "read_recording"]


@dataclass(frozen=True, slots=True)
class Format:
    """A text format: how it is recognised by its first line, and read.

    Attributes
    ----------
    about
        What writes it, in a few words.
    read
        From chunks of lines to a recording.
    header
        CSV columns that tell it; empty for JSON lines.
    keys
        JSON keys that tell it.
    """

    about: str
    read: Callable[[Iterator[Chunk], Build], Recording]
    header: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()


FORMATS: dict[str, Format] = {
    "csv": Format("this project's columns", columnar.read_csv, header=frozenset({"arrival_s", "prompt_tokens"})),
    "azure-2023": Format(
        "Azure LLM inference trace 2023",
        azure.read,
        header=frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
    ),
    "mooncake": Format("Mooncake trace", mooncake.read, keys=frozenset({"timestamp", "input_length", "hash_ids"})),
}
NAMES = ("auto", "parquet", *FORMATS)
PARQUET_MAGIC = b"PAR1"


def read_recording(path: str | Path, format: str = "auto", skip_bad: bool = False) -> Recording:
    """Return the calls in a file and what is to be said about them.

    Parameters
    ----------
    path
        A file, plain or compressed (gzip, bzip2, xz).
    format
        ``auto`` to recognise it by its contents, or one of `NAMES`.
    skip_bad
        Leave bad rows out, counted in the notes, instead of refusing the file.

    Raises
    ------
    workloads.errors.BadInput
        All faults of the file at once.
    """
    if format not in NAMES:
        raise BadInput(Fault(f"no such format; allowed: {', '.join(NAMES)}{did_you_mean(format, NAMES)}", key="format"))
    with open_bytes(path) as source:
        if format == "parquet" or (format == "auto" and source.peek(4)[:4] == PARQUET_MAGIC):
            return columnar.read_parquet(path, Build(path, "parquet", skip_bad))
        parts = chunks(source, path)
        first = next(parts, Chunk(1, b""))
        name = _recognise(first, path) if format == "auto" else format

        def again() -> Iterator[Chunk]:
            yield first
            yield from parts

        return FORMATS[name].read(again(), Build(path, name, skip_bad))


def _recognise(first: Chunk, path: str | Path) -> str:
    number, line = next(first.lines(), (1, b""))
    if line.startswith(b"{"):
        try:
            record = jsonl.parse(line)
        except ValueError as error:
            raise BadInput(Fault(str(error), path, number)) from None
        found = [name for name, format in FORMATS.items() if format.keys and format.keys <= record.keys()]
        shown = ", ".join(list(record)[:8])
    else:
        header = set(split_header(line))
        found = [name for name, format in FORMATS.items() if format.header and format.header <= header]
        shown = line[:80].decode("utf-8", "replace")
    if not found:
        raise BadInput(
            Fault(f"unknown format; name it with --format, one of {', '.join(NAMES[1:])}. Found: {shown}", path, number)
        )
    return found[0]
