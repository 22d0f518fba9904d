"""A session as a plan: what the model would say at each step and what comes back, whatever the client's policies do."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from policies.messages import Content


@dataclass(frozen=True, slots=True)
class Part:
    """One message's content with its true size, which estimators do not see.

    Attributes
    ----------
    content
        What estimators see.
    tokens
        What the server's tokenizer counts.
    """

    content: Content
    tokens: int


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model and what follows it.

    Attributes
    ----------
    answer
        What of the model's answer stays in the history.
    output_tokens
        Tokens that the model would write if nothing stopped it; more than the answer where thinking is not sent back.
    incoming
        The tool result or user message that comes next; None after the last answer.
    user
        Whether that is a user's message (a new turn), not a tool result.
    wait_s
        Seconds from the answer to the next request: the tool, or the user's thinking.
    look_back
        For the next answer the agent needs the result that lies so many results back: 1 is the newest, 0 needs none.
        If it is not in the request any more it is read again first.
    fresh
        The session goes on with an empty conversation, whose first message is the incoming one.
    """

    answer: Part
    output_tokens: int
    incoming: Part | None = None
    user: bool = False
    wait_s: float = 0.0
    look_back: int = 0
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A session.

    Attributes
    ----------
    name
        Which session.
    script
        The language mix it is in.
    head_id
        What names its head: plans with the same one share a system prompt, and so a cached prefix.
    head
        System prompt and tool definitions.
    first
        The first message.
    steps
        What follows.
    start_s
        When it begins.
    patience
        An agent that was not told that old results are cleared for it stops once a request exceeds this share of the
        room that it believes to have.
    due_s
        Open loop: when each request is sent, seconds from the start, whether or not the answer before it is there.
        Empty: closed loop, each waits for the answer before it and then as long as the step says.
    """

    name: str
    script: str
    head_id: Hashable
    head: Part
    first: Part
    steps: Sequence[Step]
    start_s: float = 0.0
    patience: float = math.inf
    due_s: Sequence[float] = ()
