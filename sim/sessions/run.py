"""Acting out the sessions of a study under every arm."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.context import ContextPolicy, SendAll
from sim.replication import server_of, uncollected
from sim.sessions.agent import End, Tally
from sim.sessions.hosted_cache import HOSTED_CACHES, Account
from sim.sessions.solo import SessionResult, SoloServer, run_alone
from sim.sessions.together import Sitting, run_together
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
    """Act out all sessions of all arms; ``progress`` is called after every arm.

    Sessions share a simulated server if the workload says so; else each has an idle one to itself.

    Raises
    ------
    BadInput
        Faults of a recording; arms that have no agents; other sessions in one arm than in another.
    """
    plans = plans_of_study(study)
    rows: dict[str, list[Row]] = {}
    for name, arm in study.arms.items():
        with uncollected():
            rows[name] = _act_out(arm, plans)
        progress()
    return rows


def _act_out(arm: Arm, plans: Sequence[Plan]) -> list[Row]:
    policy, hosted = policy_of(arm), list(HOSTED_CACHES.values())
    room = room_of(arm, policy)
    if arm.workload.together:
        settled = arm.server.settle()
        model = "" if settled.model is None else settled.model.name
        server = dataclasses.replace(server_of(settled), prefix_cache=True)
        sittings, _ = run_together(plans, policy, arm.policy_output.build(), server, model, hosted, room=room)
        return [shared_row(sitting) for sitting in sittings]
    alone = solo_server_of(arm)
    return [solo_row(run_alone(plan, policy, alone, hosted, room)) for plan in plans]


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


def room_of(arm: Arm, policy: ContextPolicy[Any]) -> int | None:
    """Return the tokens that the arm's agents believe they may use; None if they were told of clearing."""
    if arm.policy.told:
        return None
    room: int = getattr(policy, "budget", arm.server.settle().window)
    return room


def solo_server_of(arm: Arm) -> SoloServer:
    """Return the arm's server for one session at a time; all of its pool may serve as prefix cache."""
    settled = arm.server.settle()
    return SoloServer(
        settled.step_time,
        settled.max_num_batched_tokens,
        settled.block_tokens,
        settled.kv_tokens // settled.block_tokens,
        settled.window,
    )


def solo_row(result: SessionResult) -> Row:
    """Return the numbers of a session that had a server to itself."""
    times = {
        "prefill_s": result.prefill_s,
        "busy_s": result.prefill_s + result.decode_s,
        "ttft_s": result.prefill_s,
        "duration_s": result.duration_s,
    }
    return _row(result.plan, result.end, result.reason, result.tally, result.hit_tokens, times, result.accounts)


def shared_row(sitting: Sitting) -> Row:
    """Return the numbers of a session that shared its server; what it alone cost that server is not known."""
    agent = sitting.agent
    assert agent.end is not None
    times = {
        "prefill_s": math.nan,
        "busy_s": math.nan,
        "ttft_s": sitting.ttft_s,
        "duration_s": sitting.ended_s - sitting.begun_s,
    }
    return _row(agent.plan, agent.end, agent.reason, agent.tally, sitting.hit_tokens, times, sitting.accounts)


def _row(
    plan: Plan,
    end: End,
    reason: str,
    tally: Tally,
    hit_tokens: int,
    times: Mapping[str, float],
    accounts: Sequence[Account],
) -> Row:
    values: dict[str, float] = {
        "sessions": 1,
        "finished": end is End.FINISHED,
        "refused_by_policy": end is End.REFUSED_BY_POLICY,
        "refused_by_server": end is End.REFUSED_BY_SERVER,
        "stopped": end is End.STOPPED,
        "requests": tally.requests,
        "prompt_tokens": tally.prompt_tokens,
        "output_tokens": tally.output_tokens,
        "hit_tokens": hit_tokens,
        "rewritten_tokens": tally.rewritten_tokens,
        "reread_tokens": tally.reread_tokens,
        "cleared_tokens": tally.cleared_tokens,
        "dropped_tokens": tally.dropped_tokens,
        "summaries": tally.summaries,
        "over_budget": tally.over_budget,
        **times,
    }
    values |= {f"stage{stage}": number for stage, number in enumerate(tally.stages)}
    values |= {f"cost.{account.cache.name}": account.cost for account in accounts}
    values |= {f"read.{account.cache.name}": account.read for account in accounts}
    return Row(
        plan.name,
        plan.script,
        plan.name.split("/")[0],
        end,
        reason,
        values,
        tally.largest_prompt,
        tally.largest_estimate,
    )
