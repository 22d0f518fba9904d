"""Whom a server preempts when its pool runs out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sim.replica.work import Work


def last(running: dict[int, Work], iteration: int) -> Work:
    """Return the request that entered last."""
    return running[next(reversed(running))]


def least_computed(running: dict[int, Work], iteration: int) -> Work:
    """Return the request that loses the fewest computed tokens, of equal ones the last that entered.

    Looks at every running request, but only when one is to be preempted.
    """
    return min(
        reversed(running.values()),
        key=lambda work: work.past if work.todo else work.prompt + work.generated + iteration - work.since,
    )


def shortest_answer(running: dict[int, Work], iteration: int) -> Work:
    """Return the request that has generated least, of equal ones the longest prompt, then the last that entered.

    Looks at every running request, but only when one is to be preempted.
    """
    return min(
        reversed(running.values()),
        key=lambda work: (work.generated + (0 if work.todo else iteration - work.since), -work.prompt),
    )


VICTIMS: Mapping[str, Callable[[dict[int, Work], int], Work]] = {
    "last": last,
    "least-computed": least_computed,
    "shortest-answer": shortest_answer,
}
"""Whom to preempt, by the name that studies use: given the running requests in the order in which they entered and the
number of iterations. ``last`` is vLLM's first come first served, ``shortest-answer`` SGLang's."""
