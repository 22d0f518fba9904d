"""Sessions one at a time on a server that is otherwise idle: exact, in closed form, without queueing.

What a context policy costs when nobody else is there: prefill and decoding of one session's requests, its prefix cache
and its bills at hosted caches. Queueing and a shared cache only add to it; they need the simulated server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from policies.context import ContextPolicy
from sim.replica.prefix_cache import PrefixCache
from sim.sessions.agent import Agent, End, Tally
from sim.sessions.hosted_cache import Account, HostedCache
from sim.steptime import StepTime
from workloads.agents import Plan


@dataclass(frozen=True, slots=True)
class SoloServer:
    """A server for one session.

    Attributes
    ----------
    step_time
        What an iteration costs.
    chunk
        Prompt tokens computed in one iteration at most.
    block
        Tokens in a block of its prefix cache.
    capacity
        Blocks that it holds; None: as many as the session needs.
    window
        Tokens that the model reads at most.
    """

    step_time: StepTime
    chunk: int = 8192
    block: int = 16
    capacity: int | None = None
    window: int = 1_000_000

    def prefill_s(self, tokens: int, past: int) -> float:
        """Return the seconds to compute so many prompt tokens behind ``past`` others."""
        seconds = 0.0
        while tokens:
            piece = min(tokens, self.chunk)
            base, slope, steps = self.step_time.segment(0, 0, [(piece, past)])
            steps = min(steps, tokens // piece)
            seconds += steps * base + steps * (steps - 1) / 2 * slope
            past += steps * piece
            tokens -= steps * piece
        return seconds

    def decode_s(self, tokens: int, context: int) -> float:
        """Return the seconds to generate so many tokens behind ``context`` others."""
        seconds = 0.0
        while tokens:
            base, slope, steps = self.step_time.segment(1, context)
            steps = min(steps, tokens)
            seconds += steps * base + steps * (steps - 1) / 2 * slope
            context += steps
            tokens -= steps
        return seconds


@dataclass(slots=True)
class SessionResult:
    """One session under one policy.

    Attributes
    ----------
    plan
        Which.
    end, reason
        How it ended.
    tally
        What the agent did.
    hit_tokens
        Prompt tokens found in the server's prefix cache.
    prefill_s, decode_s, wait_s
        Seconds spent computing prompts, generating, waiting for tools and users. In an open loop requests may overlap;
        the wait is then what is left of the time between two, maybe below 0.
    ttft_s
        Time to first token of every request, seconds.
    accounts
        The bills, one a hosted cache.
    """

    plan: Plan
    end: End
    reason: str
    tally: Tally
    hit_tokens: int
    prefill_s: float
    decode_s: float
    wait_s: float
    ttft_s: list[float]
    accounts: Sequence[Account]

    @property
    def duration_s(self) -> float:
        """Seconds from the first request to the end."""
        return self.prefill_s + self.decode_s + self.wait_s


def run_alone(
    plan: Plan,
    policy: ContextPolicy[Any],
    server: SoloServer,
    hosted: Sequence[HostedCache] = (),
    room: int | None = None,
) -> SessionResult:
    """Act a session out.

    Parameters
    ----------
    plan
        The session.
    policy
        The context policy.
    server
        Who serves it.
    hosted
        Caches at which its requests are priced too.
    room
        See :class:`sim.sessions.agent.Agent`.
    """
    agent = Agent(plan, policy, 0, server.window, room)
    cache = PrefixCache(server.block, server.capacity)
    accounts = [Account(each) for each in hosted]
    prefill_s = decode_s = wait_s = 0.0
    due_s = iter(plan.due_s)
    now_s = next(due_s, 0.0)
    hits = 0
    ttft_s: list[float] = []
    while (ask := agent.ask()) is not None:
        prompt = ask.prompt
        tokens = prompt.tokens
        for account in accounts:
            account.charge(prompt, now_s)
        hit = min(cache.use(prompt, now_s), (tokens - 1) // server.block * server.block)
        hits += hit
        first_s = server.prefill_s(tokens - hit, hit)
        more_s = server.decode_s(ask.output_tokens - 1, tokens + 1)
        done_s = now_s + first_s + more_s
        next_s = done_s + agent.answered(ask)
        if plan.due_s:
            next_s = now_s if ask.is_summary else next(due_s, done_s)
        cache.use(prompt, now_s)  # the answer, which the agent appended, is kept too
        ttft_s.append(first_s)
        prefill_s += first_s
        decode_s += more_s
        wait_s += next_s - done_s
        now_s = next_s
    assert agent.end is not None
    return SessionResult(
        plan, agent.end, agent.reason, agent.tally, hits, prefill_s, decode_s, wait_s, ttft_s, accounts
    )
