"""Fits of a whole recording: which answers were cut, and one report a group."""

from __future__ import annotations

import numpy as np

from workloads.errors import BadInput, Fault
from workloads.fit import Report, Sample, capped, fit_all
from workloads.readers.recording import Recording


def fit_recording(
    recording: Recording, cap: int | None = None, by: str | None = None
) -> tuple[dict[str, Report], list[str]]:
    """Return a report of each group of calls, and notes on what was assumed.

    Parameters
    ----------
    recording
        The calls.
    cap
        Answers of at least this length were cut; None to take what was recorded, else a limit that shows in the data.
    by
        ``kind`` or ``script`` to fit each alone; None for all together.

    Raises
    ------
    workloads.errors.BadInput
        If the source does not tell its number of calls, there is no such column, or no group is large enough to fit.
    """
    trace = recording.trace
    notes: list[str] = []
    if recording.requests is None:
        raise BadInput(
            Fault("does not tell how many calls it was made from; without it no fit is sure", recording.path)
        )
    lengths, weights = trace.output_tokens, recording.weights
    cut = np.zeros(len(trace), np.bool_) if trace.truncated is None else trace.truncated
    if cap is None and trace.truncated is None:
        cap = capped(lengths, weights)
        if cap is not None:
            notes.append(f"many answers have exactly {cap:,} tokens and none more: taken as cut (else give --cap)")
    if cap is not None:
        cut = cut | (lengths >= cap)
    clusters = recording.clusters if recording.clusters is not None else trace.session
    groups = {"all": np.ones(len(trace), np.bool_)}
    if by is not None:
        labels = {"kind": trace.kind, "script": trace.script}.get(by)
        if labels is None:
            raise BadInput(Fault(f"the trace has no column {by!r} to group by; allowed: kind, script", key="--by"))
        groups = {name: labels.codes == code for code, name in enumerate(labels.names)}
    reports = {}
    for name, mine in groups.items():
        sample = Sample.of(
            lengths[mine],
            cut[mine],
            None if weights is None else weights[mine],
            None if clusters is None else clusters[mine],
        )
        try:
            reports[name] = fit_all(sample)
        except ValueError as error:
            notes.append(f"{name}: not fitted, {error}")
    if not reports:
        raise BadInput(*(Fault(note, recording.path) for note in notes))
    return reports, notes
