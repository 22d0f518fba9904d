"""Sessions that share one simulated server: queueing, batching and the prefix cache between them, closed loop each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import simpy

from policies.context import ContextPolicy
from policies.output import OutputPolicy
from sim.clients.client import Clients, OpenCall
from sim.clock import Clock, Moment
from sim.records import OUTCOMES
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replica.work import Work
from sim.sessions.agent import Agent, Ask
from sim.sessions.hosted_cache import Account, HostedCache
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

    ask: Ask | None

    def __init__(self, clients: Clients, agent: Agent, hosted: Sequence[HostedCache]) -> None:
        self.clients = clients
        self.agent = agent
        self.accounts = [Account(each) for each in hosted]
        self.hit_tokens = 0
        self.ttft_s = self.ended_s = 0.0
        self.ask = None
        self.begun_s = agent.plan.start_s + (agent.plan.due_s[0] if agent.plan.due_s else 0.0)
        Moment(clients.clock, self.begun_s).callbacks.append(self.go_on)

    def go_on(self, _: simpy.Event | None = None) -> None:
        """Make the next request."""
        self.ask = ask = self.agent.ask()
        if ask is None:
            self.ended_s = self.clients.clock.now
        else:
            self.send(ask)

    def send(self, ask: Ask) -> None:
        """Send a request."""
        now = self.clients.clock.now
        for account in self.accounts:
            account.charge(ask.prompt, now)
        AgentCall(self, ask, now).begin(ask.fitted.estimate)

    def answered(self, ask: Ask, outcome: int, delivered: int) -> None:
        """Take the outcome of a request in and go on when the tool or the user is done."""
        if outcome == _FAILED and not delivered:
            self.refused()
            return
        # Never at once: the server keeps what was generated only after this, and what is sent next may be less.
        clock = self.clients.clock
        Moment(clock, clock.now + self.agent.answered(ask, delivered)).callbacks.append(self.go_on)

    def refused(self) -> None:
        """End the session: a request failed and nothing of an answer came."""
        self.agent.refused("the request was refused")
        self.ended_s = self.clients.clock.now


class OpenSitting(Sitting):
    """A session whose requests come when they are due: none waits for the answer before it."""

    __slots__ = ("sent",)

    def __init__(self, clients: Clients, agent: Agent, hosted: Sequence[HostedCache]) -> None:
        super().__init__(clients, agent, hosted)
        self.sent = 0

    def go_on(self, _: simpy.Event | None = None) -> None:
        """Make the request that is due, whatever became of the one before it."""
        agent, due_s = self.agent, self.agent.plan.due_s
        if self.ask is not None:
            agent.overtake(self.ask)
        while (ask := agent.ask()) is not None and ask.is_summary:
            self.send(ask)
            agent.answered(ask)
        self.ask = ask
        if ask is None:
            self.ended_s = max(self.ended_s, self.clients.clock.now)
            return
        self.sent += 1
        if self.sent < len(due_s):
            Moment(self.clients.clock, agent.plan.start_s + due_s[self.sent]).callbacks.append(self.go_on)
        self.send(ask)

    def answered(self, ask: Ask, outcome: int, delivered: int) -> None:
        """Take the outcome of a request in; a later request may have been sent already."""
        self.ended_s = self.clients.clock.now
        if outcome == _FAILED and not delivered:
            self.refused()
        elif ask is self.ask:
            self.ask = None
            self.agent.answered(ask, delivered)


class AgentCall(OpenCall):
    """A call of an agent: its policies see the estimate, the server the true tokens and what they are made of."""

    __slots__ = ("ask", "sitting")

    def __init__(self, sitting: Sitting, ask: Ask, now: float) -> None:
        prompt = ask.prompt
        super().__init__(sitting.clients, sitting.agent.number, now, prompt.tokens, ask.output_tokens, 0, 0)
        self.sitting = sitting
        self.ask = ask
        self.segments = prompt

    def _keep(self, output: int, message_tokens: int) -> None:
        # The session's own prompt goes on without the recovery message, so the pieces go into another one.
        assert self.segments is not None
        if self.segments is self.ask.prompt:
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
        self.sitting.answered(self.ask, outcome, delivered)


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
        See :class:`sim.sessions.agent.Agent`.
    stepped
        See :class:`sim.replica.replica.Replica`.
    """
    clock = Clock()
    replica = Replica(clock, server, stepped=stepped)
    clients = Clients(clock, replica, output, model, server.window)
    clients.kinds, clients.scripts = ("agent",), ("",)
    sittings = [
        (OpenSitting if plan.due_s else Sitting)(clients, Agent(plan, policy, number, server.window, room), hosted)
        for number, plan in enumerate(plans)
    ]
    clock.run()
    return sittings, clients
