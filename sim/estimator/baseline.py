"""A committed measurement, and what got worse since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sim.estimator.evaluate import Evaluation
from workloads.errors import BadInput, Fault

SCHEMA: Final = 1
TOLERANCE: Final = 0.0005
"""A change by less, 0.05 percentage points, is no regression: a token in a class of 2,000."""
_MEASURES: Final = {"under_share": "under-estimated", "mean_error": "mean error", "worst_error": "worst error"}
_PLACES: Final = 6


@dataclass(frozen=True, slots=True)
class Regression:
    """One measure of one class against one tokenizer that got worse."""

    class_: str
    script: str
    tokenizer: str
    measure: str
    was: float
    now: float

    def __str__(self) -> str:
        """Return the class, its script, the measure, both values and the difference."""
        was, now = 100 * self.was, 100 * self.now
        place = f"{self.class_}, script {self.script}, against {self.tokenizer}"
        return f"{place}: {_MEASURES[self.measure]} {was:+.1f} % -> {now:+.1f} % ({now - was:+.1f} points)"


@dataclass(frozen=True, slots=True)
class Drift:
    """A probe of which the estimator makes another number of tokens."""

    probe: str
    was: int
    now: int

    def __str__(self) -> str:
        """Return the probe, both numbers and the difference."""
        return f"{self.probe}: its probe's estimate {self.was} -> {self.now} tokens ({self.now - self.was:+d})"


def baseline_content(evaluation: Evaluation, chunk: int, by: str, probed: Mapping[str, int]) -> dict[str, Any]:
    """Return what a baseline file holds: settings, rows, estimates of probes; nothing that depends on the machine."""
    return {
        "schema": SCHEMA,
        "estimator": evaluation.estimator,
        "tokenizers": list(evaluation.tokenizers),
        "chunk": chunk,
        "by": by,
        "rows": [
            {
                "class": row.class_,
                "script": row.script,
                "tokenizer": row.tokenizer,
                "chunks": row.chunks,
                **{measure: round(getattr(row, measure), _PLACES) for measure in _MEASURES},
            }
            for row in evaluation.rows
        ],
        "probes": dict(probed),
    }


def write_baseline(file: Path, content: Mapping[str, Any]) -> None:
    """Write a baseline: a row or a probe a line, so that a change of it reads well."""
    head = {key: value for key, value in content.items() if key not in ("rows", "probes")}
    rows = ",\n    ".join(json.dumps(row) for row in content["rows"])
    probes = json.dumps(content["probes"], indent=4)[:-1]
    body = json.dumps(head, indent=2)[:-2]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{body},\n  "rows": [\n    {rows}\n  ],\n  "probes": {probes}  }}\n}}\n', "utf-8")


def read_baseline(file: Path) -> dict[str, Any]:
    """Return a baseline; one of before there were probes has none.

    Raises
    ------
    BadInput
        If there is none, it is no JSON, of another version, or lacks what a baseline has.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
    except OSError:
        raise BadInput(Fault("no such baseline; --update writes one", file=file)) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        line = getattr(error, "lineno", None)
        raise BadInput(Fault(f"not JSON: {error}", file=file, line=line)) from None
    version = content.get("schema") if isinstance(content, dict) else None
    if version != SCHEMA:
        message = f"a baseline of version {version}, this is version {SCHEMA}; --update writes it anew"
        raise BadInput(Fault(message, file=file, key="schema"))
    kinds = {"estimator": str, "tokenizers": list, "chunk": int, "by": str, "rows": list}
    faults = [
        Fault(f"must be {kind.__name__}, is {content.get(key)!r}"[:120], file=file, key=key)
        for key, kind in kinds.items()
        if not isinstance(content.get(key), kind)
    ]
    if not faults:
        keys = {"class", "script", "tokenizer", "chunks", *_MEASURES}
        bad = [n for n, row in enumerate(content["rows"]) if not isinstance(row, dict) or not keys <= row.keys()]
        if bad:
            message = f"{len(bad)} of {len(content['rows'])} rows lack one of {', '.join(sorted(keys))}"
            faults = [Fault(message, file=file, key=f"rows[{bad[0]}]")]
    probed = content.setdefault("probes", {})
    if not isinstance(probed, dict) or not all(type(tokens) is int for tokens in probed.values()):
        faults.append(Fault("must be tokens by the name of a probe, whole numbers", file=file, key="probes"))
    if faults:
        raise BadInput(*faults)
    return dict(content)


def settings_of(file: Path) -> dict[str, Any]:
    """Return the settings that an update keeps: those of the baseline it replaces, none if that cannot be read."""
    try:
        return read_baseline(file)
    except BadInput:
        return {}


def regressions(was: Mapping[str, Any], now: Mapping[str, Any], tolerance: float = TOLERANCE) -> list[Regression]:
    """Return what got worse: more under-estimates, a lower worst error, or a mean error further from nothing.

    Only classes and tokenizers of both are compared. The largest change comes first.
    """
    before = {(row["class"], row["tokenizer"]): row for row in was["rows"]}
    found = []
    for row in now["rows"]:
        key = row["class"], row["tokenizer"]
        if key not in before:
            continue
        place = row["class"], row["script"], row["tokenizer"]
        for measure in _MEASURES:
            old, new = before[key][measure], row[measure]
            worse = {"under_share": new - old, "worst_error": old - new, "mean_error": abs(new) - abs(old)}[measure]
            if worse > tolerance:
                found.append(Regression(*place, measure, old, new))
    return sorted(found, key=lambda r: -abs(r.now - r.was))


def drifts(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Drift]:
    """Return the probes whose estimate moved, up or down, the largest move first.

    Nobody knows their true count, so a move is neither better nor worse, and tells only of an estimator that the
    baseline names; of another one nothing is returned. A probe that moved by less than half of the largest move has
    some of what moved that one, and is left out.
    """
    if was["estimator"] != now["estimator"]:
        return []
    found = [
        Drift(name, tokens, now["probes"][name])
        for name, tokens in was["probes"].items()
        if now["probes"].get(name, tokens) != tokens
    ]
    found.sort(key=lambda drift: -abs(drift.now - drift.was))
    return [drift for drift in found if 2 * abs(drift.now - drift.was) > abs(found[0].now - found[0].was)]


def missing_rows(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the classes of a baseline that are no longer measured."""
    measured = {row["class"] for row in now["rows"]}
    return sorted({row["class"] for row in was["rows"]} - measured)
