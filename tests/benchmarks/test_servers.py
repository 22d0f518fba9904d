"""What other servers cost: every rule and step-time model, and a paged pool with a prefix cache; on request only.

``pytest tests/benchmarks/test_servers.py --benchmark-only``; figures in docs/performance.md.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sim.replica.admission import RULES
from tests.benchmarks.conftest import bare_timeout_s, simulate

PROFILE = "data/files/llmservingsim/profiler/perf/RTXPRO6000/meta-llama/Llama-3.1-8B/bf16/tp1"
LINE = '{ kind = "line", base_s = 0.006, per_request_s = 5e-5, per_context_token_s = 5e-8, per_prompt_token_s = 2e-5 }'
STEP_TIMES = {
    "roofline": '"roofline"',
    "line": LINE,
    "regression": '{ kind = "regression", fit = "splitwise/llama-2-70b/h100-tp8" }',
    "profile-sum": '{{ kind = "profile", path = "{}", step_s = 0.003 }}',
    "profile-measured": '{{ kind = "profile", path = "{}", step_s = 0.003, mixed = "measured" }}',
    "drafting": '{ kind = "roofline", draft_tokens = 3, acceptance = 0.7, draft_share = 0.05 }',
}
PAGED = ("server.engine=vllm-0.33", "server.chunked_prefill=true")

pytestmark = pytest.mark.benchmark(timer=time.process_time, disable_gc=False, warmup=False)


def measure(benchmark, tell, study: str, *overrides: str) -> None:
    """Tell what a request costs: reading, simulating and summarising, the best of five runs."""
    bare_s = bare_timeout_s()
    found = benchmark.pedantic(simulate, (study, *overrides), rounds=5)
    bare_s, cost_s = min(bare_s, bare_timeout_s()), benchmark.stats.stats.min / found.requests
    tell(bare_timeouts_a_request=cost_s / bare_s, us_a_request=1e6 * cost_s)


@pytest.mark.parametrize("rule", RULES)
def test_cost_of_a_request_by_rule(benchmark, tell, azure: str, rule: str) -> None:
    measure(benchmark, tell, "azure-trace", azure, f"server.admission={rule}")


@pytest.mark.parametrize("kind", STEP_TIMES)
def test_cost_of_a_request_by_step_time(benchmark, tell, azure: str, shared: Path, kind: str) -> None:
    table = STEP_TIMES[kind].format(shared / PROFILE) if kind.startswith("profile") else STEP_TIMES[kind]
    measure(benchmark, tell, "azure-trace", azure, f"server.step_time={table}")


@pytest.mark.parametrize("cache", ["true", "false"], ids=["cache", "no-cache"])
def test_cost_of_a_request_that_shares_its_beginning(benchmark, tell, shared: Path, cache: str) -> None:
    trace = f"workload.path={shared / 'data/files/mooncake/synthetic_trace.jsonl'}"
    measure(benchmark, tell, "mooncake-trace", trace, *PAGED, f"server.prefix_cache={cache}")
