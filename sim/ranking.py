"""Which arm is better than which for sure, the places that leaves open to each, and what that says over all cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from sim.experiment import Results
from sim.metrics import METRICS
from sim.stats import CONFIDENCE, compare
from sim.study import Study


@dataclass(frozen=True, slots=True)
class Places:
    """The places that the replications leave open to an arm, 1 being the best.

    Attributes
    ----------
    first
        1 more than the number of arms that are better for sure.
    last
        The number of arms less those that are worse for sure.
    """

    first: int
    last: int


Ranking: TypeAlias = Mapping[str, Places | None]
"""By arm, its case left out of the name; None for an arm of which nothing is known."""


def rankings(study: Study, found: Mapping[str, Results]) -> dict[str, dict[str, Ranking]]:
    """Return the ranking of the arms by case and by each metric that the study ranks by."""
    return {
        case: {metric: rank(case, results, metric, study.run.same_within) for metric in study.run.rank_by}
        for case, results in found.items()
    }


Order: TypeAlias = frozenset[tuple[str, str]]
"""Pairs of arms (their case left out of the names) of which the first is better than the second for sure."""


def order(case: str, results: Results, metric: str, same_within: float) -> Order:
    """Return which arms of a case are better than which.

    One arm is better than another for sure if the paired interval of their difference says so. The intervals of all
    pairs hold together with 95 % (Bonferroni: each leaves out 5 % over the number of pairs). Under a duration, which
    grows without end, every unstable arm is behind all others; of its other metrics nothing is known.
    """
    placed = _placed(case, results, metric)
    pairs = list(combinations(placed, 2))
    sure = {(one, lost) for one in placed for lost in _endless(case, results, metric)}
    for one, other in pairs:
        confidence = 1 - (1 - CONFIDENCE) / len(pairs)
        verdict = compare(placed[one], placed[other], METRICS[metric].better, same_within, confidence).verdict
        if verdict in ("better", "worse"):
            sure.add((other, one) if verdict == "better" else (one, other))
    return frozenset(sure)


def rank(case: str, results: Results, metric: str, same_within: float) -> Ranking:
    """Return the places of the arms of a case; they hold together with 95 %, as :func:`order` does."""
    placed = [*_placed(case, results, metric), *_endless(case, results, metric)]
    better, worse = dict.fromkeys(placed, 0), dict.fromkeys(placed, 0)  # how many others are
    for ahead, behind in order(case, results, metric, same_within):
        worse[ahead] += 1
        better[behind] += 1
    names = (name.removeprefix(f"{case}/") for name in results.arms)
    return {name: Places(1 + better[name], len(placed) - worse[name]) if name in placed else None for name in names}


def _placed(case: str, results: Results, metric: str) -> dict[str, list[float | None]]:
    """Return the replications of the arms that have a place."""
    return {
        name.removeprefix(f"{case}/"): [values[metric] for values in arm.values]
        for name, arm in results.arms.items()
        if arm.metrics[metric].mean is not None
    }


def _endless(case: str, results: Results, metric: str) -> list[str]:
    """Return the unstable arms, if the metric is a duration."""
    arms = {name.removeprefix(f"{case}/"): arm for name, arm in results.arms.items()}
    return [name for name, arm in arms.items() if arm.status == "unstable" and METRICS[metric].unit == "s"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What the rankings of several cases say of an arm.

    Attributes
    ----------
    surely_first, maybe_first
        Cases in which it is the best for sure, and in which it may be.
    places
        The best and the worst place that any case leaves open; None if it has none in any.
    unplaced
        Cases in which nothing is known of it.
    """

    surely_first: int
    maybe_first: int
    places: Places | None
    unplaced: int


def standing(places: Iterable[Places | None]) -> Standing:
    """Return what an arm's places in all cases say."""
    known, unplaced = [], 0
    for place in places:
        if place is None:
            unplaced += 1
        else:
            known.append(place)
    return Standing(
        sum(place.last == 1 for place in known),
        sum(place.first == 1 for place in known),
        Places(min(place.first for place in known), max(place.last for place in known)) if known else None,
        unplaced,
    )
