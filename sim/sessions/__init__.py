"""Studies of agent sessions: every arm acts out the same sessions, compared session by session."""

from sim.sessions.conclude import METRICS, Conclusion, Estimate, conclude
from sim.sessions.run import Row, conduct

__all__ = ["METRICS", "Conclusion", "Estimate", "Row", "conclude", "conduct"]
