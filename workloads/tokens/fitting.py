"""Fitting a table: a linear program for an upper quantile of the tokens, over the tokenizers of a profile.

Minimised is the mean over classes of the pinball loss of the relative error (Koenker and Bassett 1978, "Regression
Quantiles", Econometrica 46): with error ``r = estimate / tokens - 1``, ``tau * max(-r, 0) + (1 - tau) * max(r, 0)``.
Every weight is at least nothing and at most a character's bytes, which no byte-level tokenizer exceeds. What the fitted
text shows too rarely keeps that bound, where the program alone would give it nothing. The program is solved on several
random parts of the text and the weights are the mean: a single solution leans on whatever few chunks are its corners.
A script that is known from one origin of text gets a little more.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from policies.tokens import Counts, Table, count_classes
from policies.tokens.classes import ASCII_CLASSES, BYTES, CLASSES, FAR, OTHER
from policies.tokens.counts import BEFORE, KINDS, PAIRS
from policies.tokens.estimators import UNIT
from workloads.tokens.corpora import STRESS, Chunk

Floats = NDArray[np.float64]

_ASCII: Final = len(ASCII_CLASSES)
_RUNS: Final = KINDS[_ASCII:]
_SAME: Final = {"latin": "two", "two-byte": "two", "three-byte": "more", "four-byte": "more"}
# Columns: each pair that ends in ASCII; the start of a run of each other kind; each class beyond ASCII.
_PAIR_COLUMNS: Final = [32 * before + kind for kind in range(_ASCII) for before in range(len(BEFORE))]
_RUN_COLUMNS: Final = [
    [32 * before + KINDS.index(kind) for before, name in enumerate(BEFORE) if name != _SAME[kind]] for kind in _RUNS
]
BOUNDS: Final[Floats] = np.array([1.0] * (len(_PAIR_COLUMNS) + len(_RUNS)) + [float(b) for b in BYTES[_ASCII:]])
"""Tokens that each column's feature can cost at most."""
# A mixture of many scripts: what one of them costs says nothing about the next.
_NEVER: Final = np.array(
    [False] * (len(_PAIR_COLUMNS) + len(_RUNS)) + [name in (OTHER, FAR) for name in CLASSES[_ASCII:]]
)
# With its margin a feature may weigh more than its bound, since neighbours share what they cost, but a pair's weight
# must fit a byte. The estimate as a whole is bounded by the bytes of the text.
MOST: Final[Floats] = np.where(np.arange(len(BOUNDS)) < len(_PAIR_COLUMNS) + len(_RUNS), 255 / UNIT, 2 * BOUNDS)


@dataclass(frozen=True, slots=True)
class Margins:
    """By what fitted weights are multiplied, for text that was not fitted.

    Attributes
    ----------
    ascii
        Of pairs that end in ASCII.
    beyond
        Of runs and characters beyond ASCII: their classes rest on fewer sources.
    """

    ascii: float
    beyond: float

    def __str__(self) -> str:
        """Return both, as the command line reads them."""
        return f"{self.ascii:g}/{self.beyond:g}"

    def on(self, beta: Floats) -> Floats:
        """Return fitted weights with the margins, as far as a pair's weight fits its byte."""
        factors = np.where(np.arange(len(beta)) < len(_PAIR_COLUMNS), self.ascii, self.beyond)
        weights: Floats = np.minimum(beta * factors, MOST)
        return weights


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a table is fitted.

    Attributes
    ----------
    tau
        Quantile of the pinball loss.
    rare, rare_beyond
        Occurrences in the fitted text below which a feature keeps its bound: a pair or run, a class beyond ASCII. A
        script is known from text in it, not from a few stray letters.
    bags
        Linear programs whose solutions are averaged.
    share
        Part of the chunks that each of them sees.
    stress
        Weight of a stress class against an ordinary one.
    one_origin
        By what the weights of a script are multiplied of which no class was fitted from two origins (see
        `of_one_origin`).
    written
        Share of a class's characters from which it is written in their script.
    seed
        Of the random parts.
    """

    tau: float = 0.995
    rare: int = 30
    rare_beyond: int = 300
    bags: int = 16
    share: float = 0.7
    stress: float = 1.0
    one_origin: float = 1.04
    written: float = 0.3
    seed: int = 20261130


def features(counts: Sequence[Counts]) -> Floats:
    """Return the design matrix of texts: one row a text, one column a feature."""
    pairs = np.array([c.pairs for c in counts], np.float64).reshape(-1, PAIRS)
    classes = np.array([c.classes for c in counts], np.float64).reshape(-1, len(CLASSES))
    runs = [pairs[:, columns].sum(axis=1, keepdims=True) for columns in _RUN_COLUMNS]
    matrix: Floats = np.hstack([pairs[:, _PAIR_COLUMNS], *runs, classes[:, _ASCII:]])
    return matrix


def decomposed(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return stress copies in NFD of the chunks that it changes: what conjoining jamo and loose marks cost."""
    copies = ((chunk, unicodedata.normalize("NFD", chunk.text)) for chunk in chunks)
    return [_copy(chunk, "nfd", text) for chunk, text in copies if 20 * len(text) > 21 * len(chunk.text)]


_BLANKS: Final = re.compile(r"[\s\u200b\u200c]+")


def unspaced(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return stress copies without blanks of the chunks in scripts that need none between words.

    Thai, Khmer, Burmese, Chinese... come with blanks, with invisible ones, or with none; without such copies the
    program charges the blanks for what the letters cost wherever all its text has them.
    """
    copies = ((chunk, _BLANKS.sub("", chunk.text)) for chunk in chunks if 2 * _unparted(chunk.text) > len(chunk.text))
    return [_copy(chunk, "unspaced", text) for chunk, text in copies if 50 * len(text) < 49 * len(chunk.text)]


_UNPARTED: Final = frozenset(
    {"thai", "lao", "tibetan", "myanmar", "khmer", "han", "hiragana", "kana", "katakana", "cjk-punctuation"}
)


def _unparted(text: str) -> int:
    classes = count_classes(text).classes
    return sum(count for name, count in zip(CLASSES, classes, strict=True) if name in _UNPARTED)


def _copy(chunk: Chunk, kind: str, text: str) -> Chunk:
    return dataclasses.replace(chunk, label=f"{STRESS}{kind}_{chunk.label}", text=text)


def _solve(matrix: Floats, tokens: Floats, weights: Floats, tau: float, lower: Floats) -> Floats:
    """Solve one program: ``matrix @ beta / tokens - over + under = 1`` at the least ``weights``-ed pinball loss."""
    rows, columns = matrix.shape
    relative = sparse.csr_array(matrix / tokens[:, None])
    identity = sparse.eye_array(rows, format="csr")
    cost = np.concatenate([np.zeros(columns), weights * (1 - tau), weights * tau])
    least = np.concatenate([lower, np.zeros(2 * rows)])
    most = np.concatenate([BOUNDS, np.full(2 * rows, np.inf)])
    solution = optimize.linprog(
        cost,
        A_eq=sparse.hstack([relative, -identity, identity], format="csr"),
        b_eq=np.ones(rows),
        bounds=list(zip(least.tolist(), most.tolist(), strict=True)),
        method="highs",
    )
    if solution.status != 0:
        raise RuntimeError(f"the linear program was not solved: {solution.message}")
    return np.asarray(solution.x, np.float64)[:columns]


def of_one_origin(
    matrix: Floats, labels: Sequence[str], origins: Sequence[Hashable], written: float
) -> NDArray[np.bool_]:
    """Return which features are characters of scripts that are known from one origin of text.

    A script is known from as many origins as the class written in it that has the most. Chunks of one origin say little
    about another: the Chinese of a novel of the fourteenth century costs a quarter more tokens a character than that of
    today, whose chunks all lie within 8 % of each other.
    """
    first = len(_PAIR_COLUMNS) + len(_RUNS)
    known = np.zeros(matrix.shape[1], int)
    for label in dict.fromkeys(labels):
        members = [number for number, each in enumerate(labels) if each == label]
        seen = matrix[members].sum(axis=0)
        seen[len(_PAIR_COLUMNS) : first] = 0  # the start of a run is no character of its own
        main = seen >= written * seen.sum()
        main[:first] = False
        known[main] = np.maximum(known[main], len({origins[number] for number in members}))
    found: NDArray[np.bool_] = known == 1
    return found


def fit(matrix: Floats, tokens: Floats, labels: Sequence[str], origins: Sequence[Hashable], recipe: Recipe) -> Floats:
    """Return the fitted weight of each feature, in tokens.

    Parameters
    ----------
    matrix
        Features, shape (chunks, features).
    tokens
        What is to be covered: the largest count over the profile's tokenizers, for each chunk.
    labels
        Class of each chunk; classes weigh the same however many chunks they have.
    origins
        Where each chunk's text comes from.
    recipe
        Quantile and bags.
    """
    generator = np.random.default_rng(recipe.seed)
    names, number = np.unique(np.asarray(labels), return_inverse=True)
    importance = np.where(np.char.startswith(names, STRESS), recipe.stress, 1.0)
    enough = np.full(matrix.shape[1], recipe.rare_beyond)
    enough[: len(_PAIR_COLUMNS) + len(_RUNS)] = recipe.rare
    lower = np.where((matrix.sum(axis=0) < enough) | _NEVER, BOUNDS, 0.0)
    total = np.zeros(matrix.shape[1])
    for _ in range(recipe.bags):
        seen = generator.random(len(tokens)) < recipe.share
        chunks = np.bincount(number[seen], minlength=len(names)).clip(1)
        weights = (importance / chunks)[number[seen]]
        total += _solve(matrix[seen], tokens[seen], weights, recipe.tau, lower)
    beta: Floats = total / recipe.bags
    beta[of_one_origin(matrix, labels, origins, recipe.written) & (lower == 0)] *= recipe.one_origin
    return beta


def table(name: str, beta: Floats, matrix: Floats, *, capped: bool = True) -> Table:
    """Return fitted weights as a table of integers, rounded up.

    ``matrix`` is the text from which the mean weights of characters without known neighbours come.
    """
    units = np.ceil(np.round(beta * UNIT, 6)).astype(int)
    pairs = np.zeros(PAIRS, int)
    pairs[_PAIR_COLUMNS] = units[: len(_PAIR_COLUMNS)]
    for columns, weight in zip(_RUN_COLUMNS, units[len(_PAIR_COLUMNS) :], strict=False):
        pairs[columns] = weight
    classes = (*(0,) * _ASCII, *(int(unit) for unit in units[len(_PAIR_COLUMNS) + len(_RUNS) :]))
    return Table(name, bytes(pairs.tolist()), classes, _alone(units, matrix), capped)


def _alone(units: NDArray[np.int_], matrix: Floats) -> tuple[int, ...]:
    seen = matrix.sum(axis=0)
    spent = seen * units
    alone = []
    for kind in range(_ASCII):
        columns = slice(kind * len(BEFORE), (kind + 1) * len(BEFORE))
        alone.append(int(np.ceil(spent[columns].sum() / seen[columns].sum())) if seen[columns].any() else UNIT)
    sizes = np.array(BYTES[_ASCII:])
    latin = np.char.startswith(np.array(CLASSES[_ASCII:]), "latin") & (sizes == 2)
    for offset, members in enumerate((latin, (sizes == 2) & ~latin, sizes == 3, sizes == 4)):
        characters = seen[len(_PAIR_COLUMNS) + len(_RUNS) :][members].sum()
        column = len(_PAIR_COLUMNS) + offset
        alone.append(int(np.ceil(spent[column] / characters)) if characters else UNIT)
    return tuple(alone)


def largest(counts: Mapping[str, NDArray[np.int64]], names: Iterable[str]) -> Floats:
    """Return the largest count over several tokenizers, chunk by chunk."""
    tokens: Floats = np.max([counts[name] for name in names], axis=0).astype(np.float64)
    return tokens
