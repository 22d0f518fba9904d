"""How often each character class, and each pair of neighbours, occurs in a text: all that an estimator looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policies.tokens.classes import (
    ASCII_CLASSES,
    ASCII_TABLE,
    BLOCK_TABLE,
    BYTES,
    CLASSES,
    EMOJI,
    FAR,
    HAN_FAR,
    INDEX,
    MATH,
)

# A pair is told by the two characters' coarse kinds: the ASCII classes, and beyond ASCII the length of the UTF-8 form.
KINDS: Final[tuple[str, ...]] = (*ASCII_CLASSES, "two", "three", "four", "start")
START: Final = KINDS.index("start")
PAIRS: Final = 16 * len(KINDS)
BLOCK: Final = 32_768
"""Characters that are counted at a time: the intermediate bytes stay in the cache."""

_CONTINUATION: Final = bytes(range(0x80, 0xC0))
_LEADS: Final = ASCII_TABLE + bytes(
    KINDS.index("two" if lead < 0xE0 else "three" if lead < 0xF0 else "four") for lead in range(0x80, 0x100)
)
_BEFORE: Final = bytes(kind << 4 for kind in _LEADS)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many characters of each class a text has, and how many pairs of neighbouring kinds.

    Counts add up: those of two messages are the sum of theirs. So a simulated message, which has no text, is the counts
    of some known text times its length.

    Attributes
    ----------
    classes
        Characters of each of `CLASSES`.
    pairs
        Occurrences of each pair, at ``16 * kind before + kind``; the first character comes after the kind ``start``.
        All zero for counts that are known by class only.
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
        return sum(number * size for number, size in zip(self.classes, BYTES, strict=True))

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
    sample = Counter(values[:: 1 + len(values) // 512])
    for value, _ in sample.most_common(16):
        rest = values.translate(None, bytes((value,)))
        yield value, len(values) - len(rest)
        values = rest
    yield from Counter(values).items()


# UTF-16 gives a code point's block as its high byte and two bits of its low one. The 256 high bytes have at most 64
# behaviours, so the behaviour (shifted by two) and the two bits fit one byte, and a table of 256 tells the class.
_PAGES: Final = [BLOCK_TABLE[4 * high : 4 * high + 4] for high in range(256)]
_BEHAVIOURS: Final = list(dict.fromkeys(_PAGES))
_HIGH: Final = bytes(_BEHAVIOURS.index(page) << 2 for page in _PAGES)
_LOW: Final = bytes(low >> 6 for low in range(256))
_BLOCK_CLASS: Final = b"".join(_BEHAVIOURS).ljust(256, b"\0")


def _count_beyond_ascii(text: str, utf8: bytes, classes: list[int]) -> None:
    utf16 = text.encode("utf-16-le", "surrogatepass")
    size = len(utf16) // 2
    high = int.from_bytes(utf16[1::2].translate(_HIGH), "little")
    low = int.from_bytes(utf16[::2].translate(_LOW), "little")
    ascii_blocks = b"\0\1"  # behaviour 0 is page 0, its first two blocks are ASCII
    blocks = (high | low).to_bytes(size, "little").translate(_BLOCK_CLASS, ascii_blocks)
    for number, count in histogram(blocks):
        classes[number] += count
    halves = classes[INDEX["surrogate"]]
    if halves:
        # Beyond the basic plane UTF-16 has two surrogates a character; a surrogate alone is kept as what it is.
        far = len(utf8) - len(utf8.translate(None, bytes(range(0xF0, 0xF8))))
        emoji, math = utf8.count(b"\xf0\x9f"), utf8.count(b"\xf0\x9d")
        han = utf8.count(b"\xf0") - sum(utf8.count(bytes((0xF0, second))) for second in range(0x90, 0xA0))
        classes[INDEX["surrogate"]] = halves - 2 * far
        classes[INDEX[EMOJI]] += emoji
        classes[INDEX[MATH]] += math
        classes[INDEX[HAN_FAR]] += han
        classes[INDEX[FAR]] += far - emoji - math - han


def count_classes(text: str) -> Counts:
    """Return the class counts of a text, in time linear in its length; lone surrogates count as three bytes."""
    classes, pairs = [0] * len(CLASSES), [0] * PAIRS
    before = bytes((START << 4,))
    for at in range(0, len(text), BLOCK):
        piece = text[at : at + BLOCK]
        utf8 = piece.encode("utf-8", "surrogatepass")
        leads = utf8
        if not piece.isascii():
            leads = utf8.translate(None, _CONTINUATION)
            beyond = [0] * len(CLASSES)
            _count_beyond_ascii(piece, utf8, beyond)
            classes = list(map(int.__add__, classes, beyond))
        shifted = before + leads.translate(_BEFORE)
        both = int.from_bytes(shifted[:-1], "little") | int.from_bytes(leads.translate(_LEADS), "little")
        for pair, count in histogram(both.to_bytes(len(leads), "little")):
            pairs[pair] += count
        before = shifted[-1:]
    for kind in range(len(ASCII_CLASSES)):
        classes[kind] = sum(pairs[kind::16])
    return Counts(tuple(classes), tuple(pairs))
