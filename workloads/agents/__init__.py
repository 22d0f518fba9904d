"""What agents do: plans of whole sessions, synthetic or recorded, that a client acts out step by step."""

from workloads.agents.plan import Part, Plan, Step
from workloads.agents.recorded import plans_of, read_plans
from workloads.agents.synthetic import AgentMix
from workloads.agents.writing import WRITINGS, Writing

__all__ = ["WRITINGS", "AgentMix", "Part", "Plan", "Step", "Writing", "plans_of", "read_plans"]
