"""What agent sessions cost, on request: ``pytest tests/benchmarks/test_sessions.py --benchmark-only``."""

from __future__ import annotations

import time

import pytest

from policies.context import CONTEXT_POLICIES, Document001, Fitted, SendAll
from policies.messages import History, Known, ToolCall, assistant, tool_result, user
from policies.output import Adaptive
from sim.replica.admission import Prompt as PromptRule
from sim.replica.server import Server
from sim.replication import uncollected
from sim.sessions.together import run_together
from sim.steptime import Line
from tests.benchmarks.conftest import bare_timeout_s
from workloads.agents import AgentMix

pytestmark = pytest.mark.benchmark(timer=time.process_time, warmup=False)

LINE = Line(base_s=0.01, per_context_token_s=1e-7, per_prompt_token_s=1e-5)
SERVER = Server(PromptRule(), LINE, 4_000_000, 1_000_000, 16, 64, 8_192, True, prefix_cache=True)
RECORDED = AgentMix(count=20, rounds=100, every_s=120.0)
READERS = AgentMix(count=20, rounds=100, every_s=120.0, result_median=2_000, result_p99=9_000, answer_p99=1_000)
TALKERS = AgentMix(count=10, rounds=1_000, every_s=120.0, result_median=1_000)
CASES = {
    "nothing cleared": (READERS, SendAll()),
    "cleared at times": (RECORDED, Document001(budget=200_000)),
    "cleared often": (READERS, Document001(budget=100_000)),
    "one cleared at each request": (READERS, Document001(budget=100_000, clear_to="budget", clear_batch=1)),
    "rounds left out at each request": (TALKERS, Document001(budget=200_000)),
}


@pytest.mark.parametrize("case", CASES)
def test_cost_of_a_request(benchmark, tell, case: str) -> None:
    """Closed-loop sessions with both policies on one server with its prefix cache."""
    mix, policy = CASES[case]
    plans, bare_s = list(mix.plans(1, 0)), bare_timeout_s()
    with uncollected():
        sittings, _ = benchmark.pedantic(run_together, (plans, policy, Adaptive(), SERVER), rounds=5)
    requests = sum(sitting.agent.tally.requests for sitting in sittings)
    found = sum(sitting.hit_tokens for sitting in sittings) / sum(s.agent.tally.prompt_tokens for s in sittings)
    bare_s, cost_s = min(bare_s, bare_timeout_s()), benchmark.stats.stats.min / requests
    tell(
        bare_timeouts_a_request=cost_s / bare_s,
        requests_per_cpu_s=1 / cost_s,
        bare_timeout_ns=1e9 * bare_s,
        hit_percent=100 * found,
    )


@pytest.mark.parametrize("messages", [10, 100, 1_000, 10_000, 100_000])
@pytest.mark.parametrize("name", ["document-001", "clear-tool-uses", "cline-half"])
def test_cost_of_one_more_round(benchmark, tell, name: str, messages: int) -> None:
    """An answer that calls a tool, its result and a fit, while histories grow from so many messages to twice that."""
    policy, bare_s = CONTEXT_POLICIES[name](), bare_timeout_s()
    copies = max(1, 4_000 // messages)
    rounds = 2_000 // copies

    def histories():
        grown = [History([user("u"), *(message for _ in range(messages // 2) for message in tool_round())])]
        while len(grown) < copies:
            grown.append(History(grown[0]))
        for history in grown:
            policy.fit(history)
        return (grown,), {}

    def go_on(grown: list[History]) -> None:
        for history in grown:
            for _ in range(rounds):
                answer, result = tool_round()
                history = history.append(answer).append(result)
                assert isinstance(policy.fit(history), Fitted)

    with uncollected():
        benchmark.pedantic(go_on, setup=histories, rounds=5)
    bare_s, cost_s = min(bare_s, bare_timeout_s()), benchmark.stats.stats.min / (copies * rounds)
    tell(bare_timeouts_a_round=cost_s / bare_s, us_a_round=1e6 * cost_s)


def tool_round():
    return assistant(Known(50), ToolCall("t")), tool_result("t", Known(2_000))
