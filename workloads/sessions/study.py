"""How well a law of sessions generalises: fitted on random halves, judged on the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.errors import BadInput, Fault
from workloads.readers.weka import Session
from workloads.sessions.fitting import fit_sessions
from workloads.sessions.judging import MARGINALS, NOISE, distances, halves, prefix_reuse
from workloads.sessions.model import SessionLaw

ALLOWED = 1.5
"""A drawn session may be this many times as far from recorded ones as those are from each other."""
DRAWN = 400
"""Sessions that are drawn for a comparison: enough for their own noise to be small beside that of the recorded half."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A law, and how near it comes.

    Attributes
    ----------
    law
        Fitted to all sessions.
    recorded, drawn
        All recorded sessions, and as many as `DRAWN` of the law.
    model, real
        One row a split: distances of sessions drawn from a law of one half to the other half, and of the two halves.
    """

    law: SessionLaw
    recorded: Sequence[Session]
    drawn: Sequence[Session]
    model: Sequence[dict[str, float]]
    real: Sequence[dict[str, float]]

    def summary(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        rows = {}
        for name in MARGINALS:
            model, real = ([split[name] for split in found] for found in (self.model, self.real))
            rows[name] = {
                "median": float(np.median(model)),
                "worst": max(model),
                "real_median": float(np.median(real)),
                "real_worst": max(real),
                "bar": ALLOWED * NOISE[name],
                "within": float(np.mean(np.array(model) <= ALLOWED * NOISE[name])),
            }
        reuse = {"drawn": prefix_reuse(self.drawn), "recorded": prefix_reuse(self.recorded)}
        return {"sessions": len(self.recorded), "splits": len(self.model), "distances": rows, "prefix_reuse": reuse}


def judge(sessions: Sequence[Session], splits: int, seed: int, source: str) -> Outcome:
    """Return the law of these sessions and its distances on random halves.

    Raises
    ------
    workloads.errors.BadInput
        If there are too few sessions.
    """
    model, real = [], []
    try:
        for split in range(splits):
            fitted, other = halves(sessions, seed + split)
            drawn = list(fit_sessions(fitted, source).sessions(seed + split, 0, DRAWN))
            model.append(distances(drawn, other))
            real.append(distances(fitted, other))
        law = fit_sessions(sessions, source)
    except ValueError as error:
        raise BadInput(Fault(f"too little to fit: {error}")) from None
    return Outcome(law, sessions, list(law.sessions(seed, 0, DRAWN)), model, real)
