"""Estimators: characters in, tokens out, no tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from policies.tokens.classes import ASCII_CLASSES, CLASSES
from policies.tokens.counts import Counts, count_classes


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
    {"cjk-punctuation", "hiragana", "kana", "cjk-sign", "han-rare", "han", "hangul", "jamo", "full-width", "han-far"}
)
# Quarters of a token a character.
_QUARTERS: Final = tuple(1 if c in ASCII_CLASSES else 4 if c in _EAST_ASIAN else 2 for c in CLASSES)


@dataclass(frozen=True, slots=True)
class ByScript:
    """Four ASCII characters a token, one Chinese, Japanese or Korean, two of everything else (design document 001).

    Meant to over-estimate; it does not (see docs/estimators.md).
    """

    name: str = "by-script"

    def estimate(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        return self.estimate_counts(count_classes(text))

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of class counts, rounded up."""
        return -(-sum(map(int.__mul__, counts.classes, _QUARTERS)) // 4)
