"""Acting out the sessions of a study under every arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from policies.context import ContextPolicy, SendAll
from sim.agent import End
from sim.hosted_cache import HOSTED_CACHES
from sim.solo import SessionResult, SoloServer, run_alone
from sim.study import Study
from sim.study.tables import Arm
from workloads.agents import Plan
from workloads.errors import BadInput, Fault


@dataclass(frozen=True, slots=True)
class Row:
    """One session under one arm, as numbers.

    Attributes
    ----------
    name, script, owner
        Which session; sub-agents are counted with the session that owns them.
    end, reason
        How it ended.
    values
        Numbers by name, see :data:`sim.sessions.conclude.METRICS`.
    largest_prompt, largest_estimate
        The largest request in true and in estimated tokens.
    """

    name: str
    script: str
    owner: str
    end: End
    reason: str
    values: Mapping[str, float]
    largest_prompt: int
    largest_estimate: int


def conduct(study: Study, progress: Callable[[], None] = lambda: None) -> dict[str, list[Row]]:
    """Act out all sessions of all arms, each on an otherwise idle server; ``progress`` is called after every arm.

    Raises
    ------
    BadInput
        Faults of a recording; arms that have no agents; other sessions in one arm than in another.
    """
    plans = plans_of_study(study)
    rows: dict[str, list[Row]] = {}
    for name, arm in study.arms.items():
        policy, server = policy_of(arm), server_of(arm)
        rows[name] = []
        for plan in plans:
            rows[name].append(row_of(run_alone(plan, policy, server, list(HOSTED_CACHES.values()))))
        progress()
    return rows


def plans_of_study(study: Study) -> list[Plan]:
    """Return the sessions that every arm acts out.

    Raises
    ------
    BadInput
        Faults of a recording; arms that have no agents; other sessions in one arm than in another.
    """
    first = next(iter(study.arms.values())).workload
    wrong = [
        Fault("all arms of a study of agents need the same agents", study.path, key=f"arms.{name}.workload.agents")
        for name, arm in study.arms.items()
        if arm.workload != first or not first.agents
    ]
    if wrong:
        raise BadInput(*wrong)
    runs = study.run.replications
    count = runs if isinstance(runs, int) else runs.min
    sources = first.sessions()
    return [plan for number in range(count) for source in sources for plan in source.plans(study.seed, number)]


def policy_of(arm: Arm) -> ContextPolicy[Any]:
    """Return the arm's context policy; without one the whole history is sent."""
    policy: ContextPolicy[Any] = SendAll() if arm.policy_context is None else arm.policy_context.build()
    return policy


def server_of(arm: Arm) -> SoloServer:
    """Return the arm's server for one session at a time; all of its pool may serve as prefix cache."""
    settled = arm.server.settle()
    return SoloServer(
        settled.step_time,
        settled.max_num_batched_tokens,
        settled.block_tokens,
        settled.kv_tokens // settled.block_tokens,
        settled.window,
    )


def row_of(result: SessionResult) -> Row:
    """Return a session's numbers."""
    tally = result.tally
    values: dict[str, float] = {
        "sessions": 1,
        "finished": result.end is End.FINISHED,
        "refused_by_policy": result.end is End.REFUSED_BY_POLICY,
        "refused_by_server": result.end is End.REFUSED_BY_SERVER,
        "stopped": result.end is End.STOPPED,
        "requests": tally.requests,
        "prompt_tokens": tally.prompt_tokens,
        "output_tokens": tally.output_tokens,
        "hit_tokens": result.hit_tokens,
        "rewritten_tokens": tally.rewritten_tokens,
        "reread_tokens": tally.reread_tokens,
        "cleared_tokens": tally.cleared_tokens,
        "dropped_tokens": tally.dropped_tokens,
        "summaries": tally.summaries,
        "over_budget": tally.over_budget,
        "prefill_s": result.prefill_s,
        "busy_s": result.prefill_s + result.decode_s,
        "duration_s": result.duration_s,
    }
    values |= {f"stage{stage}": number for stage, number in enumerate(tally.stages)}
    values |= {f"cost.{account.cache.name}": account.cost for account in result.accounts}
    values |= {f"read.{account.cache.name}": account.read for account in result.accounts}
    return Row(
        result.plan.name,
        result.plan.script,
        result.plan.name.split("/")[0],
        result.end,
        result.reason,
        values,
        tally.largest_prompt,
        tally.largest_estimate,
    )
