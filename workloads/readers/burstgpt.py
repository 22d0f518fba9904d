"""BurstGPT traces.

Schema: HPMLL/BurstGPT, README (release 1.1; later files add Session ID and Elapsed time): CSV with Timestamp (seconds
from the start), Model, Request tokens, Response tokens (0 for a failed call), Total tokens, Log Type.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workloads.readers.build import Build
from workloads.readers.columnar import session_numbers
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk
from workloads.readers.table import MAYBE_SECONDS, SECONDS, TEXT, TOKENS, Column, read_table
from workloads.trace import Labels

COLUMNS = (
    Column("Timestamp", SECONDS),
    Column("Request tokens", TOKENS),
    Column("Response tokens", TOKENS),
    Column("Log Type", TEXT, required=False),
    Column("Session ID", TEXT, required=False),
    Column("Elapsed time", MAYBE_SECONDS, required=False),
)


def read(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the calls that were answered; failed ones are counted in the notes."""
    rows, ignored = read_table(chunks, COLUMNS, build.log)
    build.ignore(ignored)
    answered = np.flatnonzero(rows.columns["Response tokens"] > 0)
    failed = len(rows.lines) - len(answered)
    if failed:
        build.notes.append(f"{failed:,} failed calls (0 response tokens) left out")
    found = {name: column[answered] for name, column in rows.columns.items()}
    return build.ordered(
        rows.lines[answered],
        arrival_s=found["Timestamp"],
        prompt_tokens=found["Request tokens"],
        output_tokens=found["Response tokens"],
        kind=Labels.of(list(found["Log Type"])) if "Log Type" in found else None,
        session=session_numbers(found["Session ID"]) if "Session ID" in found else None,
        service_s=found.get("Elapsed time"),
    )
