"""What each policy sends when every answer is truncated, and how calls end."""

import pickle

import pytest

from policies.output import (
    POLICIES,
    Adaptive,
    BadConstants,
    Call,
    Carried,
    Done,
    ErrorKind,
    Fail,
    FinishReason,
    Fixed,
    IllegalMove,
    Kind,
    ModelLimit,
    Oracle,
    Outcome,
    Partial,
    Progressive,
    Quantile,
    Reject,
    Response,
    Resume,
    Retries,
    Rules,
    Send,
    State,
    ToolKind,
    ToolUse,
    WindowClamped,
)

STOP = Response(FinishReason.STOP, 100)


def cut(tokens: int, *calls: ToolUse) -> Response:
    return Response(FinishReason.LENGTH, tokens, calls)


def failed(kind: ErrorKind) -> Response:
    return Response(FinishReason.ERROR, error=kind)


UNKNOWN = Call()


def climb(policy, call: Call = UNKNOWN) -> list[int]:
    """Return the limits asked for while every answer fills its limit."""
    machine = policy.begin(call)
    decision = machine.first()
    sent = []
    while isinstance(decision, Send):
        sent.append(decision.max_tokens)
        decision = machine.after(cut(decision.max_tokens))
    return sent


@pytest.mark.parametrize(
    ("policy", "model", "limits"),
    [
        (Fixed(), "", [32_000]),
        (Adaptive(), "", [8_000] + [64_000] * 4),
        (Adaptive(), "qwen3.5-plus", [8_000] + [65_536] * 4),
        (Adaptive(), "gpt-4.1-mini", [8_000] + [16_384] * 4),
        (Adaptive(table="0.15"), "claude-opus-4-6", [8_000] + [131_072] * 4),
        (Resume(), "", [8_000] + [64_000] * 4),
        (Progressive(), "", [8_000, 16_000, 32_000, 64_000]),
        (Progressive(), "qwen3-32b", [8_000, 16_000, 32_000, 32_768]),
        (ModelLimit(), "", [32_000] + [64_000] * 4),
        (ModelLimit(), "gpt-5", [131_072] * 4),
        (WindowClamped(), "", [32_000] + [64_000] * 4),
        (WindowClamped(), "gpt-5", [64_000] * 4),
        (WindowClamped(), "gpt-4.1-mini", [16_384] * 4),  # an escalation would send the same limit again
        (Quantile(lengths={"": range(1, 101)}, cost_ratio=9), "", [90] + [64_000] * 4),
    ],
)
def test_limits_while_truncated(policy, model: str, limits: list[int]) -> None:
    assert climb(policy, Call(model, window=10**7)) == limits


def test_escalation_drops_the_partial_and_recovery_keeps_it() -> None:
    machine = Adaptive().begin(Call())
    assert machine.first() == Send(8_000, 8_000, Kind.INITIAL, Carried.SAME)
    assert machine.after(cut(8_000)) == Send(64_000, 64_000, Kind.ESCALATION, Carried.DROP_PARTIAL, retry=Retries.NONE)
    assert machine.after(cut(64_000)) == Send(
        64_000, 64_000, Kind.RECOVERY, Carried.KEEP_PARTIAL, True, 46, Retries.NONE
    )
    assert machine.after(STOP) == Done(Outcome.COMPLETE, FinishReason.STOP)


@pytest.mark.parametrize("floor", [0, 1])
def test_no_request_asks_for_no_tokens(floor: int) -> None:
    full = Call(window=100, prompt_tokens=100)
    free = {"max_tokens": 50, "margin_tokens": 0, "margin_share": 0, "floor": floor}
    assert not isinstance(Fixed(**free).begin(full).first(), Send)
    assert Fixed(**free, rules=Rules(refuses=False)).begin(full).first().max_tokens == 1


def test_recovery_under_a_window_counts_what_the_history_grew_by() -> None:
    machine = Adaptive(margin_tokens=1_000, margin_share=0).begin(Call(window=100_000, prompt_tokens=9_000))
    machine.first()
    assert machine.after(cut(8_000)).max_tokens == 64_000
    assert machine.after(cut(64_000)).max_tokens == 100_000 - 1_000 - 9_000 - 64_000 - 46
    assert machine.after(cut(25_954)) == Done(Outcome.TRUNCATED, FinishReason.LENGTH)


def test_the_servers_count_replaces_the_estimate() -> None:
    machine = Adaptive(margin_tokens=0, margin_share=0).begin(Call(window=50_000, prompt_tokens=1_000))
    machine.first()
    assert machine.after(Response(FinishReason.LENGTH, 8_000, prompt_tokens=20_000)).max_tokens == 30_000


def test_no_room_is_refused_before_sending() -> None:
    machine = Adaptive().begin(Call(window=32_768, prompt_tokens=20_000))
    refusal = machine.first()
    assert isinstance(refusal, Fail)
    assert refusal.error is ErrorKind.NO_ROOM
    assert refusal.notice
    assert not refusal.alert
    assert machine.state is State.FAILED


@pytest.mark.parametrize(
    ("call", "limit"),
    [
        (Call("qwen3-coder-plus", user_max_tokens=200_000), 32_768),
        (Call("my-model", user_max_tokens=100_000), 100_000),
        (Call("gpt-5", user_max_tokens=4_000, env_max_tokens="9000"), 4_000),
        (Call("my-model", env_max_tokens="16000"), 16_000),
    ],
)
def test_an_override_is_the_only_request(call: Call, limit: int) -> None:
    assert climb(Adaptive(), call) == [limit]


@pytest.mark.parametrize("value", ["abc", "0", "12abc", "-5", "", 0, -3, None, "²"])
def test_an_invalid_override_is_none(value) -> None:
    assert climb(Adaptive(), Call(env_max_tokens=value)) == [8_000] + [64_000] * 4


def test_errors() -> None:
    machine = Adaptive().begin(Call())
    machine.first()
    assert machine.after(failed(ErrorKind.SERVER)) == Fail(ErrorKind.SERVER)
    machine = Adaptive().begin(Call())
    machine.first()
    machine.after(cut(8_000))
    assert machine.after(failed(ErrorKind.INVALID)) == Fail(ErrorKind.INVALID, Partial.KEPT)
    machine = Adaptive().begin(Call())
    machine.first()
    machine.after(cut(8_000))
    machine.after(cut(64_000))
    assert machine.after(failed(ErrorKind.CUT)) == Done(Outcome.PARTIAL, FinishReason.LENGTH, error=ErrorKind.CUT)


def test_too_long_is_the_persons_to_act_on() -> None:
    machine = Fixed().begin(Call())
    machine.first()
    fail = machine.after(failed(ErrorKind.TOO_LONG))
    assert isinstance(fail, Fail)
    assert "new chat" in fail.notice
    assert not fail.alert


def test_truncated_calls() -> None:
    write = ToolUse("write_file", ToolKind.EDIT)
    shell = ToolUse("shell", ToolKind.EXECUTE, complete=False)
    unknown = ToolUse("deploy")
    read, half = ToolUse("read", ToolKind.READ), ToolUse("read", ToolKind.READ, complete=False)
    machine = Adaptive().begin(Call())
    machine.first()
    assert machine.after(cut(8_000, write)).kind is Kind.ESCALATION
    reject = machine.after(cut(64_000, write, shell, read, unknown, half))
    assert isinstance(reject, Reject)
    assert reject.calls == (write, shell, unknown, half)
    assert reject.run == (read,)
    machine = Fixed().begin(Call())
    machine.first()
    assert machine.after(cut(32_000, read)) == Done(Outcome.TRUNCATED, FinishReason.LENGTH, (read,))


def test_incomplete_arguments_count_as_truncation_whatever_the_provider_says() -> None:
    machine = Adaptive().begin(Call())
    machine.first()
    half = ToolUse("write_file", ToolKind.EDIT, complete=False)
    assert machine.after(Response(FinishReason.TOOL_CALLS, 50, (half,))).kind is Kind.ESCALATION


def test_illegal_moves_change_nothing() -> None:
    machine = Fixed().begin(Call())
    for response in (STOP, cut(10), failed(ErrorKind.CUT)):
        with pytest.raises(IllegalMove, match="READY"):
            machine.after(response)
    machine.first()
    with pytest.raises(IllegalMove, match="INITIAL"):
        machine.first()
    assert machine.after(STOP) == Done(Outcome.COMPLETE, FinishReason.STOP)
    with pytest.raises(IllegalMove, match="ended"):
        machine.after(STOP)
    assert machine.state is State.DONE


def test_sticky_opens_at_the_escalated_limit_and_decays() -> None:
    policy = Adaptive(sticky=2)
    assert climb(policy, Call(calls_since_escalation=1)) == [64_000] * 4
    assert climb(policy, Call(calls_since_escalation=2)) == [8_000] + [64_000] * 4


def test_oracle_has_its_own_door() -> None:
    with pytest.raises(ValueError, match="true_tokens"):
        Oracle().begin(Call())
    assert Oracle().begin(Call(), true_tokens=123).first().max_tokens == 123
    assert [name for name, policy in POLICIES.items() if policy.needs_oracle] == ["oracle"]


@pytest.mark.parametrize(
    ("build", "fault"),
    [
        (lambda: Adaptive(first_cap=9_000, escalated_floor=8_000), "escalated_floor: 8000 is below first_cap, 9000"),
        (lambda: Adaptive(first_cap=0, recoveries=-1), "first_cap: 0 is not above 0; recoveries: -1 is negative"),
        (lambda: Progressive(caps=(5, 5)), "rising"),
        (lambda: Fixed(max_tokens=-1), "max_tokens"),
        (lambda: Fixed(table="0.16"), "allowed: 0.15, 0.24"),
        (lambda: Quantile(cost_ratio=0), "cost_ratio"),
        (lambda: Quantile(lengths={"chat": []}), "lengths.chat"),
    ],
)
def test_contradictory_constants(build, fault: str) -> None:
    with pytest.raises(BadConstants, match=fault):
        build()


def test_policies_travel_to_worker_processes() -> None:
    for name, policy in POLICIES.items():
        assert pickle.loads(pickle.dumps(policy())) == policy(), name


@pytest.mark.parametrize(
    ("policy", "window", "fault"),
    [
        (Fixed(max_tokens=200_000), 131_072, "max_tokens: 200,000 tokens are above the model's window, 131,072"),
        (Progressive(), 7_999, "caps: 8,000"),
        (Adaptive(), 4_096, "first_cap: 8,000"),
        (Adaptive(), 13_000, "margin_tokens: 10,000 leave no room for an answer in the model's window, 13,000"),
        (Adaptive(margin_tokens=500), 13_000, ""),
        (Adaptive(), 32_768, ""),
        (WindowClamped(), 3_000, "margin_tokens: 10,000"),
        (Oracle(), 200_000, ""),
    ],
)
def test_constants_that_no_window_holds(policy, window: int, fault: str) -> None:
    assert policy.beyond(window).startswith(fault)
    assert bool(policy.beyond(window)) == bool(fault)
