"""A column of lengths in a CSV, for an empirical law."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workloads.readers.faults import FaultLog
from workloads.readers.stream import chunks, open_bytes
from workloads.readers.table import SECONDS, TOKENS, Column, read_table


def read_lengths(path: Path, column: str, weights: Sequence[str]) -> tuple[list[int], list[float]]:
    """Return the token counts of a column and their weights (1 each if the file has no column of weights).

    Raises
    ------
    workloads.errors.BadInput
        All faults of the file at once.
    """
    log = FaultLog(path)
    columns = [Column(column, TOKENS), *(Column(name, SECONDS, required=False) for name in weights)]
    with open_bytes(path) as source:
        rows, _ = read_table(chunks(source, path), columns, log)
    log.close()
    if not len(rows.lines):
        raise log.fatal("holds no lengths")
    weighed = next((rows.columns[name] for name in weights if name in rows.columns), np.ones(len(rows.lines)))
    return rows.columns[column].tolist(), weighed.tolist()
