"""The driver over both official libraries, against servers in the process: no port, no key."""

import asyncio

import pytest

anthropic = pytest.importorskip("anthropic", reason="needs the extra `anthropic`")
openai = pytest.importorskip("openai", reason="needs the extra `openai`")
httpx2 = pytest.importorskip("httpx2")

from policies.drive import Answered, Called, Driver, Ended, Retried, Said, Turn  # noqa: E402
from policies.drive.anthropic import AnthropicTransport  # noqa: E402
from policies.drive.openai import OpenAITransport  # noqa: E402
from policies.messages import History, Role, system, tool_result, user  # noqa: E402
from policies.output import (  # noqa: E402
    Adaptive,
    Call,
    Done,
    ErrorKind,
    Fail,
    FinishReason,
    Fixed,
    Kind,
    Outcome,
    Partial,
    Reject,
    Resume,
    ToolKind,
)
from policies.prompts import RECOVERY  # noqa: E402
from policies.retry import Backoff, Retry  # noqa: E402

from .servers import AnthropicServer, Connection, OpenAIServer, Scripted  # noqa: E402

SOON = Retry(refused=Backoff(retries=2, first_s=1.5), broken=Backoff(retries=2, first_s=2.0, step_s=2.0))
CUT = Scripted("half of", "length")


@pytest.fixture(params=["openai", "anthropic"])
def api(request):
    """Return a function from a script to a server and a transport to it."""

    def connect(script):
        server = (OpenAIServer if request.param == "openai" else AnthropicServer)(script)
        http = httpx2.AsyncClient(transport=Connection(app=server), base_url="http://model")
        if request.param == "openai":
            client = openai.AsyncOpenAI(api_key="none", base_url="http://model/v1", http_client=http)
            return server, OpenAITransport(client, "scripted")
        client = anthropic.AsyncAnthropic(api_key="none", base_url="http://model", http_client=http)
        return server, AnthropicTransport(client, "scripted")

    return connect


class Run:
    """One call, driven to its end: the events, what was waited, what the server saw."""

    def __init__(self, api, policy, script, *, history=None, **driver) -> None:
        self.server, transport = api(script)
        self.waits: list[float] = []

        async def sleep(seconds: float) -> None:
            self.waits.append(seconds)

        self.driver = Driver(policy, transport, **{"retry": SOON, "sleep": sleep, **driver})
        self.history = history or History([system("be brief"), user("question")])
        self.events = asyncio.run(self.drive())
        self.turn = Turn()
        for event in self.events:
            self.turn.feed(event)
        self.finished = self.events[-1].finished

    async def drive(self) -> list:
        return [event async for event in self.driver.call(self.history, Call())]

    @property
    def limits(self) -> list[int]:
        return [body["max_tokens"] for body in self.server.bodies]

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


def test_an_answer_that_fits(api) -> None:
    run = Run(api, Adaptive(), [Scripted("all of it", reasoning="hm")])
    assert run.limits == [8_000]
    assert "".join(event.text for event in run.of(Said)) == "all of it"
    assert run.finished.decision == Done(Outcome.COMPLETE, FinishReason.STOP)
    assert [message.role for message in run.finished.appended] == [Role.ASSISTANT]
    answer = run.of(Answered)[0].answer
    assert (answer.prompt_tokens, answer.output_tokens, answer.reasons) == (100, 2, True)
    assert (run.turn.text, run.turn.finish) == ("all of it", FinishReason.STOP)


def test_escalation_discards_and_recovery_goes_on(api) -> None:
    run = Run(api, Adaptive(), [CUT, Scripted("a longer ", "length"), Scripted("longer answer")])
    assert run.limits == [8_000, 64_000, 64_000]
    assert run.of(Retried) == [Retried(False, 0, 64_000), Retried(True, 9, 64_000)]
    assert run.turn.text == run.finished.text == "a longer answer"
    last = run.server.bodies[-1]["messages"]
    assert RECOVERY in str(last[-1])
    assert "a longer " in str(last[-2])
    assert len(run.server.bodies[0]["messages"]) == len(last) - 2
    assert RECOVERY not in str(run.finished.appended)


def test_tool_calls_come_only_from_the_answer_that_counts(api) -> None:
    read = ("c1", "read_file", '{"path": "a.txt"}')
    again = ("c2", "read_file", '{"path": "a.txt"}')
    kinds = {"read_file": ToolKind.READ}
    run = Run(api, Adaptive(), [Scripted("x", "length", (read,)), Scripted("y", "tool_calls", (again,))], kinds=kinds)
    assert [event.call.id for event in run.of(Called)] == ["c2"]
    assert [call.id for call in run.turn.pending_calls] == ["c2"]
    history = run.history
    for message in (*run.finished.appended, tool_result("c2", "content")):
        history = history.append(message)
    after = Run(api, Fixed(), [Scripted("done")], history=history)
    assert after.finished.text == "done"
    assert "content" in str(after.server.bodies[0]["messages"][-1])


def test_a_cut_write_is_answered_and_never_run(api) -> None:
    write = ("c1", "write_file", '{"path": "a.txt", "text": "li')
    run = Run(api, Fixed(), [Scripted("x", "tool_calls", (write,))], kinds={"write_file": ToolKind.EDIT})
    assert isinstance(run.finished.decision, Reject)
    assert run.of(Called) == []
    history = run.history
    for message in run.finished.appended:
        history = history.append(message)
    after = Run(api, Fixed(), [Scripted("in parts")], history=history)
    assert "MUST split" in str(after.server.bodies[0]["messages"][-1])


def test_transient_errors_are_sent_again(api) -> None:
    script = [Scripted(status=429, headers={"retry-after": "7"}), Scripted(status=529), Scripted("fine")]
    run = Run(api, Adaptive(), script)
    assert run.limits == [8_000] * 3
    assert run.waits == [7.0, 1.5]
    assert [event.error for event in run.of(Retried)] == [ErrorKind.RATE_LIMITED, ErrorKind.SERVER]
    assert run.finished.text == "fine"


def test_retries_end(api) -> None:
    run = Run(api, Adaptive(), [Scripted(status=500)] * 3)
    assert run.finished.decision == Fail(ErrorKind.SERVER)
    assert run.finished.appended == ()
    assert run.turn.finish is FinishReason.ERROR


@pytest.mark.parametrize("broken", [Scripted("beginning", None), Scripted("beginning", None, crash=True), Scripted("")])
def test_broken_and_empty_streams_are_sent_again(api, broken: Scripted) -> None:
    run = Run(api, Adaptive(), [broken, Scripted("the whole")])
    assert run.waits == [2.0]
    assert run.turn.text == run.finished.text == "the whole"


def test_an_invalid_request_is_not_sent_again(api) -> None:
    run = Run(api, Adaptive(), [Scripted(status=400, message="no such tool")])
    assert run.finished.decision == Fail(ErrorKind.INVALID)
    assert len(run.server.bodies) == 1


@pytest.mark.parametrize(
    "message", ["This model's maximum context length is 32768 tokens.", "prompt is too long: 9 > 8"]
)
def test_a_conversation_too_long_is_the_persons_to_act_on(api, message: str) -> None:
    decision = Run(api, Adaptive(), [Scripted(status=400, message=message)]).finished.decision
    assert isinstance(decision, Fail)
    assert (decision.error, decision.alert) == (ErrorKind.TOO_LONG, False)
    assert "new chat" in decision.notice


def test_a_failed_escalation_hands_the_partial_back(api) -> None:
    run = Run(api, Adaptive(), [CUT, Scripted(status=500)])
    assert run.finished.decision == Fail(ErrorKind.SERVER, Partial.KEPT)
    assert run.finished.text == "half of"
    assert [message.content.text for message in run.finished.appended] == ["half of"]
    assert run.waits == []


def test_escalations_may_be_retried(api) -> None:
    run = Run(api, Adaptive(retry_escalated=True), [CUT, Scripted(status=500), Scripted("whole")])
    assert run.finished.text == "whole"


def test_a_failed_recovery_keeps_what_there_is(api) -> None:
    run = Run(api, Resume(), [CUT, Scripted(" the answer", None)])
    assert run.finished.decision == Done(Outcome.PARTIAL, FinishReason.LENGTH, error=ErrorKind.CUT)
    assert run.finished.text == "half of the answer"
    assert len(run.finished.appended) == 1


def test_the_users_limit_is_the_only_request(api) -> None:
    run = Run(api, Adaptive(), [CUT], sampling={"temperature": 0.2, "max_tokens": 500})
    assert run.limits == [500]
    assert run.server.bodies[0]["temperature"] == 0.2
    assert run.finished.decision.outcome is Outcome.TRUNCATED


def test_no_room_sends_nothing(api) -> None:
    server, transport = api([])
    call = Call(window=32_000, prompt_tokens=30_000)

    async def drive() -> list:
        return [event async for event in Driver(Adaptive(), transport).call([user("long")], call)]

    events = asyncio.run(drive())
    assert [type(event) for event in events] == [Ended]
    assert events[0].finished.decision.error is ErrorKind.NO_ROOM
    assert server.bodies == []


def test_kinds_of_requests(api) -> None:
    run = Run(api, Resume(recoveries=2), [CUT, Scripted("b", "length"), Scripted("c", "length")])
    assert [event.send.kind for event in run.of(Answered)] == [Kind.INITIAL, Kind.RECOVERY, Kind.RECOVERY]
    assert run.finished.decision == Done(Outcome.TRUNCATED, FinishReason.LENGTH)
