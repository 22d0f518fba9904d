"""What can be said about a study of sessions before it is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.context import ContextPolicy, Refused
from policies.messages import History, ToolCall, assistant, system, tool_result, user
from sim.sessions.run import plans_of_study, policy_of
from sim.study import Study
from workloads.agents import Plan


def warnings(study: Study) -> Iterator[str]:
    """Yield a line for every arm whose policy will refuse sessions: its budget cannot hold first message and a round.

    Raises
    ------
    BadInput
        Faults of a recording.
    """
    plans = plans_of_study(study)
    refusing: dict[int, list[str]] = {}
    for name, arm in study.arms.items():
        policy = policy_of(arm)
        refusing.setdefault(sum(_cannot_begin(plan, policy) for plan in plans), []).append(name)
    for refused, names in refusing.items():
        if refused:
            yield (
                f"{refused:,} of {len(plans):,} sessions will be refused, as the budget cannot hold their first "
                f"message and largest round: in {', '.join(names)}"
            )


def _cannot_begin(plan: Plan, policy: ContextPolicy[Any]) -> bool:
    """Return whether the policy refuses the first message with some single round behind it."""
    history = History((system(plan.head.content), user(plan.first.content)))
    call = ToolCall("t")
    largest = max(
        (step for step in plan.steps if step.incoming is not None and not step.user),
        key=lambda step: step.answer.tokens + (step.incoming.tokens if step.incoming else 0),
        default=None,
    )
    if largest is not None and largest.incoming is not None:
        history = history.append(assistant(largest.answer.content, call))
        history = history.append(tool_result("t", largest.incoming.content))
    return isinstance(policy.fit(history), Refused)
