"""The committed results are what their commands give, and the documentation shows them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"results/validation/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE, PUBLISHED = _module("make"), _module("published")
STUDIES = json.loads((ROOT / "results/validation/published.json").read_text(encoding="utf-8"))


def test_the_documentation_shows_the_committed_tables():
    page = (ROOT / "docs/validation.md").read_text(encoding="utf-8")
    assert MAKE.tables(MAKE.committed()) in page, "python results/validation/make.py prints the tables"


@pytest.mark.parametrize(
    ("name", "run"), [("measured-llama-8b-fitted", "Llama-3.1-8B"), ("measured-qwen-32b-latency", "Qwen3-32B")]
)
def test_with_one_free_constant_no_mean_is_worse_than_the_other_simulators(name, run):
    metrics = MAKE.committed()[name]["result"]["metrics"]
    for metric, other in zip(("ttft_s.mean", "tpot_s.mean", "e2e_s.mean"), MAKE.OTHERS[run], strict=True):
        assert abs(metrics[metric]["error"]) <= abs(other)


@pytest.mark.parametrize("name", MAKE.COMMANDS)
def test_a_command_gives_its_committed_result_again(shared, name):
    kept, found = MAKE.committed()[name], MAKE.result_of(MAKE.COMMANDS[name], str(shared))
    assert found["command"] == kept["command"]
    if name.startswith("measured"):
        for metric, row in kept["result"]["metrics"].items():
            assert found["result"]["metrics"][metric] == pytest.approx(row, abs=2e-4, rel=2e-4)
    else:  # solvers end where their libraries' rounding leads them
        for metric, errors in kept["result"]["held_out"].items():
            again = found["result"]["held_out"][metric]
            assert again["points"] == errors["points"]
            assert again["median"] == pytest.approx(errors["median"], abs=0.01)


def test_the_documentation_shows_the_published_figures():
    page = (ROOT / "docs/validation.md").read_text(encoding="utf-8")
    assert PUBLISHED.table(STUDIES) in page, "python results/validation/published.py prints the tables"


@pytest.mark.parametrize("name", PUBLISHED.STUDIES)
def test_a_published_study_gives_its_committed_result_again(name):
    study, variants = PUBLISHED.STUDIES[name]
    for variant in variants:
        found = study(variant, 0)
        for quantity, kept in STUDIES["studies"][name]["variants"][str(variant)].items():
            spread = (kept["high"] - kept["low"]) * 10**0.5  # of single runs, not of their mean
            assert found[quantity] == pytest.approx(kept["mean"], abs=2 * spread + 1e-3 * kept["mean"])


def test_the_watermark_acts_as_published():
    rows = STUDIES["studies"]["vLLM's watermark"]["variants"]
    counts = [row["preemptions"]["mean"] for row in rows.values()]
    assert counts == sorted(counts, reverse=True)
    for row in rows.values():
        assert row["preemptions"]["mean"] == pytest.approx(row["preemptions"]["published"], rel=0.2)
        assert row["output tokens/s"]["mean"] == pytest.approx(row["output tokens/s"]["published"], rel=0.03)
    rates = {share: row["output tokens/s"]["mean"] for share, row in rows.items()}
    assert max(rates, key=rates.get) == "0.05"  # as measured: neither none nor much


def test_what_is_reserved_decides_how_many_run_as_published():
    rows = STUDIES["studies"]["what is reserved"]["variants"]
    running = {rule: row["running"]["mean"] for rule, row in rows.items()}
    assert running["Orca (Max)"] == 15_700 // 2_048
    assert running["Orca (Max)"] < running["Orca (Pow2)"] < running["Orca (Oracle)"] < running["vLLM"]
    assert 1.5 < running["vLLM"] / running["Orca (Oracle)"] < 2.5
    assert 3 < running["vLLM"] / running["Orca (Max)"] < 5
    for row in rows.values():
        assert row["used of reserved"]["mean"] == pytest.approx(row["used of reserved"]["published"], abs=0.03)


def test_letting_in_what_does_not_fit_costs_as_published():
    rows = STUDIES["studies"]["TensorRT-LLM's policies"]["variants"]
    calm, greedy = rows["GUARANTEED_NO_EVICT"], rows["MAX_UTILIZATION"]
    assert calm["output tokens/s"]["mean"] == pytest.approx(calm["output tokens/s"]["published"], rel=0.15)
    assert -0.7 < greedy["output tokens/s"]["mean"] / calm["output tokens/s"]["mean"] - 1 < -0.25  # -0.40
    assert greedy["TPOT p99 (ms)"]["mean"] > 2 * calm["TPOT p99 (ms)"]["mean"]
    assert greedy["TTFT p50 (s)"]["mean"] < calm["TTFT p50 (s)"]["mean"]
