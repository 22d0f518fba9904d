"""What a request costs, on request: ``pytest tests/benchmarks --benchmark-only``. Figures in docs/performance.md."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks.conftest import bare_timeout_s, simulate

RULES = ("full", "prompt")
RATE_PER_S = 5.0
STUDY = f"""
name = "synthetic"
run = {{ kind = "terminating", replications = 1 }}
server = {{ engine = "trtllm-no-evict", model = "llama-3.1-8b", gpu = "h100" }}
policy.output = {{ name = "fixed", max_tokens = 8_000 }}

[[workload.streams]]
name = "chat"
arrivals = {{ kind = "poisson", rate = {RATE_PER_S} }}
prompt = {{ kind = "lognormal", median = 900, p99 = 4_000, max = 14_000 }}
output = {{ kind = "lognormal", median = 150, p99 = 700, max = 1_000 }}
"""
"""About the load of the recorded hour: prompts and answers of its size at nearly its rate, without its bursts."""

pytestmark = pytest.mark.benchmark(timer=time.process_time, disable_gc=False, warmup=False)


@pytest.mark.parametrize("rule", RULES)
def test_cost_of_a_request_on_the_azure_trace(benchmark, tell, azure: str, rule: str) -> None:
    bare_s = bare_timeout_s()
    found = benchmark.pedantic(simulate, ("azure-trace", azure, f"server.admission={rule}"), rounds=5)
    bare_s, cost_s = min(bare_s, bare_timeout_s()), benchmark.stats.stats.min / found.requests
    tell(requests_per_cpu_s=1 / cost_s, bare_timeouts_a_request=cost_s / bare_s, bare_timeout_ns=1e9 * bare_s)


@pytest.mark.parametrize("max_tokens", [8_000, 32_000])
def test_cost_of_a_reservation(benchmark, tell, azure: str, max_tokens: int) -> None:
    limit = f"policy.output.max_tokens={max_tokens}"
    found = benchmark.pedantic(simulate, ("azure-trace", azure, limit), rounds=5)
    tell(us_a_request=1e6 * benchmark.stats.stats.min / found.requests)


def run_synthetic(folder: Path, rule: str, requests: int) -> dict[str, float]:
    """Run the synthetic study in a process of its own, about so many requests long; return its ``speed`` block."""
    (folder / "synthetic.toml").write_text(STUDY)
    changes = [f"run.horizon={requests / RATE_PER_S}", f"server.admission={rule}"]
    program = [sys.executable, "-c", "from sim.cli import main; main()"]
    command = [*program, "run", "synthetic.toml", "-j", "1", "--json", *(f"--set={change}" for change in changes)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["speed"]


@pytest.mark.parametrize("requests", [10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("rule", RULES)
def test_cost_and_memory_by_number_of_requests(benchmark, tell, tmp_path: Path, rule: str, requests: int) -> None:
    speeds = []
    benchmark.pedantic(lambda: speeds.append(run_synthetic(tmp_path, rule, requests)), rounds=3)
    tell(
        us_a_request=min(1e6 / speed["requests_per_cpu_s"] for speed in speeds),
        megabytes_above_imports=max(speed["peak_rss_mb"] - speed["import_rss_mb"] for speed in speeds),
    )


def test_a_hundred_thousand_requests_take_less_than_60_megabytes(tmp_path: Path) -> None:
    speed = run_synthetic(tmp_path, "full", 100_000)
    assert speed["requests"] > 95_000
    assert speed["peak_rss_mb"] - speed["import_rss_mb"] < 60
