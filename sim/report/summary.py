"""``summary.json``: the contract of what an experiment found, see ``docs/output.md``."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from sim.experiment import Results
from sim.ranking import rankings
from sim.sensitivity import survivals
from sim.stats import Interval
from sim.study import Study
from sim.study.about import origin

SCHEMA = 1
VERSIONS = ("slotsim", "simpy", "numpy", "scipy", "pandas", "pyarrow")


def summarise(study: Study, results: Results, command: str, speed: Mapping[str, float]) -> dict[str, Any]:
    """Return the document: plain values, no NaN, no infinity.

    Parameters
    ----------
    study, results
        What was asked and what was found.
    command
        The command line that was run.
    speed
        The ``speed`` block: the only part besides ``command`` that two runs of one study may differ in.
    """
    baseline = next(iter(results.arms))
    return {
        "schema": SCHEMA,
        "study": study.name,
        "command": command,
        "seed": study.seed,
        "replications": results.replications,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
        "warnings": list(results.warnings),
        "window_s": [edge if edge != float("inf") else None for edge in results.window_s],
        "arms": {
            name: {
                "status": arm.status,
                "provenance": origin(study.arms[name]),
                "metrics": {metric: asdict(interval) for metric, interval in arm.metrics.items()},
            }
            for name, arm in results.arms.items()
        },
        "comparisons": [
            {
                "baseline": baseline,
                "arm": arm,
                "metric": metric,
                "difference": _ends(comparison.difference),
                "ratio": _ends(comparison.ratio),
                "verdict": comparison.verdict,
            }
            for (arm, metric), comparison in results.comparisons.items()
        ],
        "speed": dict(speed),
    }


def summarise_cases(
    study: Study, found: Mapping[str, Results], command: str, speed: Mapping[str, float]
) -> dict[str, Any]:
    """Return the document of a study with cases: one for all, arms named ``CASE/ARM``, and what each case says.

    Parameters
    ----------
    study, found
        What was asked and what was found, by case.
    command, speed
        As in :func:`summarise`.
    """
    studies, ranked = study.by_case(), rankings(study, found)
    parts = {case: summarise(studies[case], results, command, speed) for case, results in found.items()}
    document = next(iter(parts.values()))
    windows = {case: part.pop("window_s") for case, part in parts.items()}
    return {
        **document,
        "replications": max(results.replications for results in found.values()),
        "warnings": warnings(found),
        "cases": {
            case: {
                "replications": results.replications,
                "window_s": windows[case],
                "ranking": {
                    metric: {arm: places and asdict(places) for arm, places in ranking.items()}
                    for metric, ranking in ranked[case].items()
                },
            }
            for case, results in found.items()
        },
        "arms": {name: arm for part in parts.values() for name, arm in part["arms"].items()},
        "comparisons": [comparison for part in parts.values() for comparison in part["comparisons"]],
    }


def warnings(found: Mapping[str, Results]) -> list[str]:
    """Return the warnings of all cases: one that all have once, any other with its case."""
    every = [text for text in next(iter(found.values())).warnings if all(text in r.warnings for r in found.values())]
    return every + [
        text if text.startswith(f"{case}/") else f"{case}: {text}"
        for case, results in found.items()
        for text in results.warnings
        if text not in every
    ]


def sensitivity(study: Study, found: Mapping[str, Results]) -> dict[str, Any]:
    """Return the block of a study with other assumptions: what is found under each, and what it leaves.

    Parameters
    ----------
    study, found
        What was asked, and what was found as written and under each assumption.
    """
    studies = study.by_case()
    block: dict[str, Any] = {}
    for name, left in survivals(study, found).items():
        part = summarise(studies[name], found[name], "", {})
        kept = {key: part[key] for key in ("replications", "warnings", "window_s", "arms", "comparisons")}
        fates = {(f"{name}/{arm}", metric): fate for (arm, metric), fate in left.verdicts.items()}
        for comparison in kept["comparisons"]:
            comparison["survival"] = fates.get((comparison["arm"], comparison["metric"]))
        block[name] = {**kept, "orders": dict(left.orders)}
    return block


def _ends(interval: Interval) -> dict[str, float | None]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def dumps(document: Mapping[str, Any]) -> str:
    """Return a document as JSON text.

    Raises
    ------
    ValueError
        If it holds a NaN or an infinity.
    """
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)
