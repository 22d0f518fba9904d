"""Recordings of a real client, replayed through the policies without network or clock."""

from sim.conformance.replay import Case, Report, run

__all__ = ["Case", "Report", "run"]
