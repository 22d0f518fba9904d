"""Recorded Claude Code sessions as plans, so that another context policy can be laid over them.

A recording holds the tokens of every prompt and answer, not of the messages. What a request appended is its prompt
less the conversation that the plan has so far; the answer before takes its share of that first:

- at least the answer: the answer stays whole, the rest came in (a tool result or the user's message);
- less, but something (about 11 % of the transitions: thinking is not sent back): `TYPICAL` tokens, or all there is if
  that is less, came in; of the answer the rest stays;
- nothing or less (the client edited something away): nothing of the answer stays and one token comes in; the plan is
  that much ahead of the recording until it catches up;
- the prompt fell below half of the one before (a compaction): the session goes on with an empty conversation behind
  the same head, whose first message is the rest of the new prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from policies.messages import Known
from workloads.agents.plan import Part, Plan, Step

if TYPE_CHECKING:
    from workloads.readers.weka import Request, Session, SubAgent

TYPICAL = 393
"""Median of the tokens that came in where the answer stayed whole: Claude Code sessions, main requests."""


@dataclass(frozen=True, slots=True)
class RecordedAgents:
    """Recorded sessions, as they were, in every replication.

    Attributes
    ----------
    path
        A WEKA file.
    first
        The first so many sessions of the file; None takes all.
    subagents
        Whether their sub-agents take part, as sessions of their own.
    every_s
        Sessions start so far apart, in the order of the file; matters where they share a server.
    open_loop
        Whether requests are sent when they were recorded, however long answers take; else each waits for the answer
        before it and then as long as was recorded.
    name
        What the sessions are called in results.
    """

    path: str
    first: int | None = None
    subagents: bool = True
    every_s: float = 60.0
    open_loop: bool = False
    name: str = "recorded"

    def plans(self, seed: int, replication: int) -> Iterator[Plan]:
        """Yield the sessions.

        Raises
        ------
        workloads.errors.BadInput
            What is wrong with the file.
        """
        return read_plans(self.path, self.first, self.subagents, self.every_s, self.open_loop)


def read_plans(
    path: str | Path,
    first: int | None = None,
    subagents: bool = True,
    every_s: float = 0.0,
    open_loop: bool = False,
) -> Iterator[Plan]:
    """Yield the sessions of a WEKA file as plans; sub-agents follow their session, as sessions of their own.

    For the parameters see :class:`RecordedAgents`.

    Raises
    ------
    workloads.errors.BadInput
        What is wrong with the file.
    """
    from workloads.readers.weka import read_sessions  # brings pyarrow: only recorded sessions have to pay for it

    for number, session in enumerate(read_sessions(path, first)):
        yield from plans_of(session, subagents, number * every_s, open_loop)


def plans_of(session: Session, subagents: bool = True, start_s: float = 0.0, open_loop: bool = False) -> Iterator[Plan]:
    """Yield the plan of a session that sent anything, then those of its sub-agents."""
    head = session.tool_tokens + session.system_tokens
    if session.requests:
        yield _plan(session.name, "claude-code", session.requests, head, start_s, open_loop)
    if subagents:
        for number, agent in enumerate(session.subagents):
            yield from _agent(f"{session.name}/{number}", agent, start_s, open_loop)


def _agent(name: str, agent: SubAgent, from_s: float, open_loop: bool) -> Iterator[Plan]:
    start_s = from_s + agent.start_s
    if agent.requests:
        yield _plan(name, "sub-agent", agent.requests, 0, start_s, open_loop)
    for number, inner in enumerate(agent.subagents):
        yield from _agent(f"{name}/{number}", inner, start_s, open_loop)


def _plan(name: str, script: str, requests: tuple[Request, ...], head: int, start_s: float, open_loop: bool) -> Plan:
    first = requests[0]
    head = min(head, max(first.input_tokens - 1, 0))
    opening = first.input_tokens - head
    total = first.input_tokens
    steps = []
    for request, after in pairwise(requests):
        written = max(request.output_tokens, 1)
        user = "tool_result" not in after.input_types
        wait_s = after.think_s or 0.0
        if 2 * after.input_tokens < request.input_tokens:
            total = max(after.input_tokens, head + 1)
            steps.append(Step(_known(written), written, _known(total - head), True, wait_s, fresh=True))
            continue
        kept, incoming = _split(after.input_tokens - total, request.output_tokens)
        total += kept + incoming
        steps.append(Step(_known(kept), written, _known(incoming), user, wait_s))
    written = max(requests[-1].output_tokens, 1)
    steps.append(Step(_known(written), written))
    due_s = tuple(request.start_s for request in requests) if open_loop else ()
    return Plan(name, script, name, _known(head), _known(opening), steps, start_s, due_s=due_s)


def _split(growth: int, output: int) -> tuple[int, int]:
    """Return the tokens of the answer that stay and the tokens that came in."""
    if growth >= output:
        return output, growth - output
    if growth > 0:
        incoming = min(growth, TYPICAL)
        return growth - incoming, incoming
    return 0, 1


def _known(tokens: int) -> Part:
    return Part(Known(tokens), tokens)
