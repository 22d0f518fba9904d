"""Sessions that share one simulated server: queueing, batching and the prefix cache between them, closed loop each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import simpy

from policies.context import ContextPolicy
from policies.output import Oracle, OutputPolicy, Send
from sim.agent import Agent, Ask
from sim.client import Clients, OpenCall
from sim.clock import Clock, Moment
from sim.hosted_cache import Account, HostedCache
from sim.records import OUTCOMES
from sim.replica import Replica, Server, Work
from workloads.agents import Plan

_FAILED = OUTCOMES.index("failed")


class Sitting:
    """One session on the server while it lasts.

    Parameters
    ----------
    clients
        Whose calls it makes.
    agent
        What it does.
    hosted
        Caches at which its requests are priced too.

    Attributes
    ----------
    agent, accounts
        The session, its bills.
    hit_tokens, ttft_s, begun_s, ended_s
        Prompt tokens found in the server's cache, times to first token in sum, when it began and ended.
    """

    __slots__ = ("accounts", "agent", "ask", "begun_s", "clients", "ended_s", "hit_tokens", "ttft_s")

    ask: Ask

    def __init__(self, clients: Clients, agent: Agent, hosted: Sequence[HostedCache]) -> None:
        self.clients = clients
        self.agent = agent
        self.accounts = [Account(each) for each in hosted]
        self.hit_tokens = 0
        self.ttft_s = self.ended_s = 0.0
        self.begun_s = agent.plan.start_s
        Moment(clients.clock, self.begun_s).callbacks.append(self.go_on)

    def go_on(self, _: simpy.Event | None = None) -> None:
        """Make the next request."""
        clients, ask = self.clients, self.agent.ask()
        now = clients.clock.now
        if ask is None:
            self.ended_s = now
            return
        self.ask = ask
        for account in self.accounts:
            account.charge(ask.prompt, now)
        AgentCall(self, now).begin()

    def answered(self, outcome: int, delivered: int) -> None:
        """Take the outcome of the request in and go on when the tool or the user is done."""
        agent, clock = self.agent, self.clients.clock
        if outcome == _FAILED and not delivered:
            agent.refused("the request was refused")
            self.ended_s = clock.now
            return
        # Never at once: the server keeps what was generated only after this, and what is sent next may be less.
        Moment(clock, clock.now + agent.answered(self.ask, delivered)).callbacks.append(self.go_on)


class AgentCall(OpenCall):
    """A call of an agent: its policies see the estimate, the server the true tokens and what they are made of."""

    __slots__ = ("sitting",)

    def __init__(self, sitting: Sitting, now: float) -> None:
        ask = sitting.ask
        prompt = ask.prompt
        super().__init__(sitting.clients, sitting.agent.number, now, prompt.tokens, ask.output_tokens, 0, 0)
        self.sitting = sitting
        self.segments = prompt

    def begin(self) -> None:
        """Send the first request."""
        clients = self.clients
        policy, known, estimate = clients.policy, clients.describe(0, 0), self.sitting.ask.fitted.estimate
        self.machine = (
            policy.begin(known, estimate, true_tokens=self.true_tokens)
            if isinstance(policy, Oracle)
            else policy.begin(known, estimate)
        )
        decision = self.machine.first()
        if isinstance(decision, Send):
            self._send(decision)
        else:
            self._refuse()

    def _keep(self, output: int, message_tokens: int) -> None:
        # The session's own prompt goes on without the recovery message, so the pieces go into another one.
        assert self.segments is not None
        if self.segments is self.sitting.ask.prompt:
            self.segments = self.segments.copy()
        super()._keep(output, message_tokens)

    def _answered(self, work: Work) -> None:
        sitting = self.sitting
        sitting.hit_tokens += work.cached
        if not self.attempts and not work.refusal:
            sitting.ttft_s += work.first_token_s - work.submitted_s
        super()._answered(work)

    def _record(self, outcome: int, delivered: int) -> None:
        super()._record(outcome, delivered)
        self.sitting.answered(outcome, delivered)


def run_together(
    plans: Sequence[Plan],
    policy: ContextPolicy[Any],
    output: OutputPolicy,
    server: Server,
    model: str = "",
    hosted: Sequence[HostedCache] = (),
    room: int | None = None,
    stepped: bool = False,
) -> tuple[list[Sitting], Clients]:
    """Act out sessions on one server, each from its own start; return them as they ended, and the records.

    Parameters
    ----------
    plans
        The sessions.
    policy, output
        The clients' context policy and output policy.
    server
        The server.
    model
        What calls tell the output policy of the model: its name.
    hosted
        See :class:`Sitting`.
    room
        See :class:`sim.agent.Agent`.
    stepped
        See :class:`sim.replica.Replica`.
    """
    clock = Clock()
    replica = Replica(clock, server, stepped=stepped)
    clients = Clients(clock, replica, output, model, server.window)
    clients.kinds, clients.scripts = ("agent",), ("",)
    sittings = [
        Sitting(clients, Agent(plan, policy, number, server.window, room), hosted) for number, plan in enumerate(plans)
    ]
    clock.run()
    return sittings, clients
