"""Measured runs: the replay equals an independent per-step loop, the real ones are met, and bad ones are refused."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sim.cli import app, main
from sim.hardware import MODELS
from sim.loadtest import Passage
from sim.measured import compare, degree_of, gpu_of, read_run, replay, server_of
from sim.replica.admission import Prompt
from sim.replica.server import Server
from sim.steptime import Line, Profile, StepTime
from workloads.errors import BadInput

from .profiles import COARSE, grid, write_profile

RUNS = "data/files/llmservingsim/bench_examples/RTXPRO6000"
PROFILES = "data/files/llmservingsim/profiler/perf/RTXPRO6000"


def step_by_step(
    requests: Sequence[tuple[float, int, int]], step_time: StepTime, max_num_seqs: int, budget: int
) -> list[tuple[float, float, float]]:
    """Return when each request was scheduled, brought its first token and its last, if KV never runs out."""
    now, arrived, waiting, running = 0.0, 0, deque[int](), list[int]()
    computed, made = [0] * len(requests), [0] * len(requests)
    times = [[0.0, 0.0, 0.0] for _ in requests]
    while arrived < len(requests) or waiting or running:
        if not waiting and not running:
            now = max(now, requests[arrived][0])
        while arrived < len(requests) and requests[arrived][0] <= now:
            waiting.append(arrived)
            arrived += 1
        decoding = [r for r in running if computed[r] == requests[r][1]]
        left = budget - len(decoding)
        pieces = []
        for r in running:
            if computed[r] < requests[r][1]:
                pieces.append((r, min(left, requests[r][1] - computed[r])))
                left -= pieces[-1][1]
        while waiting and len(running) < max_num_seqs and left > 0:
            r = waiting.popleft()
            running.append(r)
            times[r][0] = now
            pieces.append((r, min(left, requests[r][1])))
            left -= pieces[-1][1]
        context = sum(requests[r][1] + made[r] for r in decoding)
        now += step_time.segment(len(decoding), context, [(tokens, computed[r]) for r, tokens in pieces])[0]
        for r in decoding:
            made[r] += 1
        for r, tokens in pieces:
            computed[r] += tokens
            if computed[r] == requests[r][1]:
                made[r] = 1
                times[r][1] = now
        for r in running:
            if made[r] == requests[r][2]:
                times[r][2] = now
        running = [r for r in running if made[r] < requests[r][2]]
    return [(a, b, c) for a, b, c in times]


def arrays(requests: Sequence[tuple[float, int, int]]) -> Passage:
    time, prompt, output = (np.array(column) for column in zip(*requests, strict=True))
    nothing = np.zeros(len(time))
    return Passage(prompt, output, time, nothing, nothing, nothing)


lists = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 900), st.integers(1, 60)), min_size=1, max_size=25)


@given(lists, st.sampled_from(["line", "profile", "measured"]), st.integers(1, 8), st.sampled_from([16, 64, 300]))
def test_a_replay_equals_a_loop_over_steps(tmp_path_factory, requests, kind, seqs, budget):
    folder = tmp_path_factory.getbasetemp() / "profile"
    if not folder.is_dir():
        write_profile(folder, grid(*COARSE))
    shape = replace(MODELS["llama-3.1-8b"], layers=2)
    models = {
        "line": lambda: Line(2**-7, 2**-10, 2**-16, 2**-12),
        "profile": lambda: Profile(str(folder), shape, step_s=0.001),
        "measured": lambda: Profile(str(folder), shape, step_s=0.001, mixed="measured"),
    }
    step_time = models[kind]()
    ordered = sorted((time / 128, prompt, output) for time, prompt, output in requests)
    server = Server(Prompt(), step_time, 10**6, 1_000, 16, seqs, budget, chunked_prefill=True)
    found, preemptions = replay(arrays(ordered), server)
    expected = np.array(step_by_step(ordered, step_time, seqs, budget))
    assert preemptions == 0
    stamps = np.column_stack([found.scheduled_s, found.first_token_s, found.last_token_s])
    np.testing.assert_allclose(stamps, expected, rtol=1e-9, atol=1e-9)


def test_metrics_are_their_definitions():
    passage = Passage(
        prompt_tokens=np.array([5, 5]),
        output_tokens=np.array([1, 11]),
        queued_s=np.array([0.0, 1.0]),
        scheduled_s=np.array([0.0, 1.5]),
        first_token_s=np.array([0.5, 2.0]),
        last_token_s=np.array([0.5, 4.0]),
    )
    found = passage.metrics()
    assert found["makespan_s"] == 4.0
    assert found["output_tokens_per_s"] == 3.0
    assert found["ttft_s.mean"] == 0.75
    assert found["tpot_s.mean"] == 0.2  # the one-token answer has none
    assert found["e2e_s.mean"] == 1.75
    assert found["running.mean"] == (0.5 + 2.5) / 4
    slower = replace(passage, last_token_s=np.array([0.5, 5.0]))
    assert compare(passage, slower)["makespan_s"] == {"measured": 4.0, "simulated": 5.0, "error": 0.25}


META = {
    "vllm_version": "0.19.0",
    "started_at": "2026-04-25T18:47:18Z",
    "engine_kwargs": {
        "model": "meta-llama/Llama-3.1-8B",
        "tensor_parallel_size": 1,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
    },
}
ROW = {
    "request_id": "a",
    "input_toks": 10,
    "output_toks": 4,
    "arrival_time": 1.7e9,
    "queued_ts": 50.0,
    "scheduled_ts": 50.5,
    "first_token_ts": 51.0,
    "last_token_ts": 52.0,
}


def write_run(folder: Path, rows: Sequence[object] = (ROW,), meta: object = META) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / "requests.jsonl").write_text(text + "\n")
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_a_run_is_read_in_the_order_of_its_queue(tmp_path):
    later = ROW | {"queued_ts": 49.0, "input_toks": 20}
    run = read_run(write_run(tmp_path, [ROW, later]))
    assert run.passage.prompt_tokens.tolist() == [20, 10]
    assert run.passage.queued_s.tolist() == [0.0, 1.0]
    assert (run.model.name, run.version, run.max_num_seqs, run.kv_tokens) == ("llama-3.1-8b", "0.19.0", 8, None)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROW | {"queued_ts": None}, r"requests.jsonl:2: queued_ts: is missing: seconds"),
        (ROW | {"queued_ts": "x"}, r"requests.jsonl:2: queued_ts: is 'x': seconds"),
        (
            ROW | {"first_token_ts": 50.25},
            r"requests.jsonl:2: first_token_ts: is 0.25 s before scheduled_ts: time runs back",
        ),
        (ROW | {"output_toks": 0}, r"requests.jsonl:2: output_toks: is 0: a whole number >= 1"),
        (ROW | {"input_toks": 1.5}, r"requests.jsonl:2: input_toks: is 1.5: a whole number >= 1"),
        (json.dumps(ROW).replace("51.0", "NaN"), r"requests.jsonl:2: first_token_ts: is nan: seconds"),
        ("{", r"requests.jsonl:2: is no JSON object"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, message):
    with pytest.raises(BadInput, match=message):
        read_run(write_run(tmp_path, [ROW, row, ROW | {"input_toks": 0}]))  # both rows' faults come together
    with pytest.raises(BadInput, match=r"requests.jsonl:3: input_toks: is 0"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ([], r"meta.json: is no JSON object"),
        ({"engine_kwargs": {}}, r"meta.json: engine_kwargs.model: is missing"),
        ({"engine_kwargs": {"model": "x/y"}}, r"meta.json: engine_kwargs.model: unknown model 'x/y'"),
        ({"engine_kwargs": META["engine_kwargs"] | {"max_num_seqs": 0}}, r"engine_kwargs.max_num_seqs: is 0: a whole"),
        ({"engine_kwargs": "x"}, r"meta.json: engine_kwargs: is 'x': an object"),
        (META | {"kv_cache": [1]}, r"meta.json: kv_cache: is \[1\]: an object"),
        (META | {"kv_cache": {"gpu_memory_utilization": 2}}, r"kv_cache.gpu_memory_utilization: is 2: a share above 0"),
        ({"engine_kwargs": META["engine_kwargs"] | {"data_parallel_size": 2}}, r"is 2: only runs of one replica"),
        ({"engine_kwargs": META["engine_kwargs"] | {"pipeline_parallel_size": 4}}, r"is 4: only runs of one replica"),
        ({"engine_kwargs": META["engine_kwargs"] | {"kv_cache_dtype": "int3"}}, r"kv_cache_dtype: is 'int3': auto, bf"),
    ],
)
def test_bad_meta_is_named(tmp_path, meta, message):
    with pytest.raises(BadInput, match=message):
        read_run(write_run(tmp_path, meta=meta))


def test_a_run_says_how_it_stored_and_computed(tmp_path):
    arguments = META["engine_kwargs"] | {"kv_cache_dtype": "fp8_e4m3", "quantization": "fp8"}
    told = META | {"engine_kwargs": arguments | {"enable_chunked_prefill": False}, "kv_cache": {"num_kv_tokens": 4_096}}
    run = read_run(write_run(tmp_path, meta=told))
    assert (run.kv, run.weights, run.chunked_prefill, run.kv_tokens) == ("fp8", "fp8", False, 4_096)
    assert not server_of(run, Line(0.01), None).chunked_prefill
    plain, small = read_run(write_run(tmp_path)), replace(run, kv_tokens=None)
    assert (plain.kv, plain.weights, plain.chunked_prefill) == ("bf16", None, True)
    gpu = gpu_of("RTX4090")
    pools = [server_of(one, Line(0.01), gpu).kv_tokens for one in (plain, replace(small, weights=None), small)]
    assert pools[1] == pytest.approx(2 * pools[0], abs=2)
    assert pools[2] > 1.5 * pools[1]  # half the weights leave room on a small GPU


def fails(monkeypatch, capsys, *arguments: str) -> str:
    """Return what the command says when it refuses."""
    monkeypatch.setattr("sys.argv", ["slotsim", "measured", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_model_that_the_catalogue_lacks_is_given(tmp_path, monkeypatch, capsys):
    model = MODELS["llama-3.1-8b"]
    config = {
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "intermediate_size": model.ffn,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": model.window,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    run = write_run(tmp_path / "run", meta={"engine_kwargs": META["engine_kwargs"] | {"model": "x/y"}})
    profile = write_profile(tmp_path / "perf", grid(*COARSE))
    command = [str(run), "--profile", str(profile), "--kv-tokens", "99"]
    told = []
    for named in (str(tmp_path / "config.json"), "llama-3.1-8b"):
        result = CliRunner().invoke(app, ["measured", *command, "--json", "--model", named])
        assert result.exit_code == 0
        told.append(json.loads(result.stdout)["metrics"])
    assert told[0] == told[1]
    assert "or give --model" in fails(monkeypatch, capsys, *command)
    assert "--model: unknown model 'x/z'" in fails(monkeypatch, capsys, *command, "--model", "x/z")


def test_a_profile_of_another_model_is_refused(tmp_path, monkeypatch, capsys):
    run = write_run(tmp_path / "run")
    profile = write_profile(tmp_path / "Qwen" / "Qwen3-8B" / "tp1", grid(*COARSE))
    said = fails(monkeypatch, capsys, str(run), "--profile", str(profile), "--kv-tokens", "99")
    assert "is a profile of qwen3-8b, the run served llama-3.1-8b" in said


def test_nothing_there_says_both_files(tmp_path):
    with pytest.raises(BadInput) as caught:
        read_run(tmp_path)
    assert [fault.file.name for fault in caught.value.faults] == ["meta.json", "requests.jsonl"]


def test_the_pool_is_the_given_one_else_the_recorded_one_else_the_memorys(tmp_path):
    step_time = Line(0.01)
    run = read_run(write_run(tmp_path, meta=META | {"kv_cache": {"block_size": 32, "num_gpu_blocks": 100}}))
    assert server_of(run, step_time, None, kv_tokens=99).kv_tokens == 99
    assert server_of(run, step_time, None).kv_tokens == 3_200
    assert server_of(run, step_time, None).block_tokens == 32
    bare = read_run(write_run(tmp_path))
    assert 35_000 < server_of(bare, step_time, gpu_of("perf/RTX4090/x")).kv_tokens < 60_000
    with pytest.raises(BadInput, match=r"the size of the KV pool is unknown: give --kv-tokens, or --gpu"):
        server_of(bare, step_time, None)
    with pytest.raises(BadInput, match=r"a request of 14 tokens does not fit into a KV pool of 13"):
        server_of(bare, step_time, None, kv_tokens=13)
    silent = read_run(write_run(tmp_path, meta={"engine_kwargs": {"model": "qwen3-8b"}}))
    with pytest.raises(
        BadInput, match=r"max_num_seqs: is missing: say it with --max-num-seqs\n.*max_num_batched_tokens"
    ):
        server_of(silent, step_time, None, kv_tokens=100)


def test_folders_tell_the_gpu_and_the_degree():
    gpu = gpu_of("/x/perf/RTXPRO6000/Qwen/Qwen3-32B/bf16/tp2")
    assert gpu is not None
    assert gpu.name == "rtx-pro-6000"
    assert gpu_of("/x/y") is None
    assert degree_of("/x/tp2/") == 2
    assert degree_of("/x/other") is None


def run_cli(*arguments: str | Path) -> dict[str, object]:
    result = CliRunner().invoke(app, ["measured", *map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("name", "profile", "options", "bounds"),
    [
        # as given: 3 ms a step, a link of 13.5 GB/s
        ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B/bf16/tp1", ("--step-overhead", "3ms"), (0.05, 0.10)),
        ("Qwen3-32B", "Qwen/Qwen3-32B/bf16/tp2", ("--step-overhead", "3ms", "--allreduce-gbps", "13.5"), (0.05, 0.10)),
        # the one free constant at its best, with mixed steps as measured
        (
            "Llama-3.1-8B",
            "meta-llama/Llama-3.1-8B/bf16/tp1",
            ("--step-overhead", "1ms", "--mixed", "measured"),
            (0.01, 0.04),
        ),
    ],
)
def test_the_real_runs_are_met(shared, name, profile, options, bounds):
    document = run_cli(shared / RUNS / name / "vllm", "--profile", shared / PROFILES / profile, *options)
    errors = {metric: abs(row["error"]) for metric, row in document["metrics"].items()}
    assert max(errors[metric] for metric in ("makespan_s", "tpot_s.mean", "e2e_s.mean")) < bounds[0]
    assert errors["ttft_s.mean"] < bounds[1]
    assert document["preemptions"] == 0


def test_a_tight_pool_preempts_and_ends(shared):
    run, profile = shared / RUNS / "Llama-3.1-8B/vllm", shared / PROFILES / "meta-llama/Llama-3.1-8B/bf16/tp1"
    tight = run_cli(run, "--profile", profile, "--kv-tokens", "30000")
    loose = run_cli(run, "--profile", profile, "--kv-tokens", "400000")
    assert tight["preemptions"] > 0 == loose["preemptions"]
    assert tight["metrics"]["makespan_s"]["simulated"] > loose["metrics"]["makespan_s"]["simulated"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--step-overhead", "3 parsecs"], "--step-overhead: must be a number, alone or as text with a unit"),
        (["--step-overhead=-1ms"], "--step-overhead: must be seconds >= 0, got -0.001"),
        (["--allreduce-latency", "20 parsecs"], "--allreduce-latency: must be a number, alone or as text with a unit"),
        (["--allreduce-latency=-1us"], "--allreduce-latency: must be seconds >= 0, got -1e-06"),
        (["--mixed", "both"], "--mixed: must be 'sum' or 'measured', got 'both'"),
        (["--gpu", "h1000"], "--gpu: unknown GPU 'h1000'"),
        ([], "the size of the KV pool is unknown"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, options, message):
    run = write_run(tmp_path / "run")
    profile = write_profile(tmp_path / "profile", grid(*COARSE))
    monkeypatch.setattr("sys.argv", ["slotsim", "measured", str(run), "--profile", str(profile), *options])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_profile_for_other_gpus_and_a_missing_link_are_refused(tmp_path, monkeypatch, capsys):
    two = META | {"engine_kwargs": META["engine_kwargs"] | {"tensor_parallel_size": 2}}
    run = write_run(tmp_path / "run", meta=two)
    for folder, message in (
        ("tp1", "is a profile for tensor parallel 1, the run used 2"),
        ("tp2", "--allreduce-gbps: needed with 2 GPUs"),
    ):
        profile = write_profile(tmp_path / folder, grid(*COARSE))
        monkeypatch.setattr(
            "sys.argv", ["slotsim", "measured", str(run), "--profile", str(profile), "--kv-tokens", "99"]
        )
        with pytest.raises(SystemExit):
            main()
        assert message in capsys.readouterr().err


def test_an_absent_run_is_missed_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder") as raised:
        read_run(tmp_path / "absent")
    assert len(raised.value.faults) == 1
