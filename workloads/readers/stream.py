"""Bytes of a file that nobody trusts: decompressed as a stream, under constant limits."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from workloads.errors import BadInput, Fault, unreadable

MAX_LINE = 64 * 2**20  # bytes of one line
MAX_RATIO = 200  # bytes out of a compressed file for each byte in; logs compress 5 to 30 times, a bomb 1,000 times
FREE_BYTES = 2**20  # so much may come out before the ratio counts: a small file may well be all alike
XZ_MEMORY = 100 * 2**20  # bytes a decompressor may claim; xz -9 asks for 65 MB
CHUNK = 2**20
BOM = b"\xef\xbb\xbf"
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
FOREIGN = {
    b"\x28\xb5\x2f\xfd": "compressed with zstd: decompress it first, or use gzip, bzip2 or xz",
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
}


class _Gzip:
    """zlib's decompressor with the interface of the other two: input that does not fit the output is kept inside."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _decompressor(kind: str) -> _Gzip | bz2.BZ2Decompressor | lzma.LZMADecompressor:
    if kind == "gzip":
        return _Gzip()
    if kind == "bzip2":
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)


class Inflated(io.RawIOBase):
    """The decompressed bytes of a file, also of several members one after the other.

    Raises
    ------
    workloads.errors.BadInput
        On reading: if the file is cut or damaged, or swells more than `MAX_RATIO` times.
    """

    def __init__(self, raw: BinaryIO, kind: str, path: str | Path) -> None:
        self._raw, self._kind, self._path = raw, kind, path
        self._inner = _decompressor(kind)
        self._taken = self._given = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file below too."""
        self._raw.close()
        super().close()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill the buffer; return how many bytes were written, 0 at the end."""
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        self._given += len(data)
        if self._given > FREE_BYTES and self._given > MAX_RATIO * self._taken:
            raise BadInput(Fault(f"swells more than {MAX_RATIO} : 1 when decompressed; that is no log", self._path))
        return len(data)

    def _next(self, size: int) -> bytes:
        while True:
            fresh = b""
            if self._inner.eof:
                fresh = self._inner.unused_data or self._raw.read(CHUNK)
                self._taken += 0 if self._inner.unused_data else len(fresh)
                if not fresh.strip(b"\0"):
                    return b""
                self._inner = _decompressor(self._kind)
            elif self._inner.needs_input:
                fresh = self._raw.read(64 * 1024)
                self._taken += len(fresh)
                if not fresh:
                    raise BadInput(Fault(f"the {self._kind} data end in the middle: the file was cut", self._path))
            try:
                data = self._inner.decompress(fresh, size)
            except (zlib.error, OSError, lzma.LZMAError, EOFError) as error:
                raise BadInput(Fault(f"the {self._kind} data are damaged ({error})", self._path)) from None
            if data:
                return data


def open_bytes(path: str | Path) -> io.BufferedReader:
    """Open a file for reading, decompressed if it is gzip, bzip2 or xz (told by its first bytes).

    Raises
    ------
    workloads.errors.BadInput
        If it is missing, no file, unreadable, empty or of a kind that must be converted first.
    """
    try:
        if Path(path).is_dir():
            raise BadInput(Fault("is a folder, not a file", path))
        raw = Path(path).open("rb")  # noqa: SIM115 - the caller closes what it reads
    except OSError as error:
        raise BadInput(unreadable(error, path)) from None
    head = raw.peek(8)
    refused = (
        "is empty"
        if not head
        else next((f"is {what}" for magic, what in FOREIGN.items() if head.startswith(magic)), "")
    )
    if refused:
        raw.close()
        raise BadInput(Fault(refused, path))
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return io.BufferedReader(Inflated(raw, kind, path), CHUNK)
    return raw


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines of a text.

    Attributes
    ----------
    first
        Number of the first line, from 1.
    data
        The lines, with their ends (the last line of a file may have none).
    """

    first: int
    data: bytes

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield ``(number, line without its end)`` of each line that is not blank."""
        for number, line in enumerate(self.data.split(b"\n"), self.first):
            text = line.strip(b"\r\n\t ")
            if text:
                yield number, text


def _read(source: io.BufferedReader, size: int, line: int, held: list[bytes]) -> bytes:
    """Return what can be had at once, so that what comes before a damaged place is seen before its error is."""
    try:
        return source.read1(size)
    except BadInput as error:
        here = line + b"".join(held).count(b"\n")
        raise BadInput(*(replace(fault, line=here) for fault in error.faults)) from None


def chunks(source: io.BufferedReader, path: str | Path, size: int = CHUNK) -> Iterator[Chunk]:
    """Yield a text in chunks of whole lines; at most one line of `MAX_LINE` and one chunk are held.

    Raises
    ------
    workloads.errors.BadInput
        If a line is longer than `MAX_LINE`, the bytes are no text, or a compressed file is cut or damaged.
    """
    line, held = 1, [source.read(len(BOM))]
    if held == [BOM]:
        held = []
    length = sum(map(len, held))
    while data := _read(source, size, line, held):
        if b"\0" in data:
            raise BadInput(Fault("is binary data, not text", path, line + b"".join((*held, data)).count(b"\n")))
        cut = data.rfind(b"\n") + 1
        if length + (data.find(b"\n") if cut else len(data)) > MAX_LINE:
            raise BadInput(Fault(f"the line is longer than {MAX_LINE // 2**20} MB", path, line))
        if cut:
            whole = b"".join((*held, data[:cut]))
            yield Chunk(line, whole)
            line += whole.count(b"\n")
            held, length = [], 0
        held.append(data[cut:])
        length += len(data) - cut
    if length:
        yield Chunk(line, b"".join(held))
