"""What a replica did over time: its runs, logged in a few numbers each and integrated in blocks.

The replica appends one tuple a run and one a change of the queue; everything that is a time integral or a
distribution of inter-token latencies comes from those, vectorised and exact at any time, in the middle of an
iteration too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sim.replica.kv import LONGEST_RUN
from sim.rows import Log, Rows

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]

WIDTH = 0.005
"""Relative width of a bin of inter-token latencies: a quantile is off by half of it at most (the rule of DDSketch,
arXiv 1908.10693)."""

RUN = np.dtype(
    [
        ("start_s", "f8"),  # when it began
        ("base_s", "f8"),  # time of its first iteration
        ("slope_s", "f8"),  # what each further iteration takes more
        ("decoding", "i8"),  # requests that make a token in each
        ("running", "i8"),  # requests in the batch
        ("context", "i8"),  # tokens of the decoding requests when it began
        ("stored", "i8"),  # tokens of prompts that are stored at the end of the first iteration
        ("rise", "i8"),  # what each further iteration adds to them
        ("held", "i8"),  # blocks charged to requests that do not grow
        ("changes", "i8"),  # of the classes of growing requests before it, since the log was last read
    ]
)
"""What is logged of a run when it begins. How many iterations it has, one knows when it ends."""

QUEUE = np.dtype([("time_s", "f8"), ("waiting", "i8")])
"""When the queue changed, and how many waited from then on."""

STALL = np.dtype([("time_s", "f8"), ("length_s", "f8")])
"""When a single gap between two tokens ended, as a preempted request has one when it is recomputed; its length."""


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Times between consecutive tokens of a request, as a histogram over geometric bins.

    Attributes
    ----------
    bins, numbers
        Bin ``i`` holds ``[q**i, q**(i + 1))`` seconds with ``q = 1 + WIDTH``; how many gaps fell into it.
    total_s
        Sum of the gaps, seconds.
    """

    bins: Ints
    numbers: Ints
    total_s: float

    @property
    def mean_s(self) -> float:
        """Mean gap, seconds; nan if there was none."""
        number = int(self.numbers.sum())
        return self.total_s / number if number else math.nan

    def quantile_s(self, share: float) -> float:
        """Return the quantile in seconds, the geometric middle of its bin; nan if there was no gap."""
        seen = np.cumsum(self.numbers)
        if not len(seen):
            return math.nan
        place = int(np.searchsorted(seen, share * (seen[-1] - 1), side="right"))
        return float((1 + WIDTH) ** (self.bins[place] + 0.5))


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Time integrals since 0 at the points of a grid and at the end: requests, or tokens, times seconds.

    Attributes
    ----------
    time_s
        The grid: 0, one tick, two ticks ... and the end.
    running, reserved, used, waiting
        Requests in the batch; tokens that the admission rule charges; tokens whose KV is stored; requests in the queue.
    most_running
        Largest batch in each interval of the grid, one number less than there are points.
    gap_tick, gap_bin, gap_number
        The histogram of inter-token latencies, interval by interval: see :class:`Gaps`.
    gap_s
        Sum of the inter-token latencies in each interval, seconds.
    """

    time_s: Floats
    running: Floats
    reserved: Floats
    used: Floats
    waiting: Floats
    most_running: Ints
    gap_tick: Ints
    gap_bin: Ints
    gap_number: Ints
    gap_s: Floats

    def gaps(self, first: int = 0, last: int | None = None) -> Gaps:
        """Return the inter-token latencies of the intervals from ``first`` to before ``last``."""
        stop = len(self.gap_s) if last is None else last
        inside = (self.gap_tick >= first) & (self.gap_tick < stop)
        bins, place = np.unique(self.gap_bin[inside], return_inverse=True)
        numbers = np.zeros(len(bins), dtype=np.int64)
        np.add.at(numbers, place, self.gap_number[inside])
        return Gaps(bins, numbers, math.fsum(self.gap_s[first:stop].tolist()))


class Timeline:
    """Time integrals of one replica on a regular grid, and its inter-token latencies by interval of the grid.

    Parameters
    ----------
    tick_s
        Spacing of the grid, seconds.
    block_tokens
        Tokens in a block of the KV pool.
    changes
        For a rule that grows, the log of :class:`sim.replica.kv.Growth`.

    Attributes
    ----------
    runs, queue, stalls
        Logs of :data:`RUN`, :data:`QUEUE` and :data:`STALL`, in order of time.
    steps
        Iterations of each of ``runs``, added when it ends.
    """

    def __init__(self, tick_s: float, block_tokens: int, changes: list[int] | None = None) -> None:
        self.tick_s = tick_s
        self.runs = Log(RUN, self._settle_runs)
        self.queue = Log(QUEUE, self._settle_queue)
        self.stalls = Log(STALL, self._settle_stalls)
        self.steps: list[int] = []
        self._changes = changes
        self._counts = np.zeros(block_tokens, dtype=np.int32)  # of the classes, up to the last settled run
        self._iterations = 0
        self._waiting: tuple[float, int] = (0.0, 0)  # the last change of the queue that was settled
        self.block_tokens = block_tokens
        self._sums = np.zeros(3)  # running, reserved, used up to the last settled run
        self._waited = 0.0
        self._ticks = 0  # grid points passed by settled runs
        self._grid: list[Floats] = []
        self._waits: list[Floats] = []
        self._gaps: list[tuple[Ints, ...]] = []  # tick, bin, number
        self._pieces: list[tuple[Ints, Ints, Floats]] = []  # tick, requests in the batch, sum of the gaps
        steps = np.arange(LONGEST_RUN, dtype=np.int64)
        held = steps // block_tokens + 1
        lead = np.zeros(block_tokens, dtype=np.int64)
        # For a class of growing requests that takes its first block in step 0, over u steps, at index u + b - 1: the
        # sum over the steps k of the blocks held more, and the same weighted by k - u.
        self._taken, self._plain, self._late = (
            sliding_window_view(np.concatenate([lead, table]), block_tokens)  # row u: all classes, in their order
            for table in (held, np.cumsum(held), np.cumsum(held * steps) - np.cumsum(held) * (steps + 1))
        )
        self._slack = np.append(
            np.arange(block_tokens - 2, -1, -1), block_tokens - 1
        )  # tokens that last blocks still hold

    def settle(self) -> None:
        """Integrate what has been logged. The last run must have ended."""
        for log in (self.runs, self.queue, self.stalls):
            log.flush()

    def close(self, end_s: float) -> Series:
        """Settle everything up to the end and return it. Nothing may be logged afterwards."""
        self.settle()
        self._settle_queue(np.array([(end_s, self._waiting[1])], QUEUE))
        ticks = int(end_s // self.tick_s)
        grid = np.concatenate([np.zeros((3, 1)), *self._grid], axis=1)
        grid = np.concatenate([grid, np.repeat(self._sums[:, None], ticks + 2 - grid.shape[1], axis=1)], axis=1)
        waited = np.concatenate([[0.0], *self._waits, [self._waited]])
        most = np.zeros(ticks + 1, dtype=np.int64)
        gap_s = np.zeros(ticks + 1)
        for tick, running, seconds in self._pieces:
            tick = np.minimum(tick, ticks)
            np.maximum.at(most, tick, running)
            np.add.at(gap_s, tick, seconds)
        tick, place, number = (np.concatenate([np.empty(0, dtype=np.int64), *column]) for column in self._columns())
        running, reserved, used = grid
        return Series(
            time_s=np.append(np.arange(ticks + 1) * self.tick_s, end_s),
            running=running,
            reserved=reserved,
            used=used,
            waiting=waited,
            most_running=most,
            gap_tick=np.minimum(tick, ticks),
            gap_bin=place,
            gap_number=number,
            gap_s=gap_s,
        )

    def _columns(self) -> list[tuple[Ints, ...]]:
        return list(zip(*self._gaps, strict=True)) or [(), (), ()]

    def taken(self, counts: Ints, steps: Ints) -> Ints:
        """Return the blocks that growing requests take in ``steps`` steps, given the counters of their classes."""
        taken: Ints = np.einsum("ij,ij->i", counts, self._taken[steps])
        return taken

    def growth(self, counts: Ints, steps: Ints) -> tuple[Ints, Ints]:
        """Return the blocks held more, summed over ``steps`` steps k, and the same weighted by k - ``steps``."""
        return np.einsum("ij,ij->i", counts, self._plain[steps]), np.einsum("ij,ij->i", counts, self._late[steps])

    def _settle_stalls(self, log: Rows) -> None:
        zero = np.zeros(len(log), dtype=np.int64)
        tick = (log["time_s"] // self.tick_s).astype(np.int64)
        self._count(tick, log["length_s"], zero.astype(float), zero, zero + 1, zero + 1, zero)

    def _settle_runs(self, log: Rows) -> None:
        start, base, slope, decoding, running, context, stored, rise, held, changes = (
            log[name] for name in RUN.names or ()
        )
        steps = np.array(self.steps, dtype=np.int64)
        self.steps.clear()
        reserved = held * self.block_tokens
        grown = None
        if self._changes is not None:
            grown = self._classes(np.array(self._changes, dtype=np.int64), changes, steps)
            self._changes.clear()
            reserved += context + grown @ self._slack
        run = _Runs(start, base, slope, steps, running, context + stored, decoding + rise, reserved, grown, self)
        every = np.arange(len(start))
        areas = run.areas(every, steps)
        sums = self._sums[:, None] + np.concatenate([np.zeros((3, 1)), np.cumsum(areas, axis=1)], axis=1)
        end = start + run.time_of(every, steps)

        last = int(np.floor(end[-1] / self.tick_s))
        ticks = np.arange(self._ticks + 1, last + 1)
        at: Floats = ticks * self.tick_s
        which = np.searchsorted(start, at, side="right") - 1
        before = which < 0  # idle since the last settled run
        which = np.maximum(which, 0)
        idle = before | (at >= end[which])
        done = np.where(idle, steps[which], run.done(which, at))
        done[before] = 0
        part = np.where(idle, 0.0, at - (start[which] + run.time_of(which, done)))
        values = sums[:, which] + run.areas(which, done) + part * run.levels(which, done)
        self._grid.append(values)
        self._ticks = last
        self._sums = sums[:, -1]

        # Gaps: the runs, cut at the grid.
        inside = ~idle
        owner = np.concatenate([np.arange(len(start)), which[inside]])
        first = np.concatenate([np.zeros(len(start), dtype=np.int64), done[inside]])
        tick = np.concatenate([np.floor(start / self.tick_s).astype(np.int64), ticks[inside]])
        order = np.lexsort((tick, first, owner))
        owner, first, tick = owner[order], first[order], tick[order]
        stop = np.append(first[1:], 0)
        final = np.append(owner[1:] != owner[:-1], True)
        stop[final] = steps[owner[final]]
        keep = stop > first
        owner = owner[keep]
        self._count(tick[keep], base[owner], slope[owner], first[keep], stop[keep], decoding[owner], running[owner])

    def _classes(self, changes: Ints, before: Ints, steps: Ints) -> Ints:
        """Return the counters of the classes when each run began, those first whose next block is due last.

        ``before`` counts the changes before each run.
        """
        size = self.block_tokens
        twice = np.zeros((len(steps) + 1, 2 * size), dtype=np.int32)  # so that any rotation of the classes is one slice
        counts = twice[:, :size]  # the last: after the last run
        run = np.searchsorted(before, np.arange(len(changes)), side="right")
        np.add.at(counts, (run, np.where(changes < 0, ~changes, changes)), np.where(changes < 0, -1, 1))
        counts[0] += self._counts
        np.cumsum(counts, axis=0, out=counts)
        twice[:, size:] = counts
        self._counts = counts[-1].copy()
        passed = self._iterations + np.concatenate([[0], np.cumsum(steps)])
        self._iterations = int(passed[-1])
        first = (2 - passed[:-1]) % size
        rotated: Ints = sliding_window_view(twice, size, axis=1)[np.arange(len(first)), first]
        return rotated

    def _count(
        self, tick: Ints, base: Floats, slope: Floats, first: Ints, stop: Ints, weight: Ints, running: Ints
    ) -> None:
        """Count ``weight`` gaps of ``base + k * slope`` for each k from ``first`` to ``stop`` - 1, by tick and bin."""
        steps = stop - first
        earliest = tick.min()
        most = np.zeros(tick.max() - earliest + 1, dtype=np.int64)
        np.maximum.at(most, tick - earliest, running)
        seconds = weight * (steps * base + slope * ((first + stop - 1) * steps / 2))
        total = np.bincount(tick - earliest, weights=seconds).astype(np.float64)
        self._pieces.append((earliest + np.arange(len(most)), most, total))
        falling = slope < 0  # count from the other end
        base = np.where(falling, base + slope * (first + stop - 1), base)
        slope = np.abs(slope)
        low = _bin(base + first * slope)
        high = np.maximum(_bin(base + (stop - 1) * slope), low)
        spread = high - low + 1
        owner = np.repeat(np.arange(len(low)), spread)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(spread) - spread, spread) + low[owner]
        edge = (1 + WIDTH) ** (place + 1.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            beyond = np.ceil((edge - base[owner]) / slope[owner])
        beyond = np.where(place == high[owner], stop[owner], np.clip(beyond, first[owner], stop[owner])).astype(
            np.int64
        )
        begin = np.where(place == low[owner], first[owner], np.concatenate([[0], beyond[:-1]]))
        number = (beyond - begin) * weight[owner]
        place, number, tick = place[number > 0], number[number > 0], tick[owner][number > 0]
        key, inverse = np.unique(tick * (1 << 20) + place + (1 << 19), return_inverse=True)
        numbers = np.bincount(inverse, weights=number).astype(np.int64)
        self._gaps.append((key >> 20, (key & ((1 << 20) - 1)) - (1 << 19), numbers))

    def _settle_queue(self, log: Rows) -> None:
        when = np.append(self._waiting[0], log["time_s"])
        waiting = np.append(self._waiting[1], log["waiting"])
        self._waiting = (float(when[-1]), int(waiting[-1]))
        sums = self._waited + np.concatenate([[0.0], np.cumsum(waiting[:-1] * np.diff(when))])
        ticks = np.arange(sum(map(len, self._waits)) + 1, int(np.floor(when[-1] / self.tick_s)) + 1) * self.tick_s
        which = np.searchsorted(when, ticks, side="right") - 1
        self._waits.append(sums[which] + waiting[which] * (ticks - when[which]))
        self._waited = sums[-1]


def _bin(seconds: Floats) -> Ints:
    return np.floor(np.log(seconds) / math.log1p(WIDTH)).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """A block of runs as columns, and the closed forms of an arithmetic series for them."""

    start: Floats
    base: Floats
    slope: Floats
    steps: Ints
    running: Ints
    used: Ints
    rise: Ints
    reserved: Ints
    grown: Ints | None
    timeline: Timeline

    def time_of(self, which: Ints, steps: Ints) -> Floats:
        """Return how long the first ``steps`` iterations of the runs ``which`` take."""
        return steps * self.base[which] + (steps * (steps - 1) // 2) * self.slope[which]

    def done(self, which: Ints, at: Floats) -> Ints:
        """Return how many iterations of the runs ``which`` have ended by ``at``, a time within them."""
        spent = at - self.start[which]
        linear = self.base[which] - self.slope[which] / 2
        root = np.sqrt(np.maximum(linear * linear + 2 * self.slope[which] * spent, 0.0))
        steps: Ints = np.clip(np.floor(2 * spent / (linear + root)).astype(np.int64), 0, self.steps[which] - 1)
        steps += (steps + 1 < self.steps[which]) & (self.time_of(which, steps + 1) <= spent)
        steps -= (steps > 0) & (self.time_of(which, steps) > spent)
        return steps

    def areas(self, which: Ints, steps: Ints) -> Floats:
        """Return the integrals of running, reserved and used over the first ``steps`` iterations, shape (3, n)."""
        base, slope = self.base[which], self.slope[which]
        pairs = steps * (steps - 1) // 2
        time = steps * base + pairs * slope
        weighted = pairs * base + (pairs * (2 * steps - 1) // 3) * slope
        reserved = self.reserved[which] * time
        if self.grown is not None:
            counts = self.grown[which]
            plain, late = self.timeline.growth(counts, steps)
            first = counts[:, -1]  # took their block in step 0: it is in ``reserved``
            size = self.timeline.block_tokens
            reserved += size * (plain * base + (late + plain * steps) * slope - first * time)
        return np.stack([self.running[which] * time, reserved, self.used[which] * time + self.rise[which] * weighted])

    def levels(self, which: Ints, steps: Ints) -> Floats:
        """Return running, reserved and used after the first ``steps`` iterations, shape (3, n)."""
        reserved = self.reserved[which]
        if self.grown is not None:
            counts = self.grown[which]
            reserved = reserved + self.timeline.block_tokens * (self.timeline.taken(counts, steps + 1) - counts[:, -1])
        return np.stack([self.running[which], reserved, self.used[which] + steps * self.rise[which]]).astype(float)
