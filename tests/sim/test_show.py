"""What a person sees: the table on screen and the pictures."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from sim.experiment import ArmResult, Results
from sim.metrics import METRICS
from sim.replication import replicate
from sim.report import plots
from sim.report.tables import show
from sim.stats import Interval, compare, t_interval
from sim.study import Study, load_study


def study() -> Study:
    return load_study("quickstart", ("run.horizon=60s",), None, None)


def results(values: dict[str, dict[str, list[float]]], warnings: tuple[str, ...] = ()) -> Results:
    """Return results that hold the given replications of some metrics, nothing of the others."""
    count = len(next(iter(next(iter(values.values())).values())))
    everything = {
        name: [{metric: given[metric][k] if metric in given else None for metric in METRICS} for k in range(count)]
        for name, given in values.items()
    }
    arms = {
        name: ArmResult("steady", {m: t_interval([row[m] for row in rows]) for m in METRICS}, rows)
        for name, rows in everything.items()
    }
    baseline, *others = arms
    comparisons = {
        (name, m): compare([row[m] for row in everything[baseline]], [row[m] for row in rows], METRICS[m].better)
        for name, rows in everything.items()
        for m in METRICS
        if name in others
    }
    return Results(arms, comparisons, count, (0.0, 60.0), warnings, 10, 1.0)


def printed(found: Results, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    show(study(), {"": found}, Path("there"), console)
    return console.file.getvalue()  # type: ignore[attr-defined]


CALLS = "call.e2e_s.mean"


def test_a_difference_has_its_interval_and_its_verdict() -> None:
    lines = printed(results({"a": {CALLS: [10.0, 12.0]}, "b": {CALLS: [8.0, 9.9]}})).splitlines()
    # t(1) = 12.706: 11 +- 12.7, 8.95 +- 12.07; the differences -2 and -2.1 give -2.05 +- 0.635
    assert lines[2] == "call.e2e_s.mean  s, lower is better"
    assert lines[3].split() == ["a", "11", "±", "13"]
    assert lines[4].split()[:7] == ["b", "9", "±", "12", "-2.05", "±", "0.64"]
    assert lines[4].split()[-1] == "better"
    answer = lines[lines.index("b against a") + 1]
    assert answer.split() == ["better", "mean", "call", "time", "-2.05", "±", "0.64", "s"]


def test_shares_are_per_cent_and_what_is_zero_everywhere_is_one_line() -> None:
    wasted, refused = "tokens.wasted_share", "refused_share"
    text = printed(
        results({name: {wasted: [0.1, 0.1 + add], refused: [0.0, 0.0]} for name, add in (("a", 0), ("b", 0.02))})
    )
    assert "tokens.wasted_share  %, lower is better\n  a  10 ± 0\n" in text
    assert "0 under every arm: refused_share\n" in text


def test_a_direction_that_is_neither_has_no_verdict() -> None:
    text = printed(results({"a": {"running.mean": [1.0, 1.1]}, "b": {"running.mean": [2.0, 2.1]}}))
    assert not any(word in text for word in ("better", "worse", "undecided"))


def test_one_replication_shows_no_interval() -> None:
    text = printed(results({"a": {CALLS: [10.0]}, "b": {CALLS: [8.0]}}))
    assert "±" not in text
    assert "one replication: no intervals" in text
    assert "mean call time           -2 s" in text
    assert "undecided" in text


def test_an_unstable_arm_is_named_and_not_averaged() -> None:
    found = results({"a": {CALLS: [10.0, 10.5]}, "b": {CALLS: [1.0, 2.0]}})
    nothing = dict.fromkeys(METRICS, Interval(None, None, None, 0))
    arms = {**found.arms, "b": ArmResult("unstable", nothing, [])}
    text = printed(Results(arms, {}, 2, (0.0, 60.0), (), 10, 1.0))
    assert "  b  unstable\n" in text
    assert "no verdict: b is unstable" in text


@pytest.mark.parametrize("names", [("base",), ("a", "b", "c", "d", "e", "f", "g", "h", "i")])
def test_pictures_are_drawn_for_any_number_of_arms(tmp_path: Path, names: tuple[str, ...]) -> None:
    from sim.experiment import settings_of

    small = study()
    run = replicate(next(iter(settings_of(small).values())), 1, 0)
    sketch = plots.Sketch()
    for name in names:
        sketch.take(name, run)
    paths = {name: tmp_path / f"{name}.png" for name in plots.NAMES}
    plots.draw(sketch, results({name: {CALLS: [1.0, 2.0]} for name in names}), paths)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths.values())
