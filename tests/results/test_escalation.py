"""The committed rankings of the output policies are what the bundled studies give, and what the docs show."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from sim.experiment import conduct
from sim.report.tables import show_cases
from sim.study import load_study

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "results/escalation"


def tables(study: str) -> dict[str, str]:
    """Return the committed tables of a study by the words before their colon: a case, or the study for all cases."""
    text = (FOLDER / f"{study}.txt").read_text(encoding="utf-8")
    return {table.partition(":")[0]: table for table in text.strip().split("\n\n")}


@pytest.mark.parametrize(
    ("name", "case"), [("write-loop", "never-splits"), ("escalation-policies", "reasoning-100k-full")]
)
def test_a_fresh_run_of_a_case_gives_the_committed_table(name: str, case: str) -> None:
    study = load_study(name)
    results = conduct(study.by_case()[case], 1, lambda: None, lambda *_: None)
    console = Console(file=io.StringIO(), width=80, no_color=True)
    show_cases(study, {case: results}, Path("there"), console)
    fresh = console.file.getvalue().partition("\n\n")[0]  # type: ignore[attr-defined]
    assert fresh == tables(name)[case]


@pytest.mark.parametrize("name", ["write-loop", "escalation-policies"])
def test_all_cases_are_committed(name: str) -> None:
    study = load_study(name)
    assert [key for key in tables(name) if key in study.cases] == list(study.cases)
    assert name in tables(name)


def test_the_docs_show_the_committed_tables() -> None:
    page = (ROOT / "docs/policies.md").read_text(encoding="utf-8")
    for name, cases in (
        ("write-loop", list(load_study("write-loop").cases)),
        ("escalation-policies", ["escalation-policies"]),
    ):
        shown = page.split(f"<!-- {name} -->\n```\n", 1)[1].split("```", 1)[0].strip()
        assert shown == "\n\n".join(tables(name)[case] for case in cases)
