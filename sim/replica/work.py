"""A request while it is on a server."""

from __future__ import annotations

import math
from collections.abc import Callable

from policies.output import ErrorKind, Response
from sim.replica.prefix_cache import Lease, Prompt

Answer = Callable[["Work"], None]


class Work:
    """A request on the server, as rules and records see it.

    Neither the length that its answer is going to have is here nor the client that knows it: nobody who decides can
    reach them.

    Attributes
    ----------
    number
        Counts the requests of a replica.
    prompt, max_tokens
        As the client sent them, tokens.
    limit
        What the admission rule takes for ``max_tokens``: the same, unless it is marked as one that knows more.
    generated
        Tokens made up to the last time it entered the batch of decoding requests, or left it.
    preemptions
        How often it lost its place.
    segments
        What its prompt is made of; None if nobody knows, or nobody keeps it.
    cached
        Prompt tokens found in the prefix cache at the first admission.
    reserved_token_s
        Tokens charged, integrated over the time in the batch. Under a rule that grows an estimate: the mean context
        of the stay and the mean fill of blocks.
    submitted_s, scheduled_s, first_token_s, finished_s
        When, seconds from 0; nan where it has not happened. ``scheduled_s`` is the first admission.
    refusal
        Why the server refused it; an empty string if it did not.
    response
        What the client gets; not there before.
    """

    __slots__ = (
        "blocks",
        "cached",
        "decoded_s",
        "entry",
        "finished_s",
        "first_token_s",
        "found",
        "generated",
        "last_token_s",
        "lease",
        "limit",
        "max_tokens",
        "number",
        "past",
        "preemptions",
        "prompt",
        "refusal",
        "reserved_token_s",
        "response",
        "scheduled_s",
        "segments",
        "since",
        "submitted_s",
        "todo",
    )

    blocks: int  # charged at the admission
    todo: int  # prompt tokens still to compute
    past: int  # prompt tokens computed
    since: int  # iteration at which its present stay among the decoding requests began
    decoded_s: float  # when that was
    last_token_s: float  # when it was preempted
    response: Response

    def __init__(self, number: int, prompt: int, max_tokens: int, now: float, segments: Prompt | None) -> None:
        self.number = number
        self.prompt = prompt
        self.max_tokens = self.limit = max_tokens
        self.submitted_s = now
        self.segments = segments
        self.lease: Lease | None = None  # its hold on shared blocks
        self.found = self.cached = 0  # prompt tokens found at this admission, and at the first
        self.generated = 0
        self.entry = -1  # number of its present stay among the decoding requests, -1 while there is none
        self.preemptions = 0
        self.reserved_token_s = 0.0
        self.scheduled_s = self.first_token_s = self.finished_s = math.nan
        self.refusal = ""


GIVEN_UP = "given up"
"""Stands for a refusal where the client, not the server, ended a request."""

BEYOND_WINDOW = "beyond the window"
BEYOND_POOL = "beyond the pool"
QUEUE_FULL = "queue is full"
REFUSALS = {BEYOND_WINDOW: ErrorKind.INVALID, BEYOND_POOL: ErrorKind.INVALID, QUEUE_FULL: ErrorKind.RATE_LIMITED}
"""Why a server refuses a request, and what its client hears."""
