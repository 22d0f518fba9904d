"""Make the results of this folder again, and the tables of docs/validation.md from them.

``python results/validation/make.py`` runs every command (the handed data must lie in ``../shared`` or
``$SLOTSIM_SHARED``), writes one JSON file each, and prints the tables.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHARED = "../shared"
RUNS = f"{SHARED}/data/files/llmservingsim/bench_examples/RTXPRO6000"
PROFILES = f"{SHARED}/data/files/llmservingsim/profiler/perf/RTXPRO6000"
SILICON = f"{SHARED}/data/files/aiconfigurator/silicon_dev_llama_h100_h200.csv.gz"

LLAMA = ["measured", f"{RUNS}/Llama-3.1-8B/vllm", "--profile", f"{PROFILES}/meta-llama/Llama-3.1-8B/bf16/tp1"]
QWEN = ["measured", f"{RUNS}/Qwen3-32B/vllm", "--profile", f"{PROFILES}/Qwen/Qwen3-32B/bf16/tp2"]
LIMITS = ["--max-num-seqs", "128", "--max-num-batched-tokens", "2048"]
OTHERS = {"Llama-3.1-8B": (-0.040, -0.010, -0.018), "Qwen3-32B": (0.013, 0.008, 0.010)}
"""Mean TTFT, TPOT and E2E errors of the simulator whose data these are, from each run's ``validation/summary.txt``."""

COMMANDS: Mapping[str, Sequence[str]] = {
    "measured-llama-8b": [*LLAMA, "--step-overhead", "3ms"],
    "measured-llama-8b-fitted": [*LLAMA, "--step-overhead", "2.5ms"],
    "measured-llama-8b-mixed": [*LLAMA, "--step-overhead", "1.05ms", "--mixed", "measured"],
    "measured-qwen-32b": [*QWEN, "--step-overhead", "3ms", "--allreduce-gbps", "13.5"],
    "measured-qwen-32b-fitted": [*QWEN, "--step-overhead", "3ms", "--allreduce-gbps", "13"],
    "measured-qwen-32b-latency": [
        *QWEN,
        "--step-overhead",
        "3ms",
        "--allreduce-gbps",
        "14.4",
        "--allreduce-latency",
        "19.8us",
    ],
    "measured-qwen-32b-mixed": [*QWEN, "--step-overhead", "1.05ms", "--allreduce-gbps", "13.8", "--mixed", "measured"],
    "log-llama-8b": ["calibrate", f"{RUNS}/Llama-3.1-8B/vllm", *LIMITS],
    "log-qwen-32b": ["calibrate", f"{RUNS}/Qwen3-32B/vllm", *LIMITS],
    **{
        f"silicon-{gpu}-{engine}": [
            "calibrate",
            SILICON,
            "--where",
            f"system={gpu}_sxm",
            "--where",
            f"backend={engine}",
        ]
        for gpu, engine in (
            ("h100", "vllm"),
            ("h200", "vllm"),
            ("h100", "trtllm"),
            ("h200", "trtllm"),
            ("h200", "sglang"),
        )
    },
}
"""What makes each result, as arguments of ``slotsim`` without ``--json``."""


def result_of(arguments: Sequence[str], shared: str) -> dict[str, Any]:
    """Return what a command prints, its numbers rounded to five digits, and the command."""
    from sim.cli import app

    here = [word.replace(SHARED, shared, 1) if word.startswith(SHARED) else word for word in arguments]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        app([*here, "--json"], standalone_mode=False)
    text = printed.getvalue().replace(shared, SHARED)
    command = " ".join(["slotsim", *arguments, "--json"])
    return {"command": command, "result": _rounded(json.loads(text))}


def _rounded(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the tables of docs/validation.md as Markdown."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    metrics = ("makespan_s", "ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "tpot_s.p99", "e2e_s.mean", "running.mean")
    yield "| run | " + " | ".join(f"`{metric}`" for metric in metrics) + " |"
    yield "|---" * (len(metrics) + 1) + "|"
    for name, entry in results.items():
        if name.startswith("measured"):
            found = entry["result"]["metrics"]
            yield f"| `{name}` | " + " | ".join(f"{100 * found[metric]['error']:+.1f} %" for metric in metrics) + " |"
    for name, (ttft, tpot, e2e) in OTHERS.items():
        cells = {"ttft_s.mean": ttft, "tpot_s.mean": tpot, "e2e_s.mean": e2e}
        row = " | ".join(f"{100 * cells[metric]:+.1f} %" if metric in cells else "" for metric in metrics)
        yield f"| {name}, the other simulator | {row} |"
    yield ""
    yield "| data | fitted | held-out | TPOT median | 90 % below | TTFT median | E2E median |"
    yield "|---|---|---|---|---|---|---|"
    for name, entry in results.items():
        if not name.startswith("measured"):
            found = entry["result"]
            held = found["held_out"]
            cells = [f"{100 * held['tpot']['median']:.1f} %", f"{100 * held['tpot']['p90']:.1f} %"]
            cells += [f"{100 * held[metric]['median']:.1f} %" if metric in held else "" for metric in ("ttft", "e2e")]
            yield f"| `{name}` | {found['kind']} | {held['tpot']['points']} | " + " | ".join(cells) + " |"


def committed() -> dict[str, dict[str, Any]]:
    """Return the results of this folder."""
    return {name: json.loads((HERE / f"{name}.json").read_text(encoding="utf-8")) for name in COMMANDS}


def main() -> None:
    """Write every result and print the tables."""
    shared = os.environ.get("SLOTSIM_SHARED", SHARED)
    for name, arguments in COMMANDS.items():
        print(f"{name} ...", file=sys.stderr)
        text = json.dumps(result_of(arguments, shared), indent=1, ensure_ascii=False) + "\n"
        (HERE / f"{name}.json").write_text(text, encoding="utf-8")
    print(tables(committed()), end="")


if __name__ == "__main__":
    main()
