"""The sessions of a study as one Parquet table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sim.sessions.run import Row


def write_rows(rows: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Write one row a session and arm: which, how it ended, its numbers."""
    flat = [(arm, row) for arm, each in rows.items() for row in each]
    columns: dict[str, list[object]] = {
        "arm": [arm for arm, _ in flat],
        "session": [row.name for _, row in flat],
        "script": [row.script for _, row in flat],
        "end": [row.end.value for _, row in flat],
        "reason": [row.reason for _, row in flat],
        "largest_prompt": [row.largest_prompt for _, row in flat],
        "largest_estimate": [row.largest_estimate for _, row in flat],
    }
    for name in flat[0][1].values:
        columns[name] = [float(row.values[name]) for _, row in flat]
    pq.write_table(pa.table(columns), path)
