"""The pages say what the code does: nothing they name is missing, nothing that is promised goes unnamed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from sim import metrics
from sim.cli.sessions import compare_sessions
from sim.ranking import Places
from sim.records import CALL, OUTCOMES, REFUSALS, REQUEST, TASK, TASK_OUTCOMES
from sim.replica.admission import RULES
from sim.replica.engines import ENGINES
from sim.sensitivity import Fate
from sim.sessions import METRICS as SESSION_METRICS
from sim.study import load_study

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("results/*/README.md"))]
OUTPUT = (ROOT / "docs/output.md").read_text(encoding="utf-8")
CACHE = re.compile(r"^(cost|hit_rate)\.")


def named(page: str) -> set[str]:
    """Return everything that a page sets as code, table cells with lists of it included."""
    return set(re.findall(r"`([^`\n]+)`", page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, target


def test_every_metric_is_defined() -> None:
    shown = OUTPUT.split("<!-- metrics -->\n", 1)[1].split("\n<!-- /metrics -->", 1)[0]
    assert shown == metrics.table(), "docs/output.md is stale: python -m sim.metrics"


def test_every_metric_of_sessions_is_defined() -> None:
    for name, metric in SESSION_METRICS.items():
        if not CACHE.match(name):
            assert f"| `{name}` | {metric.about} | {'all' if metric.everyone else 'finished'} |" in OUTPUT


def keys(document: object) -> Iterator[str]:
    """Yield every key of a document but those of tables whose keys are names of a study, a metric or a constant."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            names = key in ("arms", "metrics", "ratios", "scripts", "policy", "versions", "constants", "covers")
            for inner in value.values() if names and isinstance(value, dict) else [value]:
                yield from keys(inner)
    elif isinstance(document, list):
        for value in document:
            yield from keys(value)


def test_every_key_of_a_summary_is_told_of() -> None:
    told = set(keys(json.loads((ROOT / "results/quickstart/summary.json").read_text(encoding="utf-8"))))
    assert {"peak_rss_mb", "verdict", "engine_source"} <= told
    assert told | {field.name for field in fields(Places)} | set(get_args(Fate)) <= named(OUTPUT)


def test_every_key_of_a_summary_of_sessions_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_sessions(load_study("eight-sub-agents"), True, False, tmp_path / "out")
    told = set(keys(json.loads(capsys.readouterr().out)))
    assert {"compared", "largest_prompt"} <= told <= named(OUTPUT)


def test_every_admission_rule_is_told_of_with_its_presets() -> None:
    page = (ROOT / "docs/model.md").read_text(encoding="utf-8")
    rows = [named(line) for line in page.splitlines() if line.startswith("|")]
    for rule in RULES:
        presets = {engine.name for engine in ENGINES.values() if engine.admission == rule}
        assert any({rule, *presets} <= row for row in rows), rule


def test_every_column_is_told_of() -> None:
    told = named(OUTPUT)
    for row in (REQUEST, CALL, TASK):
        assert set(row.names or ()) <= told
    assert {*REFUSALS, *OUTCOMES, *TASK_OUTCOMES} - {""} <= told


def test_every_room_is_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = {name for name in named(page) if re.match(r"(policies|workloads|sim|tests|docs|\.ci)/", name)}
    assert len(rooms) > 60
    assert not {name for name in rooms if not list(ROOT.glob(name))}
