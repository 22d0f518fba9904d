"""One policy object, three drivers, the same model behind them: the same decisions."""

import asyncio

import numpy as np
import pytest

anthropic = pytest.importorskip("anthropic", reason="needs the extra `anthropic`")
openai = pytest.importorskip("openai", reason="needs the extra `openai`")
httpx2 = pytest.importorskip("httpx2")

from policies.drive import Answered, Driver  # noqa: E402
from policies.drive.anthropic import AnthropicTransport  # noqa: E402
from policies.drive.openai import OpenAITransport  # noqa: E402
from policies.messages import user  # noqa: E402
from policies.output import POLICIES, Call, Done, FinishReason, Outcome  # noqa: E402
from policies.profiles import PROFILES  # noqa: E402
from policies.prompts import RECOVERY  # noqa: E402
from sim.clients.client import Clients  # noqa: E402
from sim.clock import Clock  # noqa: E402
from sim.records import CATEGORIES  # noqa: E402
from sim.replica.admission import Full  # noqa: E402
from sim.replica.replica import Replica  # noqa: E402
from sim.replica.server import Server  # noqa: E402
from sim.steptime import Line  # noqa: E402
from workloads.trace import Trace  # noqa: E402

from .servers import AnthropicServer, Connection, OpenAIServer, Scripted  # noqa: E402

PROMPT = 1_000
MODEL = "qwen3.5-plus"
POLICY = {name: kind() for name, kind in POLICIES.items() if not kind.needs_oracle}
POLICY |= {f"profile {name}": profile.policy for name, profile in PROFILES.items()}

Decisions = tuple[list[tuple[str, int, int, str]], str]
"""The requests of a call (kind, max_tokens, output tokens, finish reason) and its outcome."""


def simulated(policy, true_tokens: int, window: int) -> Decisions:
    clock = Clock()
    step = Line(base_s=0.01)
    server = Server(Full(), step, 20_000_000, window, 16, 8, 2_000_000, chunked_prefill=False)
    clients = Clients(clock, Replica(clock, server), policy, MODEL, window)
    trace = Trace(np.zeros(1), np.array([PROMPT]), np.array([true_tokens]))
    clients.run(iter([trace]), horizon_s=1.0, limit_s=1.0)
    kinds, finishes = CATEGORIES["request.kind"], CATEGORIES["request.finish"]
    rows = clients.requests.all()
    requests = [
        (kinds[row["kind"]], int(row["max_tokens"]), int(row["output_tokens"]), finishes[row["finish"]]) for row in rows
    ]
    (call,) = clients.calls.all()
    return requests, CATEGORIES["call.outcome"][call["outcome"]]


class Model:
    """A model that would write so many tokens: it begins anew for a plain request and goes on where it is asked to."""

    def __init__(self, true_tokens: int, message_tokens: int) -> None:
        self.true_tokens = true_tokens
        self.message_tokens = message_tokens
        self.written: list[int] = []

    def __call__(self, body: dict) -> Scripted:
        if RECOVERY not in str(body["messages"][-1]):
            self.written.clear()
        prompt = PROMPT + sum(written + self.message_tokens for written in self.written)
        left = self.true_tokens - sum(self.written)
        tokens = min(left, body["max_tokens"])
        self.written.append(tokens)
        finish = "length" if tokens < left else "stop"
        return Scripted("some text", finish, output_tokens=tokens, prompt_tokens=prompt)


def driven(policy, true_tokens: int, window: int, api: str) -> Decisions:
    server = (OpenAIServer if api == "openai" else AnthropicServer)(Model(true_tokens, policy.message_tokens))
    http = httpx2.AsyncClient(transport=Connection(app=server), base_url="http://model")
    if api == "openai":
        transport = OpenAITransport(openai.AsyncOpenAI(api_key="-", base_url="http://model", http_client=http), MODEL)
    else:
        client = anthropic.AsyncAnthropic(api_key="-", base_url="http://model", http_client=http)
        transport = AnthropicTransport(client, MODEL)
    call = Call(MODEL, window=window, prompt_tokens=PROMPT)

    async def drive() -> list:
        return [event async for event in Driver(policy, transport).call([user("question")], call)]

    *events, ended = asyncio.run(drive())
    requests = [
        (event.send.kind.value, event.send.max_tokens, event.answer.output_tokens, event.answer.finish.value)
        for event in events
        if isinstance(event, Answered)
    ]
    decision = ended.finished.decision
    assert isinstance(decision, Done)
    return requests, "complete" if decision.outcome is Outcome.COMPLETE else "truncated"


@pytest.mark.parametrize("window", [1_000_000, 90_000])
@pytest.mark.parametrize("name", POLICY)
def test_the_same_decisions(name: str, window: int) -> None:
    policy = POLICY[name]
    for true_tokens in (500, 9_000, 40_000, 70_000, 400_000):
        if window < 1_000_000 and not policy.rules.clamps and true_tokens > 40_000:
            continue  # it asks for more than fits, and a server refuses that
        expected = simulated(policy, true_tokens, window)
        assert driven(policy, true_tokens, window, "openai") == expected
        assert driven(policy, true_tokens, window, "anthropic") == expected


def test_the_model_reaches_every_kind_of_end() -> None:
    ends = {simulated(POLICY["adaptive"], true, 1_000_000)[1] for true in (500, 9_000, 400_000)}
    assert ends == {"complete", "truncated"}
    requests, _ = simulated(POLICY["adaptive"], 400_000, 1_000_000)
    assert [kind for kind, *_ in requests] == ["initial", "escalation", "recovery", "recovery", "recovery"]
    assert requests[-1][3] == FinishReason.LENGTH.value
