"""What is left of a comparison under other assumptions: its verdicts, and the order of its arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sim.experiment import Results
from sim.ranking import Order, order
from sim.stats import Verdict
from sim.study import Study

Fate = Literal["survives", "opens", "turns"]
"""Said again; no longer said; the contrary said."""

CONTRARY: Mapping[Verdict, frozenset[Verdict]] = {
    "better": frozenset({"worse"}),
    "worse": frozenset({"better"}),
    "same": frozenset({"better", "worse"}),
}
"""What contradicts a verdict. One that is undecided says nothing, so that nothing contradicts it."""


@dataclass(frozen=True, slots=True)
class Survival:
    """What an assumption leaves of a comparison.

    Attributes
    ----------
    verdicts
        By (arm, metric), for each that is decided as the study is written. An arm that is unstable under the assumption
        has no verdict there: it opens.
    orders
        By each metric that the study ranks by: of all pairs of which one is better for sure. None if there is none.
    """

    verdicts: Mapping[tuple[str, str], Fate]
    orders: Mapping[str, Fate | None]


def survivals(study: Study, found: Mapping[str, Results]) -> dict[str, Survival]:
    """Return by assumption what it leaves of the study as written.

    Parameters
    ----------
    study
        A study with assumptions, or without: then there is nothing to return.
    found
        The results as written under ``""``, and those of each assumption.
    """
    written, same_within = found[""], study.run.same_within
    said = {metric: order("", written, metric, same_within) for metric in study.run.rank_by if study.sensitivity}
    left = {}
    for name in study.sensitivity:
        assumed = found[name]
        verdicts = {}
        for (arm, metric), comparison in written.comparisons.items():
            if comparison.verdict != "undecided":
                again = assumed.comparisons.get((f"{name}/{arm}", metric))
                verdicts[arm, metric] = _fate(comparison.verdict, again.verdict if again else "undecided")
        orders = {metric: _left(sure, order(name, assumed, metric, same_within)) for metric, sure in said.items()}
        left[name] = Survival(verdicts, orders)
    return left


def _fate(verdict: Verdict, again: Verdict) -> Fate:
    return "survives" if again == verdict else "turns" if again in CONTRARY[verdict] else "opens"


def _left(sure: Order, again: Order) -> Fate | None:
    if not sure:
        return None
    if any((behind, ahead) in again for ahead, behind in sure):
        return "turns"
    return "survives" if sure <= again else "opens"
