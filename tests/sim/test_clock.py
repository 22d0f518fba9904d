"""Simulated time: what happens when, with timers beside SimPy's heap."""

from __future__ import annotations

from math import inf

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from simpy.core import EmptySchedule

from sim.clock import COMPLETION, NEVER, SCHEDULING, Clock, Moment

TIMES = st.integers(0, 20).map(float)


@given(st.lists(st.lists(TIMES, max_size=6), min_size=1, max_size=4), st.lists(TIMES, max_size=8))
def test_things_happen_in_order_and_timers_first_in_their_instant(rings, moments) -> None:
    """A timer is set anew from within its ring, as servers do; a time that has passed rings at once."""
    clock = Clock()
    seen: list[tuple[float, int]] = []

    def starts(times: list[float]) -> None:
        left = iter(sorted(times))
        timer = clock.timer(lambda: ring())

        def ring() -> None:
            seen.append((clock.now, 0))
            timer.set(next(left, NEVER))

        timer.set(next(left, NEVER))

    for times in rings:
        starts(times)
    for at in moments:
        Moment(clock, at).callbacks.append(lambda _: seen.append((clock.now, 1)))
    expected = sorted([(at, 0) for times in rings for at in times] + [(at, 1) for at in moments])
    assert clock.peek() == (expected[0][0] if expected else inf)
    clock.run()
    assert seen == expected
    with pytest.raises(EmptySchedule):
        clock.step()


def test_a_timer_may_be_put_off_brought_forward_and_taken_back() -> None:
    clock = Clock()
    seen: list[tuple[str, float]] = []
    first, second, third = (clock.timer(lambda name=name: seen.append((name, clock.now))) for name in "abc")
    first.set(5.0)
    second.set(3.0)
    third.set(1.0)

    def change(_: simpy.Event) -> None:
        first.set(2.5)
        second.set(4.0)
        third.set(6.0)

    Moment(clock, 0.5).callbacks.append(change)
    Moment(clock, 4.5).callbacks.append(lambda _: third.set(NEVER))
    clock.run()
    assert seen == [("a", 2.5), ("b", 4.0)]


def test_time_passes_only_up_to_what_happens_next() -> None:
    clock = Clock()
    timer = clock.timer(lambda: None)
    timer.set(2.0)
    Moment(clock, 3.0, SCHEDULING)
    assert clock.skip(1.0)
    assert clock.now == 1.0
    assert not clock.skip(2.0)  # the timer is due then
    assert clock.quiet()
    timer.set(1.0)
    assert not clock.quiet()
    timer.set(NEVER)
    assert clock.skip(2.5)
    assert not clock.skip(3.0)
    assert clock.now == 2.5
    Moment(clock, 2.5, COMPLETION)
    assert not clock.quiet()
