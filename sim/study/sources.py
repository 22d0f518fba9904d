"""From the workload tables of the arms to the calls they simulate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sim.study.tables import Arm, WorkloadTable
from workloads.errors import BadInput, Fault
from workloads.source import Replay, Source

if TYPE_CHECKING:
    from workloads.readers import Recording

SHOWN = 20
"""Prompts of a trace that are named when they do not fit."""


def sources(arms: Mapping[str, Arm], resample: bool) -> dict[str, Source]:
    """Return where each arm's calls come from; a trace is read once, and arms with the same workload share a source.

    Arms with agents have no such source: their sessions are closed loops (see :mod:`sim.sessions`).

    Parameters
    ----------
    arms
        By name.
    resample
        Draw a block bootstrap of a trace in each replication, instead of playing it as recorded.

    Raises
    ------
    BadInput
        Bad rows of a trace, and prompts that leave no room for an answer in the window of an arm's server.
    """
    made: list[tuple[WorkloadTable, Source]] = []
    recorded: dict[tuple[str, str], Recording] = {}
    faults: list[Fault] = []
    for arm in arms.values():
        workload = arm.workload
        if workload.path is None or workload.agents:
            continue
        where = (workload.path, workload.format)
        try:
            if where not in recorded:
                recorded[where] = _read(*where)
        except BadInput as error:
            faults += error.faults
            continue
        faults += _too_long(recorded[where], arm.server.settle().window)
    if faults:
        raise BadInput(*dict.fromkeys(faults))

    def source(workload: WorkloadTable) -> Source:
        for known, built in made:
            if known == workload:
                return built
        if workload.path is None:
            fresh: Source = workload.mixture()
        else:
            trace = recorded[workload.path, workload.format].timed()
            fresh = Replay(trace, time_scale=workload.time_scale, resample=resample)
        made.append((workload, fresh))
        return fresh

    return {name: source(arm.workload) for name, arm in arms.items() if not arm.workload.agents}


def _read(path: str, format: str) -> Recording:
    from workloads.readers import read_recording  # brings pyarrow: a drawn workload goes without

    recording = read_recording(path, format)
    recording.timed()
    return recording


def _too_long(recording: Recording, window: int) -> Iterator[Fault]:
    prompts = recording.trace.prompt_tokens
    rows = np.flatnonzero(prompts >= window)
    if not len(rows):
        return
    lines = list(_lines(recording))
    for row in rows[:SHOWN]:
        where, line = ("", lines[row]) if lines else (f"row {row + 1}: ", None)
        message = f"{where}{prompts[row]:,} tokens leave no room for an answer in the window of {window:,}"
        yield Fault(message, recording.path, line, "prompt_tokens")
    if len(rows) > SHOWN:
        yield Fault(f"... and {len(rows) - SHOWN:,} more prompts beyond the window", recording.path)


def _lines(recording: Recording) -> Iterator[int]:
    """Yield the line of each row of a text file; nothing for a format without lines."""
    if recording.format == "parquet":
        return
    from workloads.readers import FORMATS
    from workloads.readers.stream import chunks, open_bytes

    with open_bytes(recording.path) as file:
        numbers = (number for chunk in chunks(file, recording.path) for number, line in chunk.lines() if line.strip())
        if FORMATS[recording.format].header:
            next(numbers)
        yield from numbers
