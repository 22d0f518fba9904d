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


def baseline_content(evaluation: Evaluation, chunk: int, by: str) -> dict[str, Any]:
    """Return what a baseline file holds: the settings and the rows, without what depends on the machine."""
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
    }


def write_baseline(file: Path, content: Mapping[str, Any]) -> None:
    """Write a baseline: one row a line, so that a change of it reads well."""
    head = {key: value for key, value in content.items() if key != "rows"}
    rows = ",\n    ".join(json.dumps(row) for row in content["rows"])
    body = json.dumps(head, indent=2)[:-2]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{body},\n  "rows": [\n    {rows}\n  ]\n}}\n', "utf-8")


def read_baseline(file: Path) -> dict[str, Any]:
    """Return a baseline.

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


def missing_rows(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the classes of a baseline that are no longer measured."""
    measured = {row["class"] for row in now["rows"]}
    return sorted({row["class"] for row in was["rows"]} - measured)
