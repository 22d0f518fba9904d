"""Users of a closed loop: each calls, waits for the end of the call, thinks, and calls again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import simpy

from sim.clock import Clock, Moment

PAUSE_S = 1.0
"""Pause after a call that was refused in the instant it was made, where nobody thinks: else time would not pass."""

Limits: TypeAlias = tuple[float, float]
"""Seconds after which a client gives up without a first token, and without the end of the answer; infinite: never."""

Row: TypeAlias = tuple[int, int, int, int, Limits | None]
"""Of a call: tokens of prompt and answer, codes of kind and script, what the client gives up after."""


class User:
    """One user while the simulation lasts.

    Parameters
    ----------
    clock
        The simulated time.
    number
        Which user.
    calls
        What the user calls one after the other: seconds of thinking and the call. Without end.
    serve
        Makes a call of this user, and calls :meth:`think` when it has ended.
    limit_s
        No more calls from here on.

    Attributes
    ----------
    number
        Which user.
    calls_made
        Calls so far; the one that lasts is the last of them.
    """

    __slots__ = ("_calls", "_clock", "_limit_s", "_made_s", "_next", "_serve", "calls_made", "number")

    _next: Row

    def __init__(
        self,
        clock: Clock,
        number: int,
        calls: Iterator[tuple[float, Row]],
        serve: Callable[[User, Row], None],
        limit_s: float,
    ) -> None:
        self.number = number
        self.calls_made = 0
        self._clock = clock
        self._calls = calls
        self._serve = serve
        self._limit_s = limit_s
        self._made_s = -1.0
        self.think()

    def think(self) -> None:
        """Think, then make the next call."""
        now = self._clock.now
        think_s, self._next = next(self._calls)
        if not think_s and now == self._made_s:
            think_s = PAUSE_S
        Moment(self._clock, now + think_s).callbacks.append(self._call)

    def _call(self, _: simpy.Event) -> None:
        now = self._clock.now
        if now < self._limit_s:
            self._made_s = now
            self.calls_made += 1
            self._serve(self, self._next)
