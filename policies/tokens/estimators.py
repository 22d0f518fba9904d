"""Estimators: characters in, tokens out, no tokenizer.

None of them normalises: what is estimated is the text that is sent. A caller whose server composes characters first
(Qwen's tokenizer does) may wrap an estimator in `Normalised`.
"""

from __future__ import annotations

import math
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, runtime_checkable

from policies.tokens.classes import ASCII_CLASSES, BYTES, CLASSES, INDEX, OTHER
from policies.tokens.counts import (
    AT_START,
    KINDS,
    PAIRS,
    Counts,
    beyond_ascii,
    classes_beyond_ascii,
    pair_codes,
    pieces,
)


@runtime_checkable
class Estimator(Protocol):
    """What every estimator does: tokens of a text, or of class counts where there is no text."""

    @property
    def name(self) -> str:
        """Its name in studies and on the command line."""

    def estimate(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of a text of which only the class counts are known, rounded up."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of tokens that says what it is.

    Attributes
    ----------
    tokens
        How many.
    kind
        ``exact`` from a tokenizer, ``estimate`` from anything else.
    profile
        Name of the tokenizer or of the estimator.
    """

    tokens: int
    kind: Literal["exact", "estimate"]
    profile: str


@dataclass(frozen=True, slots=True)
class Overhead:
    """Tokens of a request that are not text: what the chat template, the tools' frame and images add.

    There are no defaults but zero: each server has its own, and a request's usage record tells them.

    Attributes
    ----------
    request, message, tool, image
        Tokens for each request, message, tool definition, image part. A tool's schema is text and is estimated as
        such; so is a data URL inside a text. An image part costs `image`, however long its encoding.
    """

    request: int = 0
    message: int = 0
    tool: int = 0
    image: int = 0

    def tokens(self, messages: int, tools: int = 0, images: int = 0) -> int:
        """Return the overhead of one request."""
        return self.request + self.message * messages + self.tool * tools + self.image * images


def estimate_request(
    estimator: Estimator,
    messages: Iterable[str],
    overhead: Overhead,
    tools: Iterable[str] = (),
    images: int = 0,
) -> Count:
    """Return the prompt tokens of a request: each text by itself, plus the overhead."""
    texts, schemas = list(messages), list(tools)
    tokens = sum(map(estimator.estimate, [*texts, *schemas])) + overhead.tokens(len(texts), len(schemas), images)
    return Count(tokens, "estimate", estimator.name)


@dataclass(frozen=True, slots=True)
class CharsPerFour:
    """Characters divided by four, whatever the script: the rule of thumb for English."""

    name: str = "chars-per-four"

    def estimate(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        return -(-len(text) // 4)

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of class counts, rounded up."""
        return -(-counts.characters // 4)


_EAST_ASIAN: Final = frozenset(
    {"cjk-punctuation", "hiragana", "kana", "katakana", "cjk-rare", "han", "hangul", "jamo", "full-width", "han-far"}
)
# Quarters of a token a character.
_QUARTERS: Final = tuple(1 if c in ASCII_CLASSES else 4 if c in _EAST_ASIAN else 2 for c in CLASSES)


@dataclass(frozen=True, slots=True)
class ByScript:
    """Four ASCII characters a token, one Chinese, Japanese or Korean, two of everything else (design document 001).

    Meant to over-estimate; it does not (docs/estimators.md).
    """

    name: str = "by-script"

    def estimate(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        quarters = 0
        for piece, utf8, _ in pieces(text):
            far = len(utf8) != len(piece)
            beyond = list(beyond_ascii(piece, utf8)) if far else []
            quarters += len(piece) + sum((_QUARTERS[number] - 1) * count for number, count in beyond)
        return -(-quarters // 4)

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of class counts, rounded up."""
        return -(-sum(map(int.__mul__, counts.classes, _QUARTERS)) // 4)


@dataclass(frozen=True, slots=True)
class Guaranteed:
    """One token a byte of UTF-8: no byte-level byte-pair tokenizer makes more, whatever the text.

    Tokenizers that compose characters first (NFC) see another text, which can be longer in bytes; the longer of the two
    counts. Not a bound for tokenizers with NFKC or with added markers (the legacy Claude's, sentencepiece's).
    """

    name: str = "guaranteed"

    def estimate(self, text: str) -> int:
        """Return the tokens of a text at most."""
        size = len(text.encode("utf-8", "surrogatepass"))
        if text.isascii() or unicodedata.is_normalized("NFC", text):
            return size
        return max(size, len(unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")))

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of class counts at most, of a text in NFC."""
        return counts.bytes


UNIT: Final = 200
"""Parts of a token that the weights of a table are counted in: a pair's weight, up to 1.275 tokens, fits a byte."""
_ADLER: Final = 256  # bytes whose sum stays under Adler-32's modulus 65,521, whatever they are


def byte_sum(values: bytes) -> int:
    """Return the sum of bytes. Adler-32's lower half is just that, and nothing else in the library adds as fast."""
    return sum([zlib.adler32(values[at : at + _ADLER], 0) & 0xFFFF for at in range(0, len(values), _ADLER)])


@dataclass(frozen=True, slots=True)
class Table:
    """Fitted weights for classes and pairs: an upper quantile over the tokenizers its profile names.

    The estimate is the sum of the weights, rounded up; at most the length in UTF-8 where that is a bound. Weights are
    integers, so that every implementation gives the same number (`workloads.tokens.kernel` is the fast one).

    Attributes
    ----------
    name
        ``table:`` and its profile.
    pairs
        Weight of each pair of `Counts.pairs` in 1/200 token.
    classes
        Weight of a character of each class beyond ASCII, on top of its pair's, in 1/200 token, two bytes at most; zero
        for ASCII.
    alone
        Weight instead of the pair's for each of `KINDS` where the neighbour is not known: the fitted text's mean.
    capped
        Whether the length in UTF-8 bounds what these tokenizers can make.
    """

    name: str
    pairs: bytes
    classes: tuple[int, ...]
    alone: tuple[int, ...]
    capped: bool = True
    _low: bytes = field(init=False, repr=False, compare=False)
    _high: bytes = field(init=False, repr=False, compare=False)
    _light: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (len(self.pairs), len(self.classes), len(self.alone)) != (PAIRS, len(CLASSES), len(KINDS)):
            raise ValueError(f"{self.name}: a table has {PAIRS} pairs, {len(CLASSES)} classes and {len(KINDS)} kinds")
        if not 0 <= min(self.classes) <= max(self.classes) < 0x10000:
            raise ValueError(f"{self.name}: a class's weight must be 0 to 65535")
        for name, shift in ("_low", 0), ("_high", 8):
            object.__setattr__(self, name, bytes(weight >> shift & 0xFF for weight in self.classes).ljust(256, b"\0"))
        object.__setattr__(self, "_light", bytes(number for number, high in enumerate(self._high) if not high))

    def tokens(self, weight: int, text: str) -> int:
        """Return the tokens of a text's summed weight."""
        tokens = -(-weight // UNIT)
        if tokens > len(text) and self.capped:  # only then can the bytes, at least one a character, be fewer
            return min(tokens, len(text.encode("utf-8", "surrogatepass")))
        return tokens

    def estimate(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        weight, before = 0, AT_START
        for piece, utf8, codes in pieces(text):
            pairs, before = pair_codes(codes, before)
            weight += byte_sum(pairs.translate(self.pairs))
            if len(utf8) != len(piece):
                numbers, halves = classes_beyond_ascii(piece, utf8)
                weight += byte_sum(numbers.translate(self._low)) - halves * self.classes[INDEX[OTHER]]
                weight += byte_sum(numbers.translate(self._high, self._light)) << 8
        return self.tokens(weight, text)

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of class counts, rounded up; what the pairs do not cover weighs as if alone."""
        weight = sum(map(int.__mul__, counts.pairs, self.pairs)) + sum(map(int.__mul__, counts.classes, self.classes))
        for number, characters in enumerate(_by_kind(counts)):
            weight += self.alone[number] * max(0, characters - sum(counts.pairs[number::32]))
        tokens = -(-weight // UNIT)
        return min(tokens, counts.bytes) if self.capped else tokens


_TWO_BYTE_LATIN: Final = frozenset({"latin-sign", "latin-capital", "latin-accented", "latin-extended", "latin-rare"})
_KIND_OF: Final = tuple(
    KINDS.index(
        name if size == 1 else "latin" if name in _TWO_BYTE_LATIN else ("two-byte", "three-byte", "four-byte")[size - 2]
    )
    for name, size in zip(CLASSES, BYTES, strict=True)
)


def _by_kind(counts: Counts) -> list[int]:
    kinds = [0] * len(KINDS)
    for number, characters in zip(_KIND_OF, counts.classes, strict=True):
        kinds[number] += characters
    return kinds


@dataclass(frozen=True, slots=True)
class Normalised:
    """Another estimator on the text in NFC: for a server known to compose characters before it counts."""

    inner: Estimator

    @property
    def name(self) -> str:
        """The inner one's name, marked."""
        return f"{self.inner.name}+nfc"

    def estimate(self, text: str) -> int:
        """Return the tokens of the composed text."""
        return self.inner.estimate(unicodedata.normalize("NFC", text))

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of counts, which must be those of composed text."""
        return self.inner.estimate_counts(counts)


@dataclass(frozen=True, slots=True)
class Scaled:
    """Another estimator times a factor: what ``slotsim estimator learn`` found for a class of content.

    Attributes
    ----------
    inner
        What is corrected.
    factor
        Tokens charged over tokens estimated.
    """

    inner: Estimator
    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ValueError(f"a factor must be finite and above 0, is {self.factor}")

    @property
    def name(self) -> str:
        """The inner one's name and the factor."""
        return f"{self.inner.name}*{self.factor:g}"

    def estimate(self, text: str) -> int:
        """Return the corrected tokens of a text, rounded up."""
        return math.ceil(self.inner.estimate(text) * self.factor)

    def estimate_counts(self, counts: Counts) -> int:
        """Return the corrected tokens of class counts, rounded up."""
        return math.ceil(self.inner.estimate_counts(counts) * self.factor)
