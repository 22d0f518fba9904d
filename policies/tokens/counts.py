"""How often each character class, and each pair of neighbours, occurs in a text: all that an estimator looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policies.tokens.classes import (
    ASCII_CLASSES,
    ASCII_TABLE,
    BYTES,
    CELL_OF_LOW,
    CELL_TABLE,
    CLASSES,
    EDGES,
    FAR,
    INDEX,
    OTHER,
    astral_class,
)

# A pair is told in one byte: five bits for what a character is, three for what stands before it.
KINDS: Final[tuple[str, ...]] = (*ASCII_CLASSES, "latin", "two-byte", "three-byte", "four-byte")
"""What a character is: its ASCII class; beyond ASCII, the length of its UTF-8 form, Latin told apart."""
_BEFORE: Final = (
    ("vowel", "aeiou"),
    ("common", "tnrshldcm"),
    ("rare", "bfgjkpqvwxyz"),
    ("capital", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"),
    ("blank", " \n\r\t"),
)
BEFORE: Final[tuple[str, ...]] = (*(name for name, _ in _BEFORE), "sign", "two", "more")
"""What stands before: a coarser kind; before the first character stands a line's end."""
PAIRS: Final = 256
BLOCK: Final = 16_384
"""Characters that are counted at a time: the intermediate bytes stay in the cache."""


def _kind(byte: int) -> int:
    if byte < 0x80:
        return ASCII_TABLE[byte]
    return KINDS.index(
        "latin" if byte < 0xCC else "two-byte" if byte < 0xE0 else "three-byte" if byte < 0xF0 else "four-byte"
    )


def _before(byte: int) -> int:
    if byte < 0x80:
        return next((n for n, (_, members) in enumerate(_BEFORE) if chr(byte) in members), BEFORE.index("sign"))
    return BEFORE.index("two" if byte < 0xE0 else "more")


LEAD_CODES: Final = bytes(_before(byte) << 5 | _kind(byte) for byte in range(256))
"""First byte of a character's UTF-8 form -> what it is, and in the upper bits what it is to the next character."""
CONTINUATION: Final = bytes(range(0x80, 0xC0))
AT_START: Final = LEAD_CODES[ord("\n")]

_KIND_BITS: Final = int.from_bytes(b"\x1f" * BLOCK, "little")
_BEFORE_BITS: Final = int.from_bytes(b"\xe0" * BLOCK, "little")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many characters of each class a text has, and how many pairs of neighbours.

    Counts add up: those of two messages are the sum of theirs. So a simulated message, which has no text, can be the
    counts of a known text times its length.

    Attributes
    ----------
    classes
        Characters of each of `CLASSES`.
    pairs
        Occurrences of each pair, at ``32 * before + kind``; all zero for counts that are known by class only.
    """

    classes: tuple[int, ...] = (0,) * len(CLASSES)
    pairs: tuple[int, ...] = (0,) * PAIRS

    @classmethod
    def of(cls, characters: Mapping[str, int]) -> Counts:
        """Return the counts of ``{class name: characters}``, with nothing known about neighbours.

        Raises
        ------
        ValueError
            For a class that does not exist, or a negative number.
        """
        for name, number in characters.items():
            if name not in INDEX:
                raise ValueError(f"no character class {name!r}; there are {', '.join(CLASSES)}")
            if number < 0:
                raise ValueError(f"{name}: {number} characters, must not be negative")
        return cls(tuple(characters.get(name, 0) for name in CLASSES))

    @property
    def characters(self) -> int:
        """Code points in all."""
        return sum(self.classes)

    @property
    def bytes(self) -> int:
        """Length in UTF-8."""
        return sum(map(int.__mul__, self.classes, BYTES))

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            tuple(map(int.__add__, self.classes, other.classes)),
            tuple(map(int.__add__, self.pairs, other.pairs)),
        )

    def scaled(self, numerator: int, denominator: int) -> Counts:
        """Return the counts times ``numerator / denominator``, each rounded up."""
        return Counts(
            tuple(-(-number * numerator // denominator) for number in self.classes),
            tuple(-(-number * numerator // denominator) for number in self.pairs),
        )


def histogram(values: bytes) -> Iterator[tuple[int, int]]:
    """Yield each byte value that occurs and how often.

    The commonest values, by a sample, are struck out one by one, each pass over fewer bytes than the one before; only
    what is left is counted in a dictionary, which takes 30 times longer a byte.
    """
    sample = Counter(values[:: 1 + len(values) // 64])
    for value, _ in sample.most_common(16):
        rest = values.translate(None, bytes((value,)))
        yield value, len(values) - len(rest)
        values = rest
    yield from Counter(values).items()


# Of the 256 pages' behaviours there are at most 32, so behaviour (five bits) and cell (three) fit one byte, and a table
# of 256 tells the class.
_PAGES: Final = [CELL_TABLE[len(EDGES) * page : len(EDGES) * (page + 1)] for page in range(256)]
_BEHAVIOURS: Final = list(dict.fromkeys(_PAGES))
_HIGH: Final = bytes(_BEHAVIOURS.index(page) << 3 for page in _PAGES)
_CELL_CLASS: Final = b"".join(_BEHAVIOURS).ljust(256, b"\0")
_ASCII_CELLS: Final = bytes(cell for cell, edge in enumerate(EDGES) if edge < 0x80)  # behaviour 0 is page 0
_ASCII: Final = bytes(range(0x80))
_FOUR_BYTES: Final = bytes(range(0xF0, 0xF8))
_MASK_F0: Final = bytes(0xFF if byte == 0xF0 else 0 for byte in range(256))
_FAR: Final = bytes((INDEX[FAR],))
_SECOND_CLASS: Final = bytes(INDEX[astral_class((byte & 0x3F) << 12)] for byte in range(256))


def without_ascii(text: str, utf8: bytes) -> tuple[str, bytes]:
    """Return text and UTF-8 form without their ASCII where that is most of it, else unchanged."""
    if 4 * len(utf8) >= 5 * len(text):
        return text, utf8
    utf8 = utf8.translate(None, _ASCII)
    return utf8.decode("utf-8", "surrogatepass"), utf8


def classes_beyond_ascii(text: str, utf8: bytes) -> tuple[bytes, int]:
    """Return the class number of each character of a text that is not ASCII, in any order.

    Also returns how many of `OTHER` are no characters: UTF-16 writes one beyond the basic plane as two surrogates,
    which the cell table has told as others before the character itself is told.
    """
    text, utf8 = without_ascii(text, utf8)
    utf16 = text.encode("utf-16-le", "surrogatepass")
    high = int.from_bytes(utf16[1::2].translate(_HIGH), "little")
    low = int.from_bytes(utf16[::2].translate(CELL_OF_LOW), "little")
    cells = (high | low).to_bytes(len(utf16) // 2, "little").translate(_CELL_CLASS, _ASCII_CELLS)
    if len(utf16) == 2 * len(text):
        return cells, 0
    far = classes_beyond_basic_plane(utf8)
    return cells + far, 2 * len(far)


def classes_beyond_basic_plane(utf8: bytes) -> bytes:
    """Return the class number of each character beyond the basic plane, in any order."""
    utf8 = utf8.translate(None, _ASCII)
    far = len(utf8) - len(utf8.translate(None, _FOUR_BYTES))
    # The byte after 0xF0 tells the class of all that is in use; it is what remains under a mask moved on by one.
    mask = int.from_bytes(utf8.translate(_MASK_F0), "little") << 8
    seconds = (int.from_bytes(utf8, "little") & mask).to_bytes(len(utf8), "little").translate(_SECOND_CLASS, b"\0")
    return seconds.ljust(far, _FAR)


def beyond_ascii(text: str, utf8: bytes) -> Iterator[tuple[int, int]]:
    """Yield (class number, characters) for the characters of a text that are not ASCII; a class may come twice."""
    numbers, halves = classes_beyond_ascii(text, utf8)
    yield from histogram(numbers)
    yield INDEX[OTHER], -halves


def pair_codes(codes: bytes, before: int) -> tuple[bytes, int]:
    """Return the pair code of each character, given its lead codes and that of what came before.

    Also returns the last lead code, for the next block. Long integers serve as vectors of bytes.
    """
    vector = int.from_bytes(codes, "little")
    shifted = (vector & _BEFORE_BITS) << 8 | before & 0xE0
    pairs = ((vector & _KIND_BITS) | shifted).to_bytes(len(codes) + 1, "little")
    return pairs[:-1], codes[-1]


def pieces(text: str) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield a text block by block: the block, its UTF-8 form, the lead codes of its characters."""
    for at in range(0, len(text), BLOCK):
        piece = text[at : at + BLOCK]
        utf8 = piece.encode("utf-8", "surrogatepass")
        yield piece, utf8, utf8.translate(LEAD_CODES, CONTINUATION if len(utf8) > len(piece) else b"")


def count_classes(text: str) -> Counts:
    """Return the class counts of a text, in time linear in its length; a lone surrogate counts as three bytes."""
    classes, pairs = [0] * len(CLASSES), [0] * PAIRS
    before = AT_START
    for piece, utf8, codes in pieces(text):
        neighbours, before = pair_codes(codes, before)
        for pair, count in histogram(neighbours):
            pairs[pair] += count
        if len(utf8) != len(piece):
            for number, count in beyond_ascii(piece, utf8):
                classes[number] += count
    for kind in range(len(ASCII_CLASSES)):
        classes[kind] = sum(pairs[kind::32])
    return Counts(tuple(classes), tuple(pairs))
