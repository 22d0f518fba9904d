"""Statistics of recordings: the handed data's published figures, and intervals that cover."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from workloads.describe import describe, lengths, share_interval, verdict
from workloads.readers import read_recording
from workloads.substreams import generator

WEKA = "weka-claude-code/weka_sessions_dev.jsonl.gz"
# file -> (requests, rate, CV, prompt p50/p90/p99/max, output p50/p90/p99/max); None is not published
PUBLISHED = {
    "azure/AzureLLMInferenceTrace_conv.csv": (
        19_366,
        5.53,
        1.09,
        (1_020, 2_734, 4_142, 14_050),
        (129, 424, 601, 1_000),
    ),
    "mooncake/synthetic_trace.jsonl": (3_993, 3.907, 1.011, (11_587, None, None, None), (69, None, None, 893)),
    "servegen/raw/deepseek-r1_clients.tar.xz": (1_383_669, None, None, (None,) * 4, (792, None, 12_607, 32_768)),
}


@pytest.mark.parametrize("file", PUBLISHED)
def test_the_handed_files_have_their_published_statistics(shared, file: str) -> None:
    """Counts and percentiles to the rounding of the figures, rates and CVs to the digits given."""
    requests, rate, cv, *columns = PUBLISHED[file]
    found = describe(read_recording(shared / "data/files" / file))
    json.dumps(found, allow_nan=False)
    assert found["requests"] == requests
    if rate is not None:
        assert found["rate_per_s"] == pytest.approx(rate, abs=0.005)
        assert found["interarrival_cv"] == pytest.approx(cv, abs=0.005)
    for column, expected in zip(("prompt_tokens", "output_tokens"), columns, strict=True):
        for key, value in zip(("p50", "p90", "p99", "max"), expected, strict=True):
            if value is not None:
                assert found[column][key] == pytest.approx(value, rel=2e-4)


def test_claude_code_sessions_have_their_published_statistics(shared) -> None:
    recording = read_recording(shared / "data/files" / WEKA)
    kinds = np.array(recording.trace.kind.strings())
    main = recording.trace.take(kinds != "subagent")
    assert len(main) == 22_368
    assert (kinds == "subagent").sum() == 524
    prompt, output = lengths(main.prompt_tokens), lengths(main.output_tokens)
    for found, expected in ((prompt, (106_444, 225_496, 456_964, 880_502)), (output, (222, 891, 3_633, 18_195))):
        assert [found[key] for key in ("p50", "p90", "p99", "max")] == pytest.approx(expected, rel=1e-4)
    shares = [(main.output_tokens > cap).mean() for cap in (4_000, 5_000, 8_000, 32_000)]
    assert shares == pytest.approx([0.0084, 0.0047, 0.00085, 0.0], abs=6e-5)
    _, sizes = np.unique(main.session, return_counts=True)
    assert [lengths(sizes)[key] for key in ("p50", "p90", "p99", "max")] == pytest.approx([42, 148, 316, 439], abs=1)
    per_session = [main.take(main.session == name) for name in np.unique(main.session)[:40]]
    assert all((np.diff(session.session_s) >= 0).all() for session in per_session)


@pytest.mark.parametrize(
    ("file", "verdicts"),
    [
        ("azure/AzureLLMInferenceTrace_conv.csv", ["holds", "holds"]),
        ("mooncake/synthetic_trace.jsonl", ["holds", "holds"]),
        (WEKA, ["holds", "holds"]),
        ("servegen/raw/deepseek-r1_clients.tar.xz", ["fails", "undecided"]),
    ],
)
def test_the_premises_of_the_design_documents(shared, file: str, verdicts: list[str]) -> None:
    """They hold for chat and Claude Code, not for a reasoning model; 73 clients are too few to be sure of 2.7 %."""
    assert list(describe(read_recording(shared / "data/files" / file))["premises"].values()) == verdicts


def test_a_share_interval_covers_also_where_sessions_are_alike() -> None:
    """300 draws of 60 clusters with shares from a beta law: 95 % intervals cover the mean share in at least 90 %."""
    covered = 0
    for seed in range(300):
        draw = generator(seed, "cover")
        shares = draw.beta(1.0, 19.0, 60)
        members = np.repeat(np.arange(60), draw.integers(5, 60, 60))
        hits = draw.random(len(members)) < shares[members]
        _, low, high = share_interval(hits, clusters=members)
        covered += low <= 0.05 <= high
    assert covered >= 270


def test_without_clusters_the_interval_is_the_exact_binomial_one() -> None:
    hits = np.arange(100) < 5
    assert share_interval(hits) == pytest.approx((0.05, 0.016432, 0.112835), abs=1e-6)
    assert share_interval(np.zeros(100, bool))[1:] == pytest.approx((0.0, 1 - 0.025 ** (1 / 100)), rel=1e-9)


@pytest.mark.parametrize(
    ("low", "high", "word"), [(0, 0.009, "holds"), (0.02, 0.1, "fails"), (0.009, 0.011, "undecided")]
)
def test_verdicts(low: float, high: float, word: str) -> None:
    assert verdict(low, high) == word


def test_percentiles_count_weights() -> None:
    values = np.array([10, 20, 30])
    assert lengths(values, np.array([98.0, 1.0, 1.0])) == {
        "mean": pytest.approx(10.3),
        "p50": 10,
        "p90": 10,
        "p99": 20,
        "max": 30,
    }
    assert lengths(np.zeros(3, np.int64)) is None


def test_the_command_prints_only_json(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,6\n1,5,9000\n")
    command = [
        sys.executable,
        "-c",
        "from sim.cli import main; main()",
        "trace",
        "describe",
        str(path),
        "--json",
        "-o",
        str(tmp_path / "plots"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["output_tokens"]["share_above"]["8000"] == 0.5
    assert sorted(file.name for file in (tmp_path / "plots").iterdir()) == ["arrivals.png", "lengths.png"]
    shown = subprocess.run(command[:-3], capture_output=True, text=True, check=True).stdout
    for part in ("requests", "answers longer than", "8,000    50.000%", "fails      99 % of answers"):
        assert part in shown
    nowhere = subprocess.run([*command[:-1], str(path / "under-a-file")], capture_output=True, text=True, check=False)
    assert nowhere.returncode == 2
    assert "cannot be made" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,x\n")
    failed = subprocess.run(command[:-2], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert failed.stderr == f"error: {path}:2: output_tokens: must be a whole number of tokens, at least 0, got 'x'\n"
