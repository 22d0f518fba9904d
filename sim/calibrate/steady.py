"""TTFT and TPOT of a server at a constant concurrency, from its step times, without simulating."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim.steptime import StepTime


@dataclass(frozen=True, slots=True)
class Clients:
    """How a load generator sees the server.

    Attributes
    ----------
    first_s
        What the way to the server and back adds to TTFT, seconds.
    together
        Share of the requests that were sent all at once at the start: with ten times as many requests as clients, 0.1.
    """

    first_s: float = 0.0
    together: float = 0.1


def closed_loop(
    step_time: StepTime,
    concurrency: int,
    prompt: int,
    output: int,
    *,
    kv_tokens: float = math.inf,
    budget: int = 8_192,
    clients: Clients = Clients(),
) -> tuple[float, float]:
    """Return mean TTFT and TPOT, seconds, of equal requests that `concurrency` clients send one after the other.

    A request decodes beside the others, at half its output on average; each of them is replaced once during its stay,
    so that the prompts of all others delay its tokens: ``TPOT = d + (n - 1) / output * p`` with a decode step `d` and
    what a prompt adds to the steps it is computed in, `p`. Its first token waits for the step in progress, for its own
    prompt, and for others' (an M/D/1 queue at the share of time spent on prompts). Requests beyond what the pool holds
    wait for a stay. Those sent together at the start wait for half of the others' prompts.

    Parameters
    ----------
    step_time
        What a step costs.
    concurrency, prompt, output
        Clients, and tokens of each request.
    kv_tokens
        Size of the KV pool.
    budget
        Most tokens of a step.
    clients
        How the load generator sees it.
    """
    each = prompt + output / 2
    running = max(1, int(min(concurrency, kv_tokens / each)))
    context = int(running * each)
    decode, _, _ = step_time.segment(running, context)
    others = running - 1
    alone, beside, steps = 0.0, 0.0, 0
    past, room = 0, max(1, budget - others)
    while past < prompt:
        piece = min(prompt - past, room)
        alone += step_time.segment(0, 0, [(piece, past)])[0]
        beside += step_time.segment(others, int(others * each), [(piece, past)])[0]
        past += piece
        steps += 1
    added = max(0.0, beside - steps * decode)
    tpot = decode + others / output * added
    stay = beside + (output - 1) * tpot
    busy = min(0.99, others * added / stay)
    alone_first = decode / 2 + beside + busy * added / (2 * (1 - busy))
    at_start = alone * (running + 1) / 2
    waiting = (concurrency - running) / running * stay
    first = (1 - clients.together) * alone_first + clients.together * at_start + waiting
    return clients.first_s + first, tpot
