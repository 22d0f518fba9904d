"""Servers that are queues of the textbooks, and when an interval agrees with what the textbooks say."""

from __future__ import annotations

from collections.abc import Sequence

from policies.output import Fixed
from sim.replica.admission import Full
from sim.replica.server import Server
from sim.stats import Interval, t_interval
from sim.steptime import Line
from workloads.arrivals import Poisson
from workloads.lengths import Constant, Length
from workloads.source import Stream

TOLERANCE = 0.015
"""Of the reference: what whole tokens, half steps and the first boundary may cost."""

WARM_UP = 0.2
ENOUGH = 1_000_000_000


def server(places: int, cap: int, step_time: Line, waiting: int | None = None, units: int = 1) -> Server:
    """Return a server whose pool holds so many requests of a one-token prompt and a cap."""
    return Server(
        rule=Full(),
        step_time=step_time,
        kv_tokens=places * (cap + units),
        window=places * (cap + units),
        block_tokens=1,
        max_num_seqs=100_000,
        max_num_batched_tokens=ENOUGH,
        chunked_prefill=False,
        max_waiting=waiting,
    )


def fixed(cap: int) -> Fixed:
    return Fixed(max_tokens=cap, margin_tokens=0, margin_share=0, floor=1)


def stream(name: str, rate: float, output: Length, prompt: int = 1) -> Stream:
    return Stream(name, Poisson(rate), Constant(prompt), output)


def meets(values: Sequence[float | None], reference: float, narrow: float = 0.06) -> Interval:
    """Return the 95 % interval; fail unless it meets the reference +- 1.5 % and is narrow enough to say something.

    ``narrow`` is the largest half-width, as a share of the reference.
    """
    interval = t_interval(values)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.half_width is not None
    assert interval.half_width <= narrow * reference, f"{interval} is too wide for {reference:.6g}"
    assert interval.low <= reference * (1 + TOLERANCE), f"{interval} lies above {reference:.6g}"
    assert interval.high >= reference * (1 - TOLERANCE), f"{interval} lies below {reference:.6g}"
    return interval
