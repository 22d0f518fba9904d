"""Simulated time: SimPy's environment with events at absolute times, and the order within one instant."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from math import inf
from operator import attrgetter

import simpy
from simpy.events import EventPriority

COMPLETION = EventPriority(0)
"""Ends of iterations and the answers they bring, so that immediate resends queue before the arrivals of the instant."""

ARRIVAL = EventPriority(1)
"""SimPy's own priority: arrivals, thinking, tools."""

SCHEDULING = EventPriority(2)
"""Schedulers look last, when everything else that happens in the instant has happened."""

NEVER = inf
"""When a timer is due that is not set."""

_step = simpy.Environment.step
_due = attrgetter("due_s")


class Clock(simpy.Environment):
    """A SimPy environment whose time may be told to pass, and that has timers.

    SimPy's way from one event to the next is its heap. Whoever's own next event comes before all others need not take
    it: it lets the time pass and goes on. And what is put off and brought forward more often than it comes is better
    kept beside the heap: see :class:`Timer`.
    """

    now = property(attrgetter("_now"), doc="The time, seconds from 0; asked for at every turn, so without Python code.")

    def __init__(self) -> None:
        super().__init__()
        self._timers: list[Timer] = []
        self._first = Timer(self, _nothing)  # the one that is due first
        self._several = False

    def timer(self, ring: Callable[[], None]) -> Timer:
        """Return a timer that calls ``ring`` each time that it is due, and is set again by whoever likes."""
        timer = Timer(self, ring)
        self._timers.append(timer)
        self._several = len(self._timers) > 1
        self._first = min(self._timers, key=_due)
        return timer

    def peek(self) -> float:
        """Return when something happens next, seconds; infinite if nothing does."""
        return min(super().peek(), self._first.due_s)

    def step(self) -> None:
        """Let the next thing happen. Timers come first in their instant, as ends of iterations do.

        Raises
        ------
        simpy.core.EmptySchedule
            Nothing is left to happen.
        """
        timer, queue = self._first, self._queue
        due_s = timer.due_s
        if due_s == NEVER or (queue and queue[0][0] < due_s):
            _step(self)
            return
        self._now = due_s
        timer.due_s = NEVER
        if self._several:
            self._first = min(self._timers, key=_due)
        timer.ring()

    def skip(self, time: float) -> bool:
        """Let the time pass if nothing happens up to and at ``time``; return whether it did."""
        queue = self._queue
        if (queue and queue[0][0] <= time) or self._first.due_s <= time:
            return False
        self._now = time
        return True

    def quiet(self) -> bool:
        """Return whether nothing more happens at this instant."""
        queue = self._queue
        if queue and queue[0][0] <= self._now:
            return False
        return self._first.due_s > self._now


def _nothing() -> None:
    """Ring of a timer that is never set."""


class Timer:
    """Something that happens at a time that may be changed until it has come; made by :meth:`Clock.timer`.

    Attributes
    ----------
    ring
        Called when it is due.
    due_s
        When, seconds from 0; ``NEVER`` while it is not set.
    """

    __slots__ = ("_clock", "due_s", "ring")

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self.ring = ring
        self.due_s = NEVER

    def set(self, due_s: float) -> None:
        """Set it for the first time, or anew, to a time that is not before the clock's; ``NEVER`` takes it back."""
        self.due_s = due_s
        clock = self._clock
        if clock._several:
            clock._first = min(clock._timers, key=_due)


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
    """

    def __init__(self, clock: simpy.Environment, time: float, priority: EventPriority = ARRIVAL) -> None:
        self.env = clock
        self.callbacks: list[Callable[[simpy.Event], None]] = []
        self._ok = True
        self._value = None
        heappush(clock._queue, (time, priority, next(clock._eid), self))
