"""Calibration: what was put in comes out, load-test files are read, and real tables are met on rows held out."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sim.calibrate import Point, calibrate_log, calibrate_points, read_points
from sim.calibrate.fit import FAMILIES, errors_of
from sim.calibrate.points import Given
from sim.calibrate.steady import Clients, closed_loop
from sim.calibrate.write import to_json, to_toml
from sim.cli import app, main
from sim.clock import Clock
from sim.hardware import GPUS, MODELS
from sim.loadtest import Passage
from sim.measured import replay
from sim.replica.admission import Prompt
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replica.work import Work
from sim.steptime import STEP_TIMES, Calibrated, Line, Roofline
from workloads.errors import BadInput

TRUTH = Line(0.012, 1.5e-4, 2e-8, 4e-5)
NOBODY = Clients(first_s=0.0, together=0.0)


def server_with(step_time, seqs=256, budget=8_192, kv_tokens=10**7) -> Server:
    return Server(Prompt(), step_time, kv_tokens, 50_000, 16, seqs, budget, chunked_prefill=True)


def simulated_closed_loop(step_time, concurrency: int, prompt: int, output: int, kv_tokens: int) -> tuple[float, float]:
    """Return mean TTFT and TPOT of clients that start one after the other and send requests of nearly equal length."""
    clock = Clock()
    replica = Replica(clock, server_with(step_time, kv_tokens=kv_tokens))
    rng = np.random.default_rng(7)
    done: list[Work] = []

    def client(number: int):
        yield clock.timeout(number * 0.3)
        for _ in range(6):
            answered = clock.event()
            length = int(rng.integers(output - output // 5, output + output // 5 + 1))
            replica.submit(prompt, length, length, answered.succeed)
            work = yield answered
            done.append(work)

    for number in range(concurrency):
        clock.process(client(number))
    clock.run()
    middle = sorted(done, key=lambda w: w.submitted_s)[len(done) // 3 : -len(done) // 4]
    ttft = np.mean([w.first_token_s - w.submitted_s for w in middle])
    tpot = np.mean([(w.finished_s - w.first_token_s) / (w.max_tokens - 1) for w in middle])
    return float(ttft), float(tpot)


@pytest.mark.parametrize(
    ("step_time", "concurrency", "prompt", "output", "kv_tokens"),
    [
        (TRUTH, 1, 500, 200, 10**7),
        (TRUTH, 16, 1_000, 300, 10**7),
        (TRUTH, 64, 2_000, 400, 10**7),
        (Roofline(GPUS["h100"], MODELS["llama-3.1-8b"]), 32, 4_000, 300, 10**7),
        (TRUTH, 40, 1_000, 300, 30_000),  # the pool holds 26 of them
    ],
)
def test_the_closed_loop_formula_meets_the_simulation(step_time, concurrency, prompt, output, kv_tokens):
    ttft, tpot = closed_loop(step_time, concurrency, prompt, output, kv_tokens=kv_tokens, clients=NOBODY)
    simulated_ttft, simulated_tpot = simulated_closed_loop(step_time, concurrency, prompt, output, kv_tokens)
    assert tpot == pytest.approx(simulated_tpot, rel=0.06)
    assert ttft == pytest.approx(simulated_ttft, rel=0.25)


def test_one_client_waits_for_its_prompt_and_its_steps():
    line = Line(0.01, 0.0, 0.0, 1e-4)
    ttft, tpot = closed_loop(line, 1, 1_000, 100, clients=Clients(first_s=0.5, together=0.0))
    assert tpot == pytest.approx(0.01)
    assert ttft == pytest.approx(0.5 + 0.01 / 2 + 0.01 + 1_000 * 1e-4)


def points_of(build, kinds=(None, None, None), noise=0.0) -> list[Point]:
    gpu, model, weights = kinds
    rng = np.random.default_rng(3)
    points = []
    for concurrency, prompt, output in product((1, 4, 16, 64, 128), (256, 2_048, 8_000), (128, 1_024)):
        for gpus in (1, 2, 4) if gpu else (1,):
            point = Point(concurrency, prompt, output, 1.0, 1.0, gpu, model, gpus, weights)
            ttft, tpot = closed_loop(build(point), concurrency, prompt, output, clients=Clients(0.02, 0.1))
            factor = np.exp(rng.normal(0, noise, 2))
            points.append(replace(point, ttft_s=ttft * factor[0], tpot_s=tpot * factor[1]))
    return points


def test_a_line_put_in_comes_out():
    found = calibrate_points(points_of(lambda point: TRUTH))
    assert found.kind == "line"
    for name, (value, low, high) in found.constants.items():
        truth = getattr(TRUTH, name)
        assert value == pytest.approx(truth, rel=0.02)
        assert low <= truth * 1.02
        assert high >= truth * 0.98
    assert found.held_out["tpot"].median < 1e-3
    assert found.clients["together"] == pytest.approx(0.1, abs=0.01)
    assert found.covers["running"] == (1, 128)
    assert found.covers["request_tokens"] == (384, 9_024)


def test_a_roofline_put_in_predicts_what_was_held_out():
    constants = {"mfu": 0.5, "attention_mfu": 0.3, "bandwidth_efficiency": 0.7, "layer_s": 4e-5}

    def build(point):
        return Roofline(point.gpu, point.model, point.tensor_parallel, **constants)

    points = points_of(build, (GPUS["h100"], MODELS["llama-3.1-8b"], None), noise=0.02)
    found = calibrate_points(points, kv_tokens=10**9)
    assert found.kind == "roofline"
    assert found.held_out["tpot"].median < 0.02
    for name in ("mfu", "bandwidth_efficiency"):
        assert found.values[name] == pytest.approx(constants[name], rel=0.1)


def a_log(step_time, requests=400, seed=0, rate=6.0, kv_tokens=10**7) -> Passage:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, requests))
    prompts = rng.integers(50, 3_000, requests)
    outputs = rng.integers(1, 600, requests)
    nothing = np.zeros(requests)
    asked = Passage(prompts, outputs, arrivals - arrivals[0], nothing, nothing, nothing)
    return replay(asked, server_with(step_time, 64, 2_048, kv_tokens))[0]


def test_a_log_of_a_line_gives_the_line_back():
    found = calibrate_log(a_log(TRUTH, rate=3.0), max_num_seqs=64, budget=2_048)
    again = Line(**found.values)  # constants that rise and fall together are told apart only in part: judge their sum
    for decodes, chunks in ((8, []), (16, []), (24, []), (16, [(1_500, 0)])):
        truth, _, _ = TRUTH.segment(decodes, decodes * 1_800, chunks)
        assert again.segment(decodes, decodes * 1_800, chunks)[0] == pytest.approx(truth, rel=0.05)
    assert found.held_out["tpot"].median < 0.01
    assert found.held_out["e2e"].median < 0.02
    assert found.kv_is_at_least


def test_a_full_pool_shows_in_the_log():
    found = calibrate_log(a_log(TRUTH, kv_tokens=30_000), max_num_seqs=64, budget=2_048)
    assert not found.kv_is_at_least
    assert found.kv_tokens == pytest.approx(30_000, rel=0.15)


def test_too_little_data_is_refused():
    with pytest.raises(BadInput, match="requests with more than one token of output: at least 20 are needed"):
        calibrate_log(a_log(TRUTH, requests=12))
    few = points_of(lambda point: TRUTH)[:3]
    with pytest.raises(BadInput, match="3 load tests are too few to fit 4 constants of a line"):
        calibrate_points(few)
    with pytest.raises(BadInput, match="a roofline needs the GPU and the model"):
        calibrate_points(points_of(lambda point: TRUTH), "roofline")


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)), min_size=1))
@settings(max_examples=30)
def test_errors_are_relative(pairs):
    ours, theirs = zip(*pairs, strict=True)
    found = errors_of(ours, theirs)
    relative = [a / b - 1 for a, b in pairs]
    assert found.median == pytest.approx(np.median(np.abs(relative)))
    assert found.bias == pytest.approx(np.median(relative))


VLLM = {
    "backend": "vllm",
    "max_concurrency": 16,
    "completed": 100,
    "total_input_tokens": 102_400,
    "total_output_tokens": 12_800,
    "mean_ttft_ms": 120.0,
    "mean_tpot_ms": 11.0,
}
AIPERF = {
    "input_config": {"loadgen": {"concurrency": 16}},
    "time_to_first_token": {"unit": "ms", "avg": 120.0},
    "inter_token_latency": {"unit": "ms", "avg": 11.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1_024.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
}


def _mean(value):
    return {"successful": {"mean": value}, "total": {"mean": -1}}


GUIDELLM = {
    "benchmarks": [
        {
            "metrics": {
                "request_concurrency": _mean(15.8),
                "prompt_token_count": _mean(1_024.2),
                "output_token_count": _mean(128),
                "time_to_first_token_ms": _mean(120.0),
                "inter_token_latency_ms": _mean(11.0),
            }
        }
    ]
}


@pytest.mark.parametrize("document", [VLLM, AIPERF, GUIDELLM], ids=["vllm", "aiperf", "guidellm"])
def test_result_files_of_load_generators_give_a_point(tmp_path, document):
    (tmp_path / "result.json").write_text(json.dumps(document))
    (point,) = read_points([tmp_path], Given(GPUS["h100"], MODELS["qwen3-8b"], 2))
    assert (point.concurrency, point.prompt_tokens, point.output_tokens) == (16, 1_024, 128)
    assert (point.ttft_s, point.tpot_s) == (0.12, 0.011)
    assert (point.gpu, point.tensor_parallel) == (GPUS["h100"], 2)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (VLLM | {"max_concurrency": None}, "result.json: max_concurrency: is missing: a number above 0"),
        (AIPERF | {"time_to_first_token": {"avg": -1}}, "time_to_first_token.avg: is -1: a number above 0"),
        ({"benchmarks": [{}]}, "benchmarks.0: has no metrics"),
        ({"x": 1}, "is no result of a load generator that is known"),
        ([], "is no result of a load generator that is known"),
    ],
)
def test_result_files_that_cannot_be_used_say_why(tmp_path, document, message):
    (tmp_path / "result.json").write_text(json.dumps(document))
    with pytest.raises(BadInput, match=message):
        read_points([tmp_path / "result.json"])


def test_tables_are_read_with_their_units_and_filters(tmp_path):
    table = tmp_path / "load.csv"
    table.write_text(
        "engine,concurrency,isl,osl,ttft_s,mean_tpot_ms,system,tp,precision\n"
        "vllm,4,1024,128,0.1,9,H100_SXM,2,fp8_block\nsglang,8,1024,128,,9,h100,2,\n"
    )
    first, second = read_points([table])
    assert (first.ttft_s, first.tpot_s) == pytest.approx((0.1, 0.009))
    assert (first.gpu, first.tensor_parallel, first.weights) == (GPUS["h100"], 2, "fp8")
    assert (second.ttft_s, second.weights) == (None, None)
    assert [p.concurrency for p in read_points([table], where={"engine": "sglang"})] == [8]
    with pytest.raises(BadInput, match="no load test is left"):
        read_points([table], where={"engine": "x"})
    with pytest.raises(BadInput, match=r"load.csv:1: engin: column is missing - did you mean 'engine'"):
        read_points([table], where={"engin": "x"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("concurrency,isl,tpot_ms\n1,1,1\n", r"t.csv:1: no column for output_tokens: one of output_tokens, osl"),
        ("concurrency,isl,osl,tpot\n1,1,1,1\n", r"t.csv:1: no column for tpot: one of tpot_s, tpot_ms"),
        ("concurrency,isl,osl,tpot_ms\n0,1,1,1\n", r"t.csv:2: concurrency: is '0': a whole number >= 1"),
        (
            "concurrency,isl,osl,tpot_ms\n1,1,1,nan\n2,x,1,1\n",
            r"t.csv:2: tpot_ms: is 'nan'[^\n]*\n.*t.csv:3: isl: is 'x'",
        ),
        ("concurrency,isl,osl,tpot_ms,gpu\n1,1,1,1,h1000\n", r"t.csv:2: gpu: unknown GPU 'h1000'"),
        ("concurrency,isl,osl,tpot_ms,precision\n1,1,1,1,fp7\n", r"t.csv:2: precision: is 'fp7': one of bf16"),
        ("", r"t.csv:1: no column for concurrency"),
    ],
)
def test_tables_that_cannot_be_used_say_why(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_points([tmp_path / "t.csv"])


def test_a_written_calibration_is_read_back(tmp_path):
    found = calibrate_points(points_of(lambda point: TRUTH))
    path = tmp_path / "model.toml"
    provenance = {"engine": "vLLM", "version": "0.19", "hardware": "h100", "date": "2026-11-30", "source": 'a "file"'}
    path.write_text(to_toml(found, provenance))
    model = Calibrated(str(path), GPUS["h100"], MODELS["qwen3-8b"])
    assert model.segment(8, 8_000, [(100, 0)])[0] == pytest.approx(TRUTH.segment(8, 8_000, [(100, 0)])[0], rel=0.02)
    assert (model.provenance.engine, model.provenance.date) == ("vLLM", "2026-11-30")
    assert 'a "file"' in model.provenance.source
    assert model.provenance.outside({"running": (1, 100)}) == []
    assert model.provenance.outside({"running": (1, 300)}) == [
        "running of 1 to 300 leave the 1 to 128 that the step times were measured at"
    ]
    json.dumps(to_json(found), allow_nan=False)
    assert STEP_TIMES["calibrated"] is Calibrated


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "model.toml: is no TOML"),
        ("kind = 'table'", r"kind: is 'table': one of line, roofline\n.*constants: is missing"),
        ("kind = 'line'\n[constants]\nbase_s = 'x'", "constants.base_s: is 'x': a number"),
        ("kind = 'line'\n[constants]\nbase_s = -1", "base_s: must be >= 0, got -1"),
        ("kind = 'line'\n[constants]\nbase = 1", "constants: .*unexpected keyword argument 'base'"),
        (
            "kind = 'line'\n[constants]\nbase_s = 1\n[covers]\nrunning = 3",
            r"covers.running: is 3: \[smallest, largest\]",
        ),
    ],
)
def test_a_calibration_that_cannot_be_used_says_why(tmp_path, text, message):
    (tmp_path / "model.toml").write_text(text)
    with pytest.raises(BadInput, match=message):
        Calibrated(str(tmp_path / "model.toml"), GPUS["h100"], MODELS["qwen3-8b"])


SILICON = "data/files/aiconfigurator/silicon_dev_llama_h100_h200.csv.gz"
GROUPS = [
    ("h100_sxm", "vllm", 45),
    ("h200_sxm", "vllm", 60),
    ("h100_sxm", "trtllm", 177),
    ("h200_sxm", "trtllm", 72),
    ("h200_sxm", "sglang", 46),
]


@pytest.mark.parametrize(("system", "backend", "rows"), GROUPS)
def test_silicon_is_met_on_the_half_held_out(shared, system, backend, rows):
    result = CliRunner().invoke(
        app,
        ["calibrate", str(shared / SILICON), "--where", f"system={system}", "--where", f"backend={backend}", "--json"],
        catch_exceptions=False,
    )
    held_out = json.loads(result.stdout)["held_out"]
    assert held_out["tpot"]["points"] == rows // 2
    assert held_out["tpot"]["median"] <= 0.15
    if backend == "vllm":
        assert held_out["ttft"]["median"] <= 0.25


def test_real_logs_are_met(shared, tmp_path):
    runs = shared / "data/files/llmservingsim/bench_examples/RTXPRO6000"
    for name in ("Llama-3.1-8B", "Qwen3-32B"):
        options = [
            "--max-num-seqs",
            "128",
            "--max-num-batched-tokens",
            "2048",
            "-o",
            str(tmp_path / f"{name}.toml"),
            "--json",
        ]
        result = CliRunner().invoke(app, ["calibrate", str(runs / name / "vllm"), *options], catch_exceptions=False)
        found = json.loads(result.stdout)
        assert found["held_out"]["tpot"]["median"] < 0.05
        assert found["held_out"]["e2e"]["median"] < 0.05
        assert found["kv_is_at_least"]  # the pool never bound in these runs
        assert Calibrated(str(tmp_path / f"{name}.toml"), GPUS["h100"], MODELS["qwen3-8b"]).segment(1, 100)[0] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--where", "x"], "--where: is 'x': COLUMN=VALUE"),
        (["--kind", "linear"], "--kind: is 'linear': one of roofline, line - did you mean 'line'"),
        (["--weights", "fp9"], "--weights: is 'fp9'"),
        (["--gpu", "h10"], "--gpu: unknown GPU 'h10'"),
        (["--kind", "roofline"], "a roofline needs the GPU and the model"),
        (["-o", "absent/model.toml"], "absent/model.toml: -o: cannot be written"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, options, message):
    rows = [
        f"{p.concurrency},{p.prompt_tokens},{p.output_tokens},{p.ttft_s},{p.tpot_s}" for p in points_of(lambda p: TRUTH)
    ]
    Path(tmp_path / "t.csv").write_text("concurrency,isl,osl,ttft_s,tpot_s\n" + "\n".join(rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["slotsim", "calibrate", "t.csv", *options])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_families_name_models_of_studies():
    assert set(FAMILIES) <= set(STEP_TIMES)
