"""Studies of agent sessions."""

from __future__ import annotations

import json
import math

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.sessions import METRICS, Row, conclude, conduct
from sim.sessions.agent import End
from sim.sessions.check import warnings
from sim.study import load_study
from workloads.errors import BadInput

WEKA = "data/files/weka-claude-code/weka_sessions_dev.jsonl.gz"


def compare(tmp_path, *arguments):
    return CliRunner().invoke(app, ["compare", *arguments, "-o", str(tmp_path / "out")])


def test_the_eight_sub_agents(tmp_path):
    result = compare(tmp_path, "eight-sub-agents", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    arms = document["arms"]
    assert arms["cut-user-turns"]["metrics"]["refused_by_server"]["mean"] == 1
    assert 1_000_000 <= arms["cut-user-turns"]["largest_prompt"] < 1_150_000
    for reading in ("budget", "protected", "protected-hold"):
        assert arms[reading]["metrics"]["finished"]["mean"] == 1
        assert arms[reading]["metrics"]["finished"]["low"] == pytest.approx(0.676, abs=0.001)  # Wilson, 8 of 8
        assert arms[reading]["largest_estimate"] <= 400_000
    assert (document["sessions"], document["compared"], document["reference"]) == (8, 8, "budget")
    assert all(arm["provenance"]["step_time"]["source"] for arm in arms.values())
    assert set(arms["budget"]["metrics"]) == set(METRICS)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "costs.png",
        "sessions.parquet",
        "study.toml",
        "summary.json",
    }
    assert pq.read_table(tmp_path / "out" / "sessions.parquet").num_rows == 32
    again = load_study(str(tmp_path / "out" / "study.toml"))
    assert list(again.arms) == list(arms)


def test_the_russian_reader(tmp_path):
    document = json.loads(compare(tmp_path, "russian-reader", "--json").stdout)
    blind, seeing = document["arms"]["chars-per-four"], document["arms"]["by-script"]
    assert blind["largest_prompt"] == pytest.approx(640_000, rel=0.05)
    assert blind["largest_estimate"] <= 400_000
    assert seeing["largest_prompt"] <= 400_000 * 44_600 / 43_423
    assert seeing["metrics"]["finished"]["mean"] == 1


def test_recorded_sessions(shared, tmp_path):
    agents = f'workload.agents=[{{ kind = "weka", path = "{shared / WEKA}", first = 12 }}]'
    study = load_study("context-policies", ["--set", agents][1:])
    few = {name: arm for name, arm in study.arms.items() if name in ("none", "budget", "protected-hold")}
    rows = conduct(type(study)(study.name, 1, study.run, few, {}, {}, None, ()))
    said = conclude(rows, 1)
    assert said.metrics["none"]["finished"].mean == 1
    assert said.metrics["none"]["rewritten_tokens"].mean == 0
    assert said.ratios["none"]["cost.openai"].mean == 1
    assert said.metrics["protected-hold"]["hit_rate"].mean > said.metrics["budget"]["hit_rate"].mean
    result = compare(tmp_path, "context-policies", "--set", agents, "--csv")
    assert result.exit_code == 0
    assert result.stdout.startswith("arm,metric,mean,low,high,ratio,ratio_low,ratio_high\n")
    assert len(result.stdout.splitlines()) == 1 + len(study.arms) * len(METRICS)


def row(name, end=End.FINISHED, **values):
    numbers = {number: 0.0 for metric in METRICS.values() for number in (metric.above, metric.below)}
    numbers |= {"sessions": 1, "finished": end is End.FINISHED, "requests": 1} | values
    return Row(name, "script", name.split("/")[0], end, "", numbers, 10, 9)


def test_totals_over_totals_and_only_common_sessions():
    rows = {
        "base": [row("a", prompt_tokens=100, hit_tokens=50), row("b", prompt_tokens=300, hit_tokens=250), row("c")],
        "other": [
            row("a", prompt_tokens=50, hit_tokens=10),
            row("b", prompt_tokens=150, hit_tokens=110),
            row("c", End.REFUSED_BY_SERVER, prompt_tokens=9_999),
        ],
        "hopeless": [row(name, End.REFUSED_BY_POLICY) for name in "abc"],
    }
    said = conclude(rows, 3)
    assert (said.sessions, said.compared, said.reference) == (3, 2, "base")
    assert said.metrics["base"]["hit_rate"].mean == 300 / 400
    assert said.metrics["other"]["hit_rate"].mean == 120 / 200
    assert said.ratios["other"]["prompt_tokens"].mean == pytest.approx(0.5)
    assert said.ratios["other"]["prompt_tokens"].low == pytest.approx(0.5)  # the same factor in every session: no doubt
    assert said.metrics["other"]["finished"].mean == pytest.approx(2 / 3)
    assert said.metrics["hopeless"]["hit_rate"].mean is None
    assert said.metrics["hopeless"]["finished"].mean == 0
    assert said.metrics["hopeless"]["finished"].high > 0.5


def test_the_interval_covers():
    import numpy as np

    source = np.random.default_rng(5)
    hits = 0
    for _ in range(150):
        sizes = source.lognormal(6, 1, 60)
        shares = source.beta(8, 2, 60)
        rows = {
            "a": [
                row(str(n), prompt_tokens=s, hit_tokens=s * h)
                for n, (s, h) in enumerate(zip(sizes, shares, strict=True))
            ]
        }
        value = conclude(rows, 1).metrics["a"]["hit_rate"]
        hits += value.low <= 0.8 <= value.high
    assert hits / 150 > 0.85


def test_a_single_session_has_no_interval():
    said = conclude({"a": [row("x", prompt_tokens=10, hit_tokens=5)]}, 1)
    assert said.metrics["a"]["hit_rate"].mean == 0.5
    assert said.metrics["a"]["hit_rate"].low is None
    assert not math.isnan(said.metrics["a"]["finished"].low)


def test_bounds_on_calls_are_refused(tmp_path):
    result = compare(tmp_path, "eight-sub-agents", "--set", "slo.call={ e2e_s = 5 }")
    assert isinstance(result.exception, BadInput)
    assert "measures sessions" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_budget_that_cannot_begin_is_warned_of():
    study = load_study("eight-sub-agents", ["policy.context.budget=30_000", "arms.budget.policy.context.budget=30_000"])
    (warning,) = warnings(study)
    assert warning.startswith("8 of 8 sessions will be refused")
    assert warning.endswith("in budget")


def test_arms_need_the_same_agents():
    study = load_study("eight-sub-agents", ["arms.budget.workload.agents.sub-agents.count=3"])
    with pytest.raises(BadInput, match=r"arms.budget.workload.agents"):
        conduct(study)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("workload.agents.sub-agents.results.rusian=1", "no such kind of text"),
        ("workload.agents.sub-agents.rounds=-1", "rounds"),
        ("workload.agents.sub-agents.kind=wekka", "did you mean 'weka'"),
        ('workload.agents=[{ kind = "weka", path = "nowhere" }]', "no such file"),
        ("workload.agents.sub-agents.round=3", "did you mean 'rounds'"),
        ("arms.budget.policy.context.clear_to=everything", "clear_to"),
    ],
)
def test_faults_are_named(change, what):
    with pytest.raises(BadInput, match=what):
        load_study("eight-sub-agents", [change])


@pytest.mark.parametrize("together", ["false", "true"])
def test_agents_that_were_not_told_stop_early(together):
    study = load_study(
        "eight-sub-agents",
        ["arms.budget.policy.told=false", "arms.cut-user-turns.policy.told=false", f"workload.together={together}"],
    )
    rows = conduct(study)
    ends = [row.end for row in rows["budget"]]  # the most patient ones never see their share of the budget exceeded
    assert 5 <= ends.count(End.STOPPED) == 8 - ends.count(End.FINISHED)
    assert {row.end for row in rows["protected"]} == {End.FINISHED}
