"""An estimator against real tokenizers, chunk by chunk."""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from policies.tokens import Table, class_of, estimator_named, estimator_names
from workloads.errors import BadInput, Fault
from workloads.tokenizers import Tokenizer
from workloads.tokens.corpora import Chunk
from workloads.tokens.kernel import FastTable

MAX: Final = "max"
"""The tokenizer that is the largest count of all, chunk by chunk."""
LEVEL: Final = 0.95
_RESAMPLES: Final = 2000


class Estimates(Protocol):
    """Anything with a name that makes tokens of a text."""

    @property
    def name(self) -> str:
        """How the report calls it."""

    def estimate(self, text: str) -> int:
        """Return the tokens of a text."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Somebody's function, held to what an estimator must do.

    Attributes
    ----------
    name
        ``module:function``.
    function
        Text in, tokens out; a fraction is rounded up.
    """

    name: str
    function: Callable[[str], object]

    def estimate(self, text: str) -> int:
        """Return the tokens of a text.

        Raises
        ------
        BadInput
            If the function raises, or returns what is no number of tokens.
        """
        shown = f"{text[:30]!r}..." if len(text) > 30 else repr(text)
        try:
            tokens = self.function(text)
        except Exception as error:  # whatever it is, it is theirs, and it is told with the text that caused it
            message = f"raised {type(error).__name__}: {error}, for {shown}"
            raise BadInput(Fault(message, key=self.name)) from None
        if isinstance(tokens, bool) or not isinstance(tokens, int | float | np.integer | np.floating):
            message = f"returned {tokens!r} for {shown}; a number of tokens is needed"
            raise BadInput(Fault(message, key=self.name))
        if not math.isfinite(tokens) or tokens < 0:
            message = f"returned {tokens!r} for {shown}; tokens are finite and not negative"
            raise BadInput(Fault(message, key=self.name))
        return math.ceil(tokens)


def load_estimator(name: str) -> Estimates:
    """Return an estimator of ours by its name, or anybody's by ``module:function``.

    A module is looked for in the working directory too. Tables run on the numpy kernel.

    Raises
    ------
    BadInput
        If there is no such estimator, module or function.
    """
    module, colon, function = name.partition(":")
    if not colon or module == "table":
        try:
            estimator = estimator_named(name)
        except ValueError as error:
            raise BadInput(Fault(f"{error}; or module:function", key="--estimator")) from None
        return FastTable(estimator) if isinstance(estimator, Table) else estimator
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module)
    except Exception as error:  # an import runs their code: whatever it raises, it is told
        message = f"cannot import {module}: {type(error).__name__}: {error}; ours are {', '.join(estimator_names())}"
        raise BadInput(Fault(message, key="--estimator")) from None
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadInput(Fault(f"{module} has no function {function!r}", key="--estimator"))
    return Foreign(name, found)


@dataclass(frozen=True, slots=True)
class Row:
    """How an estimator does on one class against one tokenizer; its fields are the keys of ``--json``.

    The script is the one that most of the class's chunks are in.

    Errors are (estimate - count) / count; under-estimated means estimate < count. Intervals hold at 95 %: of a class,
    Clopper and Pearson's for the share; of all chunks, from resampling whole classes, because the chunks of a class
    are alike.
    """

    class_: str
    script: str
    tokenizer: str
    chunks: int
    chars_per_token: float
    under_share: float
    under_interval: tuple[float, float]
    mean_error: float
    p1_error: float
    p99_error: float
    worst_error: float

    def content(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        names = {"class_": "class"}
        return {names.get(field, field): getattr(self, field) for field in self.__slots__}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Rows by class and tokenizer, and all chunks against the largest count.

    Attributes
    ----------
    estimator
        Its name.
    tokenizers
        Their names, without `MAX`.
    rows
        One for each class and tokenizer, `MAX` last.
    overall
        All chunks against `MAX`.
    mean_interval
        Of the overall mean error.
    speed
        MB of UTF-8 a second in this run, of the estimator and of each tokenizer.
    errors
        Signed errors of every chunk by class and tokenizer, for plots.
    """

    estimator: str
    tokenizers: tuple[str, ...]
    rows: tuple[Row, ...]
    overall: Row
    mean_interval: tuple[float, float]
    speed: Mapping[str, float]
    errors: Mapping[tuple[str, str], NDArray[np.float64]]

    def content(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "estimator": self.estimator,
            "tokenizers": list(self.tokenizers),
            "rows": [row.content() for row in self.rows],
            "overall": {**self.overall.content(), "mean_interval": list(self.mean_interval)},
            "speed_mb_per_s": dict(self.speed),
        }


_GROUPS: Final = {
    **dict.fromkeys(("greek-late",), "greek"),
    **dict.fromkeys(("cyrillic-capital", "cyrillic-national", "cyrillic-extended"), "cyrillic"),
    **dict.fromkeys(("arabic-mark", "arabic-extended"), "arabic"),
    **dict.fromkeys(("kana", "katakana"), "hiragana"),
    **dict.fromkeys(("cjk-rare", "han-far"), "han"),
    "armenian-late": "armenian",
    "myanmar-extended": "myanmar",
    "jamo": "hangul",
}
_NEUTRAL: Final = frozenset({"punctuation", "mark", "cjk-punctuation", "full-width", "variation", "symbol"})


def script_of(chunk: Chunk) -> str:
    """Return the script that most of a chunk's letters are in; ``ascii`` where fewer than a tenth are anything else."""
    found: dict[str, int] = {}
    for character in chunk.text:
        name = "ascii" if character.isascii() else class_of(character)
        name = "latin" if name.startswith("latin") else _GROUPS.get(name, name)
        if name not in _NEUTRAL and not (name == "ascii" and not character.isalpha()):
            found[name] = found.get(name, 0) + 1
    letters = sum(found.values())
    beyond = {name: count for name, count in found.items() if name not in ("ascii", "latin")}
    if beyond and 10 * sum(beyond.values()) >= letters:
        return max(beyond, key=lambda name: beyond[name])
    return "latin" if found.get("latin") else "ascii"


def class_of_chunk(chunk: Chunk) -> str:
    """Return the class of a chunk: its file."""
    return chunk.label


BY: Final[Mapping[str, Callable[[Chunk], str]]] = {"class": class_of_chunk, "script": script_of}


def evaluate(
    estimator: Estimates, chunks: Sequence[Chunk], tokenizers: Sequence[Tokenizer], by: str = "class"
) -> Evaluation:
    """Measure an estimator on chunks against tokenizers.

    Parameters
    ----------
    estimator
        What is measured.
    chunks
        The texts, at least one.
    tokenizers
        What it is measured against, at least one.
    by
        ``class`` or ``script``: what the rows are.
    """
    texts = [chunk.text for chunk in chunks]
    size = sum(len(text.encode()) for text in texts) / 1e6
    estimates, speed = _timed(lambda: [estimator.estimate(text) for text in texts], size)
    counts: dict[str, NDArray[np.int64]] = {}
    speeds = {estimator.name: speed}
    for tokenizer in tokenizers:
        tokenizer.count(texts[0])  # builds what it builds on first use
        counts[tokenizer.name], speeds[tokenizer.name] = _timed(partial(tokenizer.count_many, texts), size)
    counts[MAX] = np.max([*counts.values()], axis=0)
    groups = np.array([BY[by](chunk) for chunk in chunks])
    scripts = np.array([script_of(chunk) for chunk in chunks])
    lengths = np.array([len(text) for text in texts])
    rows, errors = [], {}
    for group in sorted(set(groups.tolist())):
        members = groups == group
        for name, count in counts.items():
            errors[group, name] = (estimates[members] - count[members]) / count[members]
            interval = _binomial(errors[group, name])
            density = lengths[members].sum() / count[members].sum()
            rows.append(_row((group, _commonest(scripts[members]), name), errors[group, name], density, interval))
    every = (estimates - counts[MAX]) / counts[MAX]
    under, mean = resampled([errors[group, MAX] for group in sorted(set(groups.tolist()))])
    overall = _row(("all", _commonest(scripts), MAX), every, lengths.sum() / counts[MAX].sum(), under)
    names = tuple(tokenizer.name for tokenizer in tokenizers)
    return Evaluation(estimator.name, names, tuple(rows), overall, mean, speeds, errors)


def _timed(work: Callable[[], Sequence[int]], size: float) -> tuple[NDArray[np.int64], float]:
    start = time.perf_counter()
    done = work()
    return np.array(done, np.int64), size / max(time.perf_counter() - start, 1e-9)


def _commonest(names: NDArray[np.str_]) -> str:
    found, times = np.unique(names, return_counts=True)
    return str(found[times.argmax()])


def _row(
    place: tuple[str, str, str], errors: NDArray[np.float64], chars_per_token: float, under: tuple[float, float]
) -> Row:
    low, high = np.quantile(errors, (0.01, 0.99))
    return Row(
        *place,
        len(errors),
        float(chars_per_token),
        float((errors < 0).mean()),
        under,
        float(errors.mean()),
        float(low),
        float(high),
        float(errors.min()),
    )


def _binomial(errors: NDArray[np.float64]) -> tuple[float, float]:
    under = int((errors < 0).sum())
    interval = stats.binomtest(under, len(errors)).proportion_ci(LEVEL, method="exact")
    return float(interval.low), float(interval.high)


def resampled(classes: Sequence[NDArray[np.float64]]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the intervals of the share under-estimated and of the mean error, from resampling whole classes.

    Where no chunk or every chunk is under-estimated resampling has nothing to say; then the share's far bound is
    Clopper and Pearson's over the classes, as if the chunks of a class stood or fell together.
    """
    chunks = np.array([len(errors) for errors in classes])
    under = np.array([(errors < 0).sum() for errors in classes])
    total = np.array([errors.sum() for errors in classes])
    drawn = np.random.default_rng(20261130).integers(len(classes), size=(_RESAMPLES, len(classes)))
    of = chunks[drawn].sum(axis=1)
    edges = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    low, high = np.quantile(under[drawn].sum(axis=1) / of, edges)
    far = 1 - edges[0] ** (1 / len(classes))
    if under.sum() == 0:
        high = far
    if under.sum() == chunks.sum():
        low = 1 - far
    mean = np.quantile(total[drawn].sum(axis=1) / of, edges)
    return (float(low), float(high)), (float(mean[0]), float(mean[1]))
