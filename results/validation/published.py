"""Published figures of other systems, reproduced: ``python results/validation/published.py`` writes ``published.json``.

Each study returns, by variant and quantity, the mean over ten seeds and its 95 % interval, beside the published figure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sim.hardware import GPUS, MODELS
from sim.loadtest import Load, closed_loop, open_loop
from sim.replica.admission import Full, OneStep, Prompt
from sim.replica.server import Server
from sim.stats import t_interval
from sim.steptime import Regression, Roofline

HERE = Path(__file__).resolve().parent
SEEDS = 10

Quantities = dict[str, float]
Row = dict[str, float | None]


def watermark(share: float, seed: int) -> Quantities:
    """Return what vLLM's watermark does near the pool's limit.

    vLLM pull request 44594: Qwen2.5-7B on one GB200, 299,584 KV tokens, 450 prompts of 1,000 +- 20 % tokens, 5,000 +-
    20 % written, 128 in flight.
    """
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(800, 1_201, 450), rng.integers(4_000, 6_001, 450)
    step_time = Roofline(GPUS["gb200"], MODELS["qwen2.5-7b"])
    server = Server(Prompt(share), step_time, 299_584, 8_192, 16, 256, 8_192, chunked_prefill=True)
    found = closed_loop(server, Load(prompts, outputs, outputs), 128)
    metrics = found.passage.metrics()
    return {
        "preemptions": float(found.preemptions),
        "output tokens/s": metrics["output_tokens_per_s"],
        "E2E p50 (s)": metrics["e2e_s.p50"],
        "ITL p99 (ms)": 1e3 * found.series.gaps().quantile_s(0.99),
    }


def _power_of_two(tokens: np.ndarray) -> np.ndarray:
    return np.exp2(np.ceil(np.log2(tokens))).astype(np.int64)


def reservations(rule: str, seed: int) -> Quantities:
    """Return how many requests run and how much of the pool holds tokens, by what is reserved.

    vLLM paper (SOSP 2023), figures 2 and 13: OPT-13B on one A100, 15,700 KV slots, requests like ShareGPT's (161 tokens
    in, 338 out on average; lognormal here, the outputs with an SCV of 1), arriving fast enough to keep even the paged
    server's pool nearly full: 2.5/s, where the paper's slower server had 2/s. Orca's pool is a buddy allocator, as the
    paper assumes: its reservations are powers of two.
    """
    rng = np.random.default_rng(seed)
    count, window = 3_000, 2_048
    prompts = np.clip(rng.lognormal(np.log(161.31) - 0.72, 1.2, count), 4, 1_024).astype(np.int64)
    outputs = np.clip(rng.lognormal(np.log(337.99) - 0.5 * np.log(2), np.sqrt(np.log(2)), count), 4, 1_024).astype(
        np.int64
    )
    times = np.cumsum(rng.exponential(1 / 2.5, count))
    wanted = {
        "Orca (Max)": window - prompts,
        "Orca (Pow2)": _power_of_two(prompts + _power_of_two(outputs)) - prompts,
        "Orca (Oracle)": _power_of_two(prompts + outputs) - prompts,
        "vLLM": outputs,
    }
    paged = rule == "vLLM"
    step_time = Regression("distserve/opt-13b/a100")
    charge = Prompt() if paged else Full()
    server = Server(charge, step_time, 15_700, window, 16 if paged else 1, 256, 2_560, chunked_prefill=False)
    allowed = np.clip(wanted[rule], 1, window - prompts)
    series = open_loop(server, Load(prompts, allowed, outputs), times).series
    last = int(np.searchsorted(series.time_s, times[-1])) - 1
    first = last // 3
    span = float(series.time_s[last] - series.time_s[first])
    held = float(series.reserved[last] - series.reserved[first])
    used = float(series.used[last] - series.used[first])
    return {
        "running": float(series.running[last] - series.running[first]) / span,
        "used of reserved": used / held,
    }


def eviction(rule: str, seed: int) -> Quantities:
    """Return what admitting by the next step alone costs where prompts are long.

    TensorRT-LLM issue 16827: Llama-3.3-70B in fp8 (keys and values too) on one H200, 128 requests of 16,384 tokens in
    and 512 out, 32 in flight, 8,192 tokens a step. The pool is 0.9 of what the weights and 3 GB leave, which the issue
    does not say; it moves by up to 5 % with the seed, because how many whole prompts it holds decides much.
    """
    model, gpu = MODELS["llama-3.1-70b"], GPUS["h200"]
    step_time = Roofline(gpu, model, weights="fp8", kv="fp8")
    memory = 0.9 * (gpu.memory - model.weight_bytes("fp8") - 3e9)
    pool = int(memory / model.kv_bytes_per_token("fp8") * np.random.default_rng(seed).uniform(0.95, 1.05))
    prompts, outputs = np.full(128, 16_384), np.full(128, 512)
    charge = {"GUARANTEED_NO_EVICT": Full(), "MAX_UTILIZATION": OneStep()}[rule]
    server = Server(charge, step_time, pool, 17_000, 32, 2_048, 8_192, chunked_prefill=True)
    metrics = closed_loop(server, Load(prompts, outputs, outputs), 32).passage.metrics()
    return {
        "output tokens/s": metrics["output_tokens_per_s"],
        "TTFT p50 (s)": metrics["ttft_s.p50"],
        "TPOT p99 (ms)": 1e3 * metrics["tpot_s.p99"],
    }


STUDIES: Mapping[str, tuple[Callable[..., Quantities], Mapping[str | float, Mapping[str, float]]]] = {
    "vLLM's watermark": (
        watermark,
        {
            0.0: {"preemptions": 1_065, "output tokens/s": 11_582, "E2E p50 (s)": 51.6, "ITL p99 (ms)": 40.6},
            0.02: {"preemptions": 400, "output tokens/s": 12_134, "E2E p50 (s)": 48.4, "ITL p99 (ms)": 18.8},
            0.05: {"preemptions": 187, "output tokens/s": 12_167, "E2E p50 (s)": 47.9, "ITL p99 (ms)": 17.7},
            0.1: {"preemptions": 168, "output tokens/s": 11_835, "E2E p50 (s)": 48.6, "ITL p99 (ms)": 17.6},
            0.15: {"preemptions": 168, "output tokens/s": 11_635},
        },
    ),
    "what is reserved": (
        reservations,
        {
            "Orca (Max)": {"running": 7.00, "used of reserved": 0.204},
            "Orca (Pow2)": {"running": 9.81, "used of reserved": 0.268},
            "Orca (Oracle)": {"running": 13.62, "used of reserved": 0.382},
            "vLLM": {"running": 30.42, "used of reserved": 0.963},
        },
    ),
    "TensorRT-LLM's policies": (
        eviction,
        {
            "GUARANTEED_NO_EVICT": {"output tokens/s": 161.0, "TTFT p50 (s)": 35.8},
            "MAX_UTILIZATION": {"output tokens/s": 96.2, "TTFT p50 (s)": 27.1},
        },
    ),
}
"""Each study with its variants and what was published of them."""


def table(document: Mapping[str, Any]) -> str:
    """Return the tables of docs/validation.md as Markdown: simulated mean and interval, and what was published."""
    lines = []
    for name, study in document["studies"].items():
        variants = study["variants"]
        quantities = list(next(iter(variants.values())))
        lines += [f"| {name} | " + " | ".join(quantities) + " |", "|---" * (len(quantities) + 1) + "|"]
        for variant, row in variants.items():
            cells = []
            for quantity in quantities:
                found = row[quantity]
                half = (found["high"] - found["low"]) / 2
                published = "" if found["published"] is None else f" ({found['published']:,g})"
                cells.append(f"{found['mean']:,.4g} +- {half:,.2g}{published}")
            lines.append(f"| {variant} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Run every study and write what was found beside what was published."""
    document = {}
    for name, (study, variants) in STUDIES.items():
        print(f"{name} ...", file=sys.stderr)
        rows: dict[str, dict[str, Row]] = {}
        for variant, published in variants.items():
            runs = [study(variant, seed) for seed in range(SEEDS)]
            rows[str(variant)] = {}
            for quantity in runs[0]:
                interval = t_interval([run[quantity] for run in runs])
                figures = {"mean": interval.mean, "low": interval.low, "high": interval.high}
                row: Row = {key: None if value is None else float(f"{value:.5g}") for key, value in figures.items()}
                rows[str(variant)][quantity] = row | {"published": published.get(quantity)}
        document[name] = {"about": " ".join((study.__doc__ or "").split()), "variants": rows}
    text = json.dumps({"command": "python results/validation/published.py", "studies": document}, indent=1) + "\n"
    (HERE / "published.json").write_text(text, encoding="utf-8")
    print(table(json.loads(text)), end="")


if __name__ == "__main__":
    main()
