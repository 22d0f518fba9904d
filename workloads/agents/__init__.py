"""What agents do: plans of whole sessions, synthetic or recorded, that a client acts out step by step."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from workloads.agents.fitted import FittedAgents
from workloads.agents.plan import Part, Plan, Step
from workloads.agents.recorded import RecordedAgents, plans_of, read_plans
from workloads.agents.synthetic import AgentMix
from workloads.agents.writing import WRITINGS, Writing

__all__ = [
    "AGENTS",
    "WRITINGS",
    "AgentMix",
    "Agents",
    "FittedAgents",
    "Part",
    "Plan",
    "RecordedAgents",
    "Step",
    "Writing",
    "plans_of",
    "read_plans",
]


class Agents(Protocol):
    """Where sessions come from: the same ones for every arm of a study."""

    def plans(self, seed: int, replication: int) -> Iterator[Plan]:
        """Yield the sessions of a replication."""
        ...


AGENTS: Final[Mapping[str, type[Agents]]] = MappingProxyType(
    {"synthetic": AgentMix, "fitted": FittedAgents, "weka": RecordedAgents}
)
"""Kinds of sessions by the names that studies use; their fields are the keys of ``[[workload.agents]]``."""
