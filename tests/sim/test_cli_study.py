"""The verbs that only read a study: what they print, their exit codes, what they load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sim import metrics
from sim.cli import main


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["slotsim", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    printed = capsys.readouterr()
    return int(left.value.code or 0), printed.out, printed.err


@pytest.fixture
def slotsim(capsys, monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


def test_validate_says_what_a_study_is(slotsim) -> None:
    code, out, err = slotsim("validate", "quickstart")
    assert (code, err) == (0, "")
    assert all(word in out for word in ("fixed-32k", "progressive", "adaptive", "baseline", "qwen3-32b", "KV tokens"))
    code, out, _ = slotsim("validate", "quickstart", "--json", "-s", "server.kv_tokens=200k", "--seed", "3")
    said = json.loads(out)
    assert (code, said["seed"]) == (0, 3)
    assert {arm["kv_tokens"] for arm in said["arms"].values()} == {200_000}


def test_validate_prints_all_faults_and_exits_with_2(slotsim) -> None:
    Path("bad.toml").write_text('schema = 1\nnmae = "x"\n[run]\nhorizon = -5\n')
    code, out, err = slotsim("validate", "bad.toml")
    assert (code, out) == (2, "")
    assert "error: bad.toml:2: nmae: unknown key - did you mean 'name'?" in err
    assert "error: bad.toml:4: run.horizon: must be greater than 0, got -5" in err


def test_validate_reads_the_trace(slotsim) -> None:
    code, _, err = slotsim("validate", "azure-trace")
    assert code == 2
    assert "--set workload.path=" in err
    Path("trace.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    code, _, err = slotsim("validate", "azure-trace", "--set", "workload.path=trace.csv")
    assert code == 2
    assert "trace.csv" in err
    assert list(Path().iterdir()) == [Path("trace.csv")]


def test_a_run_that_fails_leaves_nothing_behind(slotsim) -> None:
    Path("trace.csv").write_text("")
    code, out, err = slotsim("compare", "azure-trace", "--set", "workload.path=trace.csv")
    assert (code, out) == (2, "")
    assert "trace.csv" in err
    assert list(Path().iterdir()) == [Path("trace.csv")]


def test_init_writes_a_bundled_study_once(slotsim) -> None:
    assert "quickstart" in slotsim("init", "--list")[1]
    assert slotsim("init", "--template", "quickstart", "-o", "mine.toml")[:2] == (0, "mine.toml\n")
    assert slotsim("validate", "mine.toml")[0] == 0
    code, _, err = slotsim("init", "--template", "quickstart", "-o", "mine.toml")
    assert (code, "mine.toml: cannot be written: File exists" in err) == (2, True)
    code, out, err = slotsim("init", "--template", "quikstart")
    assert (code, out, "did you mean 'quickstart'?" in err) == (2, "", True)
    assert slotsim("init")[0] == 2
    assert slotsim("init", "--template", "quickstart")[1] == Path("mine.toml").read_text()


def test_schema_is_json(slotsim) -> None:
    code, out, _ = slotsim("schema")
    assert code == 0
    assert "server" in json.loads(out)["properties"]


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("gpus", "h100"),
        ("models", "qwen3-32b"),
        ("engines", "vllm-0.33"),
        ("policies", "adaptive"),
        ("metrics", "makespan_s"),
    ],
)
def test_list(slotsim, what: str, name: str) -> None:
    code, out, _ = slotsim("list", what)
    assert (code, name in out) == (0, True)
    rows = json.loads(slotsim("list", what, "--json")[1])
    assert name in [row["name"] for row in rows]


def test_list_nothing(slotsim) -> None:
    code, _, err = slotsim("list", "gpu")
    assert code == 2
    assert "did you mean 'gpus'?" in err


def test_the_metrics_of_the_contract_are_listed() -> None:
    statistics = ("mean", "p50", "p90", "p95", "p99")
    durations = [f"request.{d}" for d in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")] + ["call.e2e_s"]
    others = [
        "running.mean",
        "running.max",
        "waiting.mean",
        "kv.reserved_share.mean",
        "kv.used_share.mean",
        "kv.overreservation",
        "call.attempts.mean",
        "call.reserved_token_s.mean",
        "truncated.first_share",
        "truncated.final_share",
        "tokens.wasted_share",
        "tokens.output_per_s",
        "prefix.hit_rate",
        "refused_share",
        "preemptions_per_request",
        "slo.attainment",
        "slo.goodput_per_s",
        "makespan_s",
    ]
    assert set(metrics.METRICS) >= {f"{d}.{s}" for d in durations for s in statistics} | set(others)
    assert all(metric.name == name for name, metric in metrics.METRICS.items())


def test_checking_a_drawn_study_loads_no_tables_and_no_plots() -> None:
    program = (
        "import sys; sys.argv = ['slotsim', 'validate', 'quickstart']\n"
        "from sim.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split("LOADED", 1)[1].split())
    assert not loaded & {"pandas", "matplotlib", "pyarrow", "simpy", "scipy.stats"}


def test_every_verb_says_what_it_is_for_on_one_line(slotsim) -> None:
    for group in ((), ("trace",), ("estimator",)):
        code, out, _ = slotsim(*group, "-h")
        assert code == 0
        verbs = out.split("Commands:\n", 1)[1].splitlines()
        assert verbs
        assert all(line.endswith(".") and not line.endswith("...") for line in verbs if line), verbs


def test_bundled_studies_are_told_of_in_a_sentence(slotsim) -> None:
    lines = slotsim("init", "--list")[1].splitlines()
    assert all(line[-1] in ".?" for line in lines)


def test_json_and_csv_exclude_each_other(slotsim) -> None:
    code, out, err = slotsim("compare", "quickstart", "--json", "--csv")
    assert (code, out, err) == (2, "", "error: --csv: prints one thing and nothing else: not together with --json\n")


def test_an_interrupt_leaves_nothing_and_says_nothing(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from sim.cli import main; main()"]
    command = [*program, "compare", "quickstart", "-j", "2", "-o", "out", "--set", "run.horizon=1000h"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = subprocess.Popen(command, cwd=tmp_path, text=True, start_new_session=True, **streams)
    while not list(tmp_path.iterdir()):  # its folder is made, so it has begun
        assert running.poll() is None
        time.sleep(0.05)
    time.sleep(1.0)  # into whatever it does next
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate()
    assert (running.returncode, out, err.strip()) == (130, "", "")
    assert not list(tmp_path.iterdir())
