"""Sessions drawn from a law that was fitted to recorded ones (:mod:`workloads.sessions`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workloads.agents.plan import Plan
from workloads.agents.recorded import plans_of
from workloads.checks import require, whole


@dataclass(frozen=True, slots=True)
class FittedAgents:
    """Sessions like recorded ones, other ones in every replication.

    Attributes
    ----------
    name
        Names the random numbers.
    count
        Sessions in a replication.
    path
        A law that ``slotsim trace fit-sessions`` wrote; None takes the one of Claude Code sessions that comes with the
        project.
    """

    name: str = "claude-code"
    count: int = 20
    path: str | None = None

    def __post_init__(self) -> None:
        require(whole("count", self.count, 1, 10**6))

    def plans(self, seed: int, replication: int) -> Iterator[Plan]:
        """Yield the sessions.

        Raises
        ------
        workloads.errors.BadInput
            What is wrong with the file of the law.
        """
        from workloads.sessions import SessionLaw  # brings scipy and pyarrow: only these sessions have to pay for it

        law = SessionLaw.named("claude-code") if self.path is None else SessionLaw.read(self.path)
        for session in law.sessions(seed, replication, self.count, self.name):
            yield from plans_of(session)
