"""Attention times from a table that need not be a full grid."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import product

from sim.steptime.base import FOREVER, Segment
from sim.steptime.curve import Curve, between

AXES = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
"""Attention's axes: tokens of a prompt piece, those stored before it, decoding requests, stored tokens of each."""


class Decodes:
    """Attention beside one prompt piece: curves over the stored tokens of each decoding request, by their number."""

    __slots__ = ("_by_count", "counts", "curves", "reach")

    def __init__(self, curves: Mapping[int, Curve]) -> None:
        self.counts = sorted(curves)
        self.curves = [curves[count] for count in self.counts]
        shortest, longest = max(curve.xs[0] for curve in self.curves), min(curve.xs[-1] for curve in self.curves)
        self.reach = (self.counts[0], self.counts[-1], shortest, longest)
        self._by_count: dict[int, Curve] = {}

    def _bracket(self, count: int) -> tuple[int, float]:
        """Return the place of the curve below and the share of the way to the next one; beyond 1 after the last."""
        last = len(self.counts) - 1
        place = min(max(bisect_right(self.counts, count) - 1, 0), max(0, last - 1))
        if place == last:
            return place, 0.0
        below = self.counts[place]
        return place, max(0.0, (count - below) / (self.counts[place + 1] - below))

    def curve(self, count: int) -> Curve:
        """Return the curve for `count` requests."""
        curve = self._by_count.get(count)
        if curve is None:
            place, share = self._bracket(count)
            curve = between(self.curves[place], self.curves[place + 1], share) if share else self.curves[place]
            self._by_count[count] = curve
        return curve


class Attention:
    """Attention of one layer, from a table that need not be a full grid.

    Between the points it is linear along each axis in turn: prompt piece, tokens before it, decoding requests, their
    tokens. Along each, the nearest points on either side that were measured around the query are taken, so that a
    table made of two grids gives its finer points where they reach. Beyond the table it goes on straight; a piece
    longer than the longest measured is computed as several one after the other, which meets the same pairs of tokens.

    Parameters
    ----------
    rows
        Seconds by ``(prefill_chunk, kv_prefill, n_decode, kv_decode)``; without faults (`holes`).
    """

    def __init__(self, rows: Mapping[tuple[int, int, int, int], float]) -> None:
        tree: dict[tuple[int, int], dict[int, list[tuple[float, float]]]] = {}
        for (chunk, past, count, stored), seconds in sorted(rows.items()):
            tree.setdefault((chunk, past), {}).setdefault(count, []).append((stored, seconds))
        alone: dict[int, list[tuple[float, float]]] = {}
        mixed: dict[tuple[int, int], Decodes] = {}
        for (chunk, past), counts in tree.items():
            if chunk and 0 in counts:
                alone.setdefault(chunk, []).append((past, counts.pop(0)[0][1]))
            if counts:
                mixed[chunk, past] = Decodes({count: Curve(points) for count, points in counts.items()})
        self._decodes = mixed.pop((0, 0))
        self.prompts = sorted(alone)
        self._alone = [Curve(alone[chunk]) for chunk in self.prompts]
        self._mixed = mixed
        self._reaches = sorted({part.reach for part in mixed.values()})
        self._most = max(reach[1] for reach in self._reaches)
        self._shortest = min(reach[2] for reach in self._reaches)
        self._longest = max(reach[3] for reach in self._reaches)
        self._edges = sorted({edge for reach in self._reaches for edge in reach[2:]})
        self._grids: dict[tuple[int, int, int], tuple[list[int], list[tuple[list[int], list[Decodes]]]]] = {}

    def decodes(self, count: int) -> Curve:
        """Return the curve over the stored tokens of each of `count` decoding requests, without a prompt."""
        return self._decodes.curve(count)

    def prompt(self, chunk: float, past: float) -> Segment:
        """Return the seconds of `chunk` prompt tokens after `past` others, as a line over steps that store `chunk`."""
        seconds, slope, steps = 0.0, 0.0, FOREVER
        piece, step = chunk, chunk
        while piece > 0:
            part = min(piece, self.prompts[-1])
            for share, curve in self._curves_of(part):
                start, rise, valid = curve.line(past, step)
                seconds += share * start
                slope += share * rise
                steps = min(steps, valid)
            piece -= part
            past += part
        return seconds, slope, steps

    def _curves_of(self, chunk: float) -> list[tuple[float, Curve]]:
        """Return the curves over stored tokens of the measured lengths around `chunk`, and the share of each."""
        above = min(bisect_left(self.prompts, chunk), len(self.prompts) - 1)
        if not above or chunk == self.prompts[above]:
            return [(1.0, self._alone[above])]
        share = (chunk - self.prompts[above - 1]) / (self.prompts[above] - self.prompts[above - 1])
        return [(1.0 - share, self._alone[above - 1]), (share, self._alone[above])]

    def both(self, chunk: float, past: float, count: int, stored: float) -> float:
        """Return the measured seconds of a prompt piece beside `count` requests of `stored` tokens each."""
        alone = 0.0
        while chunk > self.prompts[-1]:
            alone += self.prompt(self.prompts[-1], past)[0]
            chunk -= self.prompts[-1]
            past += self.prompts[-1]
        return alone + self._beside(chunk, past, count, stored)

    def _beside(self, chunk: float, past: float, count: int, stored: float) -> float:
        chunks, slices = self._grid(min(count, self._most), min(max(stored, self._shortest), self._longest))
        above = min(bisect_left(chunks, chunk), len(chunks) - 1)
        while above < len(chunks) - 1 and slices[above][0][-1] < past:
            above += 1
        high = _across(slices[above], past, count, stored)
        if chunk >= chunks[above]:
            return high
        below = bisect_right(chunks, chunk) - 1
        while below > 0 and slices[below][0][-1] < past:
            below -= 1
        if below < 0:
            return high
        low = _across(slices[below], past, count, stored)
        return low + (high - low) * (chunk - chunks[below]) / (chunks[above] - chunks[below])

    def _grid(self, count: int, stored: float) -> tuple[list[int], list[tuple[list[int], list[Decodes]]]]:
        """Return the points ``(chunk, past)`` measured around so many requests of so many tokens, as sorted axes."""
        key = (count, bisect_left(self._edges, stored), bisect_right(self._edges, stored))
        grid = self._grids.get(key)
        if grid is None:
            reaches = {
                (few, many, short, long)
                for few, many, short, long in self._reaches
                if few <= count <= many and short <= stored <= long
            }
            slices: dict[int, dict[int, Decodes]] = {}
            for (chunk, past), part in self._mixed.items():
                if not reaches or part.reach in reaches:
                    slices.setdefault(chunk, {})[past] = part
            chunks = sorted(slices)
            rows = [sorted(slices[chunk].items()) for chunk in chunks]
            axes = [([past for past, _ in row], [part for _, part in row]) for row in rows]
            grid = self._grids[key] = (chunks, axes)
        return grid


def _across(points: tuple[list[int], list[Decodes]], past: float, count: int, stored: float) -> float:
    """Return the seconds at `past`, between (or beyond) the points of one prompt length."""
    pasts, parts = points
    above = min(bisect_left(pasts, past), len(pasts) - 1)
    high = parts[above].curve(count)(stored)
    if not above or past == pasts[above]:
        return high
    low = parts[above - 1].curve(count)(stored)
    return low + (high - low) * (past - pasts[above - 1]) / (pasts[above] - pasts[above - 1])


def holes(rows: Mapping[tuple[int, int, int, int], float]) -> list[str]:
    """Return why some query inside a table's covered range cannot be interpolated; empty if all can.

    Every query has measured points around it if the corners of the range are there: of decoding alone, of prompts
    alone and of both together. A corner may be absent where it would hold more tokens than any point of the table: it
    did not fit into the memory.
    """
    kinds = {
        "decoding requests alone": [point for point in rows if not point[0]],
        "a prompt alone": [point for point in rows if point[0] and not point[2]],
        "a prompt beside decoding requests": [point for point in rows if point[0] and point[2]],
    }
    most = max((chunk + past + count * stored for chunk, past, count, stored in rows), default=0)
    found = []
    for kind, points in kinds.items():
        if not points:
            found.append(f"has no rows with {kind}")
            continue
        ends = [sorted({min(axis), max(axis)}) for axis in zip(*points, strict=True)]
        present = set(points)
        for corner in product(*ends):
            chunk, past, count, stored = corner
            if corner not in present and chunk + past + count * stored <= most:
                place = ", ".join(f"{axis} = {value}" for axis, value in zip(AXES, corner, strict=True))
                found.append(f"has no row with {place}: a corner of its range with {kind}, nothing to interpolate to")
    return found
