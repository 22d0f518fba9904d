"""Experiments end to end, on a study small enough for a test."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.experiment import Results, conduct, settings_of
from sim.metrics import METRICS
from sim.replication import TICKS, Replication, measure, replicate
from sim.report.folder import Folder
from sim.report.summary import dumps, summarise
from sim.report.tables import csv, exit_code
from sim.stats import warm_up
from sim.study import load_study
from workloads.errors import BadInput

STUDY = """
schema = 1
name = "small"
seed = 7

[run]
kind = "steady"
horizon = "10min"
replications = 4

[server]
engine = "trtllm-no-evict"
kv_tokens = 60_000
window = 60_000
max_num_seqs = 64
max_num_batched_tokens = 2_048
step_time = { kind = "line", base_s = 0.01, per_request_s = 0.0005 }

[policy.output]
name = "adaptive"
first_cap = 500
escalated_floor = 4_000
margin_tokens = 0
margin_share = 0
floor = 1

[[workload.streams]]
name = "chat"
arrivals = { kind = "poisson", rate = 1.0 }
prompt = { kind = "lognormal", median = 200, p99 = 2_000, max = 4_000 }
output = { kind = "lognormal", median = 100, p99 = 2_000, max = 20_000 }

[arms.fixed]
policy.output = { name = "fixed", max_tokens = 4_000 }

[arms.adaptive]
"""


def write(folder: Path, text: str = STUDY) -> str:
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def experiment(path: str, *overrides: str, jobs: int = 1, **options: Any) -> tuple[dict[str, Any], Results]:
    study = load_study(path, overrides, **options)
    results = conduct(study, jobs, lambda: None, lambda *_: None)
    return json.loads(dumps(summarise(study, results, "", {}))), results


def slotsim(*arguments: str, cwd: Path, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    program = "from sim.cli import main; main()"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


def test_processes_and_hash_seeds_change_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    printed = []
    for jobs, seed in (("1", "1"), ("2", "1"), ("1", "2")):
        done = slotsim("compare", "small.toml", "-j", jobs, "--json", cwd=tmp_path, hash_seed=seed)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        del document["speed"], document["command"]
        printed.append(json.dumps(document))
    assert len(set(printed)) == 1


def test_seeds_differ_and_arms_do_not_touch_each_other(tmp_path: Path) -> None:
    path = write(tmp_path)
    first, _ = experiment(path)
    other, _ = experiment(path, seed=8)
    assert first["arms"] != other["arms"]
    more = STUDY + '\n[arms.third]\npolicy.output = { name = "progressive", caps = [500, 1_000] }\n'
    third, _ = experiment(write(tmp_path, more))
    assert {name: third["arms"][name] for name in first["arms"]} == first["arms"]


def test_summary_is_the_contract(tmp_path: Path) -> None:
    document, results = experiment(write(tmp_path))
    assert list(document["arms"]) == ["fixed", "adaptive"]
    for arm in document["arms"].values():
        assert list(arm["metrics"]) == list(METRICS)
        for interval in arm["metrics"].values():
            assert set(interval) == {"mean", "low", "high", "n"}
            if interval["n"] >= 2:
                assert interval["low"] <= interval["mean"] <= interval["high"]
    for comparison in document["comparisons"]:
        assert comparison["verdict"] in ("better", "worse", "same", "undecided")
        assert set(comparison["difference"]) == set(comparison["ratio"]) == {"mean", "low", "high"}
    assert {c["metric"] for c in document["comparisons"]} == set(METRICS)
    lines = csv(results).splitlines()
    assert len(lines) == 1 + 2 * len(METRICS)


def test_one_replication_concludes_nothing(tmp_path: Path) -> None:
    document, _ = experiment(write(tmp_path), replications=1)
    for arm in document["arms"].values():
        assert all(interval["low"] is interval["high"] is None for interval in arm["metrics"].values())
    assert {comparison["verdict"] for comparison in document["comparisons"]} == {"undecided"}
    assert any("one replication" in warning for warning in document["warnings"])


def test_a_server_that_never_catches_up_is_called_unstable(tmp_path: Path) -> None:
    document, _ = experiment(write(tmp_path), "arms.fixed.server.max_num_seqs=1")
    fixed = document["arms"]["fixed"]
    assert fixed["status"] == "unstable"
    assert all(interval["mean"] is None for interval in fixed["metrics"].values())
    assert document["arms"]["adaptive"]["status"] == "steady"
    assert not document["comparisons"]
    assert any("fixed is unstable" in warning for warning in document["warnings"])


@pytest.mark.parametrize(("bound", "code"), [("<= 1h", 0), ("<= 1ms", 3), ("<= {mean}", 4)])
def test_thresholds_decide_the_exit_code(tmp_path: Path, bound: str, code: int) -> None:
    path = write(tmp_path)
    alone, _ = experiment(path)
    mean = alone["arms"]["adaptive"]["metrics"]["call.e2e_s.mean"]["mean"]
    text = STUDY + f'\n[thresholds]\n"call.e2e_s.mean" = "{bound.format(mean=mean)}"\n'
    study = load_study(write(tmp_path, text)).only("adaptive")
    assert exit_code(study, conduct(study, 1, lambda: None, lambda *_: None)) == code


def test_run_simulates_the_base_or_one_arm(tmp_path: Path) -> None:
    write(tmp_path)
    both = json.loads(slotsim("compare", "small.toml", "--json", cwd=tmp_path).stdout)
    for arguments, name, twin in (((), "base", "adaptive"), (("--arm", "fixed"), "fixed", "fixed")):
        alone = json.loads(slotsim("run", "small.toml", "--json", *arguments, cwd=tmp_path).stdout)
        assert list(alone["arms"]) == [name]
        assert alone["comparisons"] == []
        assert alone["arms"][name]["provenance"] == both["arms"][twin]["provenance"]


def test_results_folder(tmp_path: Path) -> None:
    write(tmp_path)
    done = slotsim("compare", "small.toml", "--replications", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "adaptive against fixed" in done.stdout
    folder = tmp_path / "results" / "runs" / "small"
    names = {"study.toml", "summary.json", "requests.parquet", "calls.parquet", "timeline.parquet"}
    assert {file.name for file in folder.iterdir()} == names | {"latency.png", "kv.png", "queue.png"}
    requests, calls = (pd.read_parquet(folder / f"{name}.parquet") for name in ("requests", "calls"))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert set(requests["arm"]) == {"fixed", "adaptive"}
    per_call = requests.groupby(["arm", "replication", "call"], observed=True)["attempt"].agg(["size", "max"])
    told = calls.set_index(["arm", "replication", "call"])["attempts"]
    assert (per_call["size"] == told.loc[per_call.index]).all()
    assert (per_call["max"] == per_call["size"] - 1).all()
    begin = summary["window_s"][0]
    measured = calls[(calls["arrival_s"] >= begin) & (calls["arm"] == "fixed")]
    shares = measured.groupby("replication")["final_truncated"].mean()
    assert math.isclose(summary["arms"]["fixed"]["metrics"]["truncated.final_share"]["mean"], shares.mean())
    assert slotsim("compare", str(folder / "study.toml"), "--replications", "2", cwd=tmp_path).returncode == 0


def test_calls_add_up(tmp_path: Path) -> None:
    """Tokens are delivered or discarded, requests run while they are in the batch, the mean queue obeys Little."""
    study = load_study(write(tmp_path), ["run.kind='terminating'", "run.replications=1"])
    happened = []
    conduct(study, 1, lambda: None, lambda arm, _, run: happened.append((arm, run)))
    for _, run in happened:
        calls, requests, series = run.calls, run.requests, run.series
        generated = np.bincount(requests["call"], requests["output_tokens"])[calls["call"]]
        assert (generated == calls["delivered_tokens"] + calls["discarded_tokens"]).all()
        assert (calls["delivered_tokens"] <= calls["true_tokens"]).all()
        complete = calls["outcome"] == 0
        assert (calls["delivered_tokens"][complete] == calls["true_tokens"][complete]).all()
        served = requests[requests["refusal"] == 0]
        assert served["preemptions"].sum() == 0
        in_batch = (served["finished_s"] - served["scheduled_s"]).sum()
        in_queue = (served["scheduled_s"] - served["submitted_s"]).sum()
        assert math.isclose(series.running[-1], in_batch, rel_tol=1e-9)
        assert math.isclose(series.waiting[-1], in_queue, rel_tol=1e-9, abs_tol=1e-9)
        assert (series.used <= series.reserved * (1 + 1e-12)).all()
        metrics = measure(run, (0.0, math.inf), {})
        assert metrics["waiting.mean"] == pytest.approx(in_queue / run.end_s)


def test_slo_counts_calls_that_meet_every_bound(tmp_path: Path) -> None:
    text = STUDY + '\n[slo]\n"request.ttft_s" = 1.0\n"call.e2e_s" = 4.0\n'
    study = load_study(write(tmp_path, text), ["run.kind='terminating'"])
    happened: dict[str, Replication] = {}
    conduct(study, 1, lambda: None, lambda arm, _, run: happened.setdefault(arm, run))
    for run in happened.values():
        slow = set(run.requests["call"][run.requests["first_token_s"] - run.requests["submitted_s"] > 1.0].tolist())
        good = sum(call["finished_s"] - call["arrival_s"] <= 4.0 and call["call"] not in slow for call in run.calls)
        metrics = measure(run, (0.0, math.inf), study.slo)
        assert metrics["slo.attainment"] == pytest.approx(good / len(run.calls))
        assert metrics["slo.goodput_per_s"] == pytest.approx(good / run.end_s)


def test_nothing_is_left_behind_when_something_goes_wrong(tmp_path: Path) -> None:
    def fail() -> None:
        with Folder(tmp_path / "deep" / "out") as folder:
            folder.text("summary.json", "{}")
            raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        fail()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious", encoding="utf-8")
    with pytest.raises(BadInput, match="holds no results"):
        Folder(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_trace_is_replayed_once_as_recorded_or_resampled(tmp_path: Path) -> None:
    rows = "".join(f"{k * 0.9:.1f},{100 + k % 50},{20 + k % 90},{k // 4}\n" for k in range(1200))
    (tmp_path / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens,session\n{rows}", encoding="utf-8")
    run = STUDY[STUDY.index("[run]") : STUDY.index("[server]")]
    path = write(tmp_path, STUDY.replace(run, ""))
    options = ("workload.path=" + str(tmp_path / "t.csv"), "workload.format=csv")
    once, _ = experiment(path, *options)
    assert once["replications"] == 1
    assert once["arms"]["fixed"]["status"] == "terminating"
    assert once["arms"]["fixed"]["metrics"]["tokens.wasted_share"] == {"mean": 0, "low": None, "high": None, "n": 1}
    study = load_study(path, options, replications=3)
    blocks: dict[str, list[list[float]]] = {}
    conduct(
        study, 1, lambda: None, lambda arm, _, run: blocks.setdefault(arm, []).append(sorted(run.calls["arrival_s"]))
    )
    assert blocks["fixed"] == blocks["adaptive"]
    assert blocks["fixed"][0] != blocks["fixed"][1]


def test_warm_up_is_the_baselines_for_all_arms(tmp_path: Path) -> None:
    """MSER-5 on the baseline's requests in the system, averaged over replications; other arms do not move it."""
    study = load_study(write(tmp_path), ["server.max_num_seqs=4", "arms.adaptive.server.max_num_seqs=64"])
    levels: dict[str, list[np.ndarray]] = {}

    def keep(arm: str, _: int, run: Replication) -> None:
        system = run.series.running + run.series.waiting
        levels.setdefault(arm, []).append(np.diff(system[: TICKS + 1]))

    results = conduct(study, 1, lambda: None, keep)
    tick_s = study.run.horizon_s / TICKS
    cuts = {arm: warm_up(np.mean(rows, axis=0)) for arm, rows in levels.items()}
    assert cuts["fixed"] != cuts["adaptive"]
    assert results.window_s == pytest.approx((cuts["fixed"] * tick_s, study.run.horizon_s))


def test_replicating_twice_gives_the_same(tmp_path: Path) -> None:
    setting = settings_of(load_study(write(tmp_path)))["adaptive"]
    first, second = (replicate(setting, 3, 1) for _ in range(2))
    assert (first.calls == second.calls).all()
    assert first.series.reserved.tolist() == second.series.reserved.tolist()


def test_replications_go_on_until_the_metric_is_precise(tmp_path: Path) -> None:
    rule = "run.replications={min=3, max=12, precision=0.2, metric='call.e2e_s.mean'}"
    document, results = experiment(write(tmp_path), rule)
    n = document["replications"]
    assert 3 <= n <= 12
    if n < 12:
        for arm in results.arms.values():
            interval = arm.metrics["call.e2e_s.mean"]
            assert interval.half_width is not None
            assert interval.mean is not None
            assert interval.half_width <= 0.2 * interval.mean


def test_leaving_the_range_that_was_measured_is_said(tmp_path: Path) -> None:
    study = load_study(write(tmp_path)).only("adaptive")
    setting = settings_of(study)["adaptive"]
    narrow = dataclasses.replace(setting.server.step_time.provenance, covers={"prompt_tokens": (1, 50)})
    step_time = dataclasses.replace(setting.server.step_time, provenance=narrow)
    setting = dataclasses.replace(setting, server=dataclasses.replace(setting.server, step_time=step_time))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.experiment.settings_of", lambda _: {"adaptive": setting})
        results = conduct(study, 1, lambda: None, lambda *_: None)
    assert any("prompt_tokens of" in warning for warning in results.warnings)
