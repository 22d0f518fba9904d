"""What a machine costs, in bare SimPy timeouts of the same run. Skipped by default: ``pytest --benchmark-only``."""

import time

import pytest
import simpy

from policies.output import Adaptive, Call, FinishReason, Response, Send

TIMEOUTS = 100_000
CUT = Response(FinishReason.LENGTH, 8_000)
CALLS = {
    "complete": [Response(FinishReason.STOP, 100)],
    "escalated": [CUT, Response(FinishReason.STOP, 9_000)],
    "spent": [CUT] * 5,
}


def bare_timeout_s() -> float:
    env = simpy.Environment()

    def waits():
        for _ in range(TIMEOUTS):
            yield env.timeout(1)

    env.process(waits())
    began = time.process_time()
    env.run()
    return (time.process_time() - began) / TIMEOUTS


@pytest.mark.parametrize("window", [None, 200_000, 60_000], ids=["no window", "roomy", "clamped"])
@pytest.mark.parametrize("name", CALLS)
def test_cost_of_a_response(benchmark, name: str, window: int | None) -> None:
    policy, call, responses = Adaptive(), Call("my-model", window=window, prompt_tokens=1_000), CALLS[name]
    answered = 0

    def one_call() -> None:
        nonlocal answered
        machine = policy.begin(call)
        decision = machine.first()
        for response in responses:
            decision = machine.after(response)
            answered += 1
            if not isinstance(decision, Send):
                break

    one_call()
    per_call = answered
    benchmark(one_call)
    benchmark.extra_info["bare timeouts per response"] = benchmark.stats.stats.median / per_call / bare_timeout_s()
