"""Measured curves: straight between their points."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise

from sim.steptime.base import FOREVER, Segment


class Curve:
    """A measured curve: straight between its points, flat before the first, after the last on the chord from half way.

    The chord spans the last half of the range because two neighbouring kernel times differ by noise as much as by work.

    Parameters
    ----------
    points
        ``(x, seconds)`` with x rising.
    """

    __slots__ = ("rises", "xs", "ys")

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        pairs = list(points)
        self.xs = [x for x, _ in pairs]
        self.ys = [y for _, y in pairs]
        self.rises = [(b - a) / (v - u) for (u, a), (v, b) in pairwise(pairs)]
        half = max(0, min(bisect_left(self.xs, self.xs[-1] / 2), len(pairs) - 2))
        chord = (self.ys[-1] - self.ys[half]) / (self.xs[-1] - self.xs[half]) if len(pairs) > 1 else 0.0
        self.rises.append(max(0.0, chord))

    def __call__(self, x: float) -> float:
        """Return the seconds at `x`."""
        place = bisect_right(self.xs, x) - 1
        return self.ys[0] if place < 0 else self.ys[place] + self.rises[place] * (x - self.xs[place])

    def line(self, x: float, step: float = 1.0) -> Segment:
        """Return ``(seconds, slope, steps)``: the straight piece at `x`, and how many steps of `step` stay on it."""
        place = bisect_right(self.xs, x) - 1
        if place < 0:
            return self.ys[0], 0.0, int((self.xs[0] - x) / step) + 1
        rise = self.rises[place]
        start = self.ys[place] + rise * (x - self.xs[place])
        steps = FOREVER if place == len(self.xs) - 1 else int((self.xs[place + 1] - x) / step) + 1
        return start, rise * step, steps


def total(terms: Iterable[tuple[float, Curve]]) -> Curve:
    """Return the curve of ``sum(factor * curve)``, with the points of all of them."""
    parts = list(terms)
    return Curve((x, sum(factor * part(x) for factor, part in parts)) for x in _points(part for _, part in parts))


def between(low: Curve, high: Curve, share: float) -> Curve:
    """Return the curve that lies `share` of the way from one to the other."""
    return Curve((x, low(x) + share * (high(x) - low(x))) for x in _points((low, high)))


def _points(curves: Iterable[Curve]) -> list[float]:
    return sorted({x for curve in curves for x in curve.xs})
