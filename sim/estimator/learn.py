"""Correct a table from usage records: what a team's own traffic really costs, by content class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from policies.tokens import Table, estimator_named
from sim.estimator.evaluate import script_of
from workloads.errors import BadInput, Fault, did_you_mean, unreadable
from workloads.tokens.corpora import Chunk, own_corpus, read_corpus

COLUMNS: Final = ("class", "chars", "tokens")
"""Of a log: content class, characters sent, tokens charged."""
LEVEL: Final = 0.95
_RESAMPLES: Final = 2000


@dataclass(frozen=True, slots=True)
class Factor:
    """By what a class's estimates must be multiplied, with the interval at 95 % from resampling its requests."""

    class_: str
    requests: int
    factor: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a table, one for each content class of a log."""

    table: str
    factors: tuple[Factor, ...]

    def content(self) -> dict[str, Any]:
        """Return what ``--json`` prints and ``-o`` writes."""
        rows = [
            {"class": f.class_, "requests": f.requests, "factor": f.factor, "interval": [f.low, f.high]}
            for f in self.factors
        ]
        return {"table": self.table, "factors": rows}


def read_log(file: Path) -> pd.DataFrame:
    """Return a usage log with the columns of `COLUMNS`.

    Raises
    ------
    BadInput
        If it cannot be read, lacks a column, or a row holds what is no number of characters or tokens.
    """
    try:
        frame = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, dtype=str)
    except OSError as error:
        raise BadInput(unreadable(error, file)) from None
    except (ValueError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise BadInput(Fault(f"no table: {error}".splitlines()[0], file=file)) from None
    lacks = [c for c in COLUMNS if c not in frame.columns]
    if lacks:
        found = [str(column) for column in frame.columns]
        raise BadInput(*(Fault(f"column is missing{did_you_mean(c, found)}", file=file, key=c) for c in lacks))
    faults = []
    kept = frame.loc[:, list(COLUMNS)].copy()
    for column in ("chars", "tokens"):
        numbers = pd.to_numeric(kept[column], errors="coerce")
        for row in np.flatnonzero(~(numbers > 0) | ~np.isfinite(numbers))[:5]:
            value = kept[column].iloc[row]
            faults.append(Fault(f"must be a number above 0, is {value!r}", file=file, line=int(row) + 2, key=column))
        kept[column] = numbers
    for row in np.flatnonzero(kept["class"].isna())[:5]:
        faults.append(Fault("is empty", file=file, line=int(row) + 2, key="class"))
    if frame.empty:
        faults.append(Fault("has no rows", file=file))
    if faults:
        raise BadInput(*faults)
    return kept


def tokens_per_char(table: Table) -> dict[str, float]:
    """Return what a table charges a character of each class and script of the project's own corpus."""
    spent: dict[str, list[tuple[int, int]]] = {}
    for chunk in read_corpus([own_corpus()]):
        cost = (table.estimate(chunk.text), len(chunk.text))
        for name in {chunk.label, chunk.label.partition("_")[2], script_of(Chunk(chunk.label, chunk.text))}:
            spent.setdefault(name, []).append(cost)
    return {name: sum(t for t, _ in costs) / sum(c for _, c in costs) for name, costs in spent.items()}


def learn_factors(log: Path, table: str) -> Factors:
    """Return the factor of each content class of a log: tokens charged over tokens estimated.

    A class that the project's corpus has (``lat_de``, ``code_py``, ``cyrillic``...) is estimated at that class's tokens
    per character; any other at the median class's, so that its factor carries all of the difference. The factor is a
    ratio of sums, so that long requests count as the tokens they are.

    Raises
    ------
    BadInput
        If the log cannot be used, or there is no such table.
    """
    try:
        estimator = estimator_named(table)
    except ValueError as error:
        raise BadInput(Fault(str(error), key="--table")) from None
    if not isinstance(estimator, Table):
        raise BadInput(Fault(f"{table} has no weights to correct; tables are named table:...", key="--table"))
    frame = read_log(log)
    rates = tokens_per_char(estimator)
    middle = float(np.median([*rates.values()]))
    generator = np.random.default_rng(20261130)
    factors = []
    for name, requests in frame.groupby("class", sort=True):
        estimated = requests["chars"].to_numpy(float) * rates.get(str(name), middle)
        tokens = requests["tokens"].to_numpy(float)
        drawn = generator.integers(len(tokens), size=(_RESAMPLES, len(tokens)))
        ratios = tokens[drawn].sum(axis=1) / estimated[drawn].sum(axis=1)
        low, high = np.quantile(ratios, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        factors.append(Factor(str(name), len(tokens), float(tokens.sum() / estimated.sum()), float(low), float(high)))
    return Factors(table, tuple(factors))
