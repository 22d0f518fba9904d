"""What the sessions of a study allow to conclude: ratios of totals with paired bootstrap intervals over sessions.

Sessions differ a thousandfold in size, so means over sessions of ratios would say little: every number is a total
over a total. Arms meet the same sessions; the bootstrap draws sessions, with their sub-agents, and takes all arms'
totals from the same draw, so differences between sessions cancel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.sessions.agent import End
from sim.sessions.hosted_cache import HOSTED_CACHES
from sim.sessions.run import Row
from workloads.substreams import generator

DRAWS: Final = 2_000
"""Bootstrap draws; the ends of a 95 % interval then vary by about 2 % of its width between seeds."""

NORMAL: Final = 1.959964
"""The normal law's 97.5 % quantile."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A total over a total.

    Attributes
    ----------
    above, below
        Numbers of a session that are summed.
    everyone
        Whether all sessions count, or those only that finish under every arm: a session that was refused is cheap.
    about
        What it is.
    """

    above: str
    below: str
    everyone: bool
    about: str


METRICS: Final[Mapping[str, Metric]] = {
    "finished": Metric("finished", "sessions", True, "share of the sessions that finished"),
    "refused_by_policy": Metric("refused_by_policy", "sessions", True, "share that the context policy refused"),
    "refused_by_server": Metric("refused_by_server", "sessions", True, "share that the server refused as too long"),
    "stopped": Metric("stopped", "sessions", True, "share that stopped early"),
    "over_budget": Metric("over_budget", "requests", True, "share of the requests whose estimate exceeds the budget"),
    "stage0": Metric("stage0", "requests", True, "share of the requests sent whole"),
    "stage1": Metric("stage1", "requests", True, "share sent with results cleared"),
    "stage2": Metric("stage2", "requests", True, "share sent with turns dropped"),
    "stage3": Metric("stage3", "requests", True, "share sent with rounds dropped"),
    "hit_rate": Metric("hit_tokens", "prompt_tokens", False, "prompt tokens found in the server's prefix cache"),
    "requests": Metric("requests", "sessions", False, "requests a session"),
    "prompt_tokens": Metric("prompt_tokens", "sessions", False, "prompt tokens a session"),
    "rewritten_tokens": Metric("rewritten_tokens", "sessions", False, "tokens sent again behind a change, a session"),
    "reread_tokens": Metric("reread_tokens", "sessions", False, "tokens of results read again, a session"),
    "cleared_tokens": Metric("cleared_tokens", "sessions", False, "most tokens cleared in a request, a session"),
    "dropped_tokens": Metric("dropped_tokens", "sessions", False, "most tokens dropped in a request, a session"),
    "summaries": Metric("summaries", "sessions", False, "summaries a session"),
    "prefill_s": Metric("prefill_s", "sessions", False, "seconds computing prompts, a session alone"),
    "ttft_s": Metric("ttft_s", "requests", False, "mean time to first token"),
    "busy_s": Metric("busy_s", "sessions", False, "seconds computing prompts and answers, a session alone"),
    "duration_s": Metric("duration_s", "sessions", False, "seconds from first request to end, waiting included"),
    **{
        f"cost.{name}": Metric(f"cost.{name}", "sessions", False, f"input cost a session, uncached tokens, {name}")
        for name in HOSTED_CACHES
    },
    **{
        f"hit_rate.{name}": Metric(f"read.{name}", "prompt_tokens", False, f"prompt tokens read from cache, {name}")
        for name in HOSTED_CACHES
    },
}
"""What is reported of every arm."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; None where there is none: no tokens to divide by, or a single session."""

    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a study of sessions says.

    Attributes
    ----------
    sessions
        All sessions, sub-agents included.
    compared
        Those that finish under every arm.
    metrics
        By arm and metric.
    reference
        The first arm that finishes any session: the ratios are to it.
    ratios
        By arm and metric; above 1 is more.
    scripts
        Hit rate and share of finished sessions by arm and script.
    largest_prompt, largest_estimate
        By arm.
    """

    sessions: int
    compared: int
    metrics: Mapping[str, Mapping[str, Estimate]]
    reference: str
    ratios: Mapping[str, Mapping[str, Estimate]]
    scripts: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    largest_prompt: Mapping[str, int]
    largest_estimate: Mapping[str, int]


def conclude(rows: Mapping[str, Sequence[Row]], seed: int, metrics: Mapping[str, Metric] = METRICS) -> Conclusion:
    """Return what the sessions of all arms say.

    Parameters
    ----------
    rows
        The sessions by arm, the same ones in the same order.
    seed
        Of the bootstrap.
    metrics
        What is reported.
    """
    arms = list(rows)
    sessions = rows[arms[0]]
    owners = {name: place for place, name in enumerate(dict.fromkeys(row.owner for row in sessions))}
    owner = np.array([owners[row.owner] for row in sessions])
    # An arm that finishes nothing (a policy that cannot hold the workload at all) does not empty the comparison.
    able = [arm for arm in arms if any(row.end is End.FINISHED for row in rows[arm])]
    reference = able[0] if able else arms[0]
    common = np.array([all(rows[arm][place].end is End.FINISHED for arm in able) for place in range(len(sessions))])
    source = generator(seed, "bootstrap")
    draws = source.multinomial(len(owners), np.full(len(owners), 1 / len(owners)), DRAWS).astype(np.float64)
    names = sorted({name for metric in metrics.values() for name in (metric.above, metric.below)})

    def totals(everyone: bool) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Return, by arm and number, the total of the sessions that count and then those of the draws."""
        found: dict[str, dict[str, NDArray[np.float64]]] = {}
        for arm in arms:
            found[arm] = {}
            for name in names:
                values = np.array([row.values[name] for row in rows[arm]], dtype=np.float64)
                counted = values if everyone else values * common
                by_owner = np.bincount(owner, weights=counted, minlength=len(owners))
                found[arm][name] = np.concatenate([[by_owner.sum()], draws @ by_owner])
        return found

    sums = {True: totals(True), False: totals(False)}
    alone = len(owners) < 2

    def level(arm: str, metric: Metric) -> NDArray[np.float64]:
        of = sums[metric.everyone][arm]
        if not metric.everyone and arm not in able:
            return np.full(DRAWS + 1, np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            return of[metric.above] / of[metric.below]

    levels: dict[str, dict[str, Estimate]] = {}
    ratios: dict[str, dict[str, Estimate]] = {}
    for arm in arms:
        levels[arm] = {
            name: _share(sums[True][arm][metric.above][0], len(sessions))
            if metric.everyone and metric.below == "sessions"
            else _estimate(level(arm, metric), alone)
            for name, metric in metrics.items()
        }
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios[arm] = {
                name: _estimate(level(arm, metric) / level(reference, metric), alone)
                for name, metric in metrics.items()
            }
    return Conclusion(
        len(sessions),
        int(common.sum()),
        levels,
        reference,
        ratios,
        {arm: _by_script(rows[arm], common) for arm in arms},
        {arm: max(row.largest_prompt for row in rows[arm]) for arm in arms},
        {arm: max(row.largest_estimate for row in rows[arm]) for arm in arms},
    )


def _estimate(values: NDArray[np.float64], alone: bool) -> Estimate:
    mean, drawn = values[0], values[1:][np.isfinite(values[1:])]
    if not np.isfinite(mean):
        return Estimate(None, None, None)
    if alone or len(drawn) < DRAWS // 2:
        return Estimate(float(mean), None, None)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(float(mean), float(low), float(high))


def _share(some: float, of: int) -> Estimate:
    """Return a share of the sessions with Wilson's interval, which holds at none and at all of them too."""
    square = NORMAL**2
    share = some / of
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = NORMAL / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of**2))
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half))


def _by_script(rows: Sequence[Row], common: NDArray[np.bool_]) -> dict[str, dict[str, float | None]]:
    said: dict[str, dict[str, float | None]] = {}
    for script in dict.fromkeys(row.script for row in rows):
        inside = [row for row in rows if row.script == script]
        both = [row for row, counts in zip(rows, common, strict=True) if counts and row.script == script]
        sent = sum(row.values["prompt_tokens"] for row in both)
        said[script] = {
            "finished": sum(row.values["finished"] for row in inside) / len(inside),
            "hit_rate": sum(row.values["hit_tokens"] for row in both) / sent if sent else None,
            "largest_prompt": max(row.largest_prompt for row in inside),
        }
    return said
