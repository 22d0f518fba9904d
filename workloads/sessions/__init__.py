"""Agent sessions drawn from a law that was fitted to recorded ones."""

from workloads.sessions.fitting import fit_sessions
from workloads.sessions.judging import MARGINALS, NOISE, distances, halves, marginals, prefix_reuse
from workloads.sessions.model import SessionLaw, Table

__all__ = [
    "MARGINALS",
    "NOISE",
    "SessionLaw",
    "Table",
    "distances",
    "fit_sessions",
    "halves",
    "marginals",
    "prefix_reuse",
]
