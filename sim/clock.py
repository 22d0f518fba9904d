"""Simulated time: SimPy's environment with events at absolute times, and the order within one instant."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter

import simpy
from simpy.events import EventPriority

COMPLETION = EventPriority(0)
"""Ends of iterations and the answers they bring, so that immediate resends queue before the arrivals of the instant."""

ARRIVAL = EventPriority(1)
"""SimPy's own priority: arrivals, thinking, tools."""

SCHEDULING = EventPriority(2)
"""Schedulers look last, when everything else that happens in the instant has happened."""


class Clock(simpy.Environment):
    """A SimPy environment whose time may be told to pass.

    SimPy's way from one event to the next is its heap. A process whose own next event comes before all others need
    not take it: it lets the time pass and goes on.
    """

    now = property(attrgetter("_now"), doc="The time, seconds from 0; asked for at every turn, so without Python code.")

    def skip(self, time: float) -> bool:
        """Let the time pass if nothing happens up to and at ``time``; return whether it did."""
        queue = self._queue
        while queue and queue[0][0] <= time:
            if type(event := queue[0][3]) is not Moment or not event.moved:
                return False
            heappop(queue)
        self._now = time
        return True

    def quiet(self) -> bool:
        """Return whether nothing more happens at this instant."""
        return not self._queue or self._queue[0][0] > self._now


class Moment(simpy.Event):
    """An event at an absolute time.

    SimPy schedules by delay, and ``now + (t - now)`` may miss ``t`` by an ulp, which would let an arrival at the very
    instant of an iteration's end fall before or after it by rounding. A moment happens at ``time`` exactly.

    Parameters
    ----------
    clock
        The environment it happens in.
    time
        When, in seconds from 0; not before ``clock.now``.
    priority
        Place within the instant, see the constants of this module.

    Attributes
    ----------
    moved
        Whether those who waited for it wait for another one instead.
    """

    moved = False

    def __init__(self, clock: simpy.Environment, time: float, priority: EventPriority = ARRIVAL) -> None:
        self.env = clock
        self.callbacks: list[Callable[[simpy.Event], None]] = []
        self._ok = True
        self._value = None
        heappush(clock._queue, (time, priority, next(clock._eid), self))

    @classmethod
    def instead(cls, of: simpy.Event, time: float, priority: EventPriority) -> Moment:
        """Return a moment for which those wait who wait for the event ``of``; that one will find nobody any more."""
        moment = cls(of.env, time, priority)
        moment.callbacks, of.callbacks = of.callbacks, []
        if isinstance(of, Moment):
            of.moved = True
        return moment
