"""Which writing systems the traffic is in, and how many tokens the same content takes in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workloads.checks import is_number
from workloads.errors import BadInput, Fault, did_you_mean

TOKENIZERS = ("qwen", "qwen3.5", "deepseek", "tekken")

RATIOS: dict[str, tuple[float, ...]] = {
    "latin": (1.00, 1.00, 1.00, 1.00),
    "cyrillic": (1.77, 1.44, 1.60, 1.56),
    "greek": (4.91, 2.07, 2.72, 2.27),
    "armenian": (5.01, 3.29, 2.71, 1.80),
    "georgian": (5.43, 3.05, 4.02, 2.43),
    "hebrew": (1.36, 1.75, 1.67, 1.50),
    "arabic": (1.52, 1.29, 1.54, 1.22),
    "ethiopic": (3.45, 5.69, 7.27, 9.32),
    "devanagari": (4.75, 2.11, 2.80, 1.85),
    "bengali": (4.72, 2.19, 2.09, 1.99),
    "tamil": (6.87, 2.91, 3.40, 2.51),
    "telugu": (7.84, 3.28, 3.99, 2.84),
    "sinhala": (7.27, 3.82, 4.80, 13.21),
    "thai": (2.50, 1.19, 1.66, 2.23),
    "lao": (6.00, 5.00, 8.31, 13.31),
    "khmer": (6.26, 5.09, 6.32, 14.74),
    "burmese": (12.25, 4.94, 7.42, 4.48),
    "tibetan": (8.32, 8.57, 7.04, 14.23),
    "han": (0.91, 0.84, 0.85, 1.29),
    "japanese": (1.58, 1.27, 1.55, 1.73),
    "hangul": (1.57, 1.28, 1.65, 1.28),
    "code": (1.00, 1.00, 1.00, 1.00),
    "other": (1.00, 1.00, 1.00, 1.00),
}
"""Tokens that the same content takes, over what it takes in English, with each of `TOKENIZERS`.

Measured on articles 1 to 9 of the Universal Declaration of Human Rights, the same content in every language (one a
script: English, Russian, Greek, Armenian, Georgian, Hebrew, Arabic, Amharic, Hindi, Bengali, Tamil, Telugu, Sinhala,
Thai, Lao, Khmer, Burmese, Tibetan, simplified Chinese, Japanese, Korean) with the tokenizers of
`workloads.tokenizers`. 1,600 English characters of legal prose: good to about 15 %. Code counts as English, other
scripts are not known.
"""

RATIO_SCATTER = 0.11
"""Standard deviation of the logarithm of that ratio between articles, mean over ten languages and the tokenizers."""

SCRIPTS = tuple(RATIOS)


@dataclass(frozen=True, slots=True)
class ScriptMix:
    """Shares of calls by script; they are divided by their sum.

    Attributes
    ----------
    shares
        Script name (of `SCRIPTS`) to its weight, at least 0.
    """

    shares: Mapping[str, float] = field(default_factory=lambda: {"latin": 1.0})

    def __post_init__(self) -> None:
        faults = [
            Fault(f"no such script; allowed: {', '.join(SCRIPTS)}{did_you_mean(name, SCRIPTS)}", key=name)
            for name in self.shares
            if name not in SCRIPTS
        ]
        faults += [
            Fault(f"must be a finite number, at least 0, got {weight!r}", key=name)
            for name, weight in self.shares.items()
            if not (is_number(weight) and weight >= 0)
        ]
        if not faults and not sum(self.shares.values()) > 0:
            faults.append(Fault("must give at least one script a share above 0"))
        if faults:
            raise BadInput(*faults)

    @property
    def names(self) -> tuple[str, ...]:
        """The scripts, in the order given."""
        return tuple(self.shares)

    def codes(self, u: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the position in `names` at each level u in [0, 1)."""
        levels = np.cumsum(list(self.shares.values()))
        return np.searchsorted(levels / levels[-1], u, side="right").astype(np.int32)


def content_ratios(names: Sequence[str], tokenizer: str) -> NDArray[np.float64]:
    """Return how many times the tokens of English each script takes for the same content.

    Raises
    ------
    workloads.errors.BadInput
        If the tokenizer is none of `TOKENIZERS`.
    """
    if tokenizer not in TOKENIZERS:
        allowed = f"must be one of {', '.join(TOKENIZERS)}, got {tokenizer!r}{did_you_mean(tokenizer, TOKENIZERS)}"
        raise BadInput(Fault(allowed, key="tokenizer"))
    at = TOKENIZERS.index(tokenizer)
    return np.array([RATIOS[name][at] for name in names])
