"""How long an escalation is remembered."""

from policies.output import Adaptive, Call, FinishReason, Response, Send
from policies.output.sticky import Since


def walk(policy: Adaptive, turns: list[list[int]]) -> list[list[int]]:
    """Return the first limit of each call, given the true lengths of the calls of each turn."""
    since, seen = Since(policy), []
    for turn in turns:
        since.new_turn()
        seen.append([])
        for true in turn:
            machine = policy.begin(since.tell(Call()))
            decision = machine.first()
            seen[-1].append(decision.max_tokens)
            while isinstance(decision, Send):
                since.heard(decision)
                finish = FinishReason.LENGTH if true > decision.max_tokens else FinishReason.STOP
                decision = machine.after(Response(finish, min(true, decision.max_tokens)))
    return seen


LONG, SHORT = 9_000, 100


def test_off_by_default() -> None:
    assert walk(Adaptive(), [[LONG, SHORT, LONG]]) == [[8_000] * 3]


def test_it_decays_and_ends_with_the_turn() -> None:
    policy = Adaptive(sticky=2)
    limits = walk(policy, [[LONG, SHORT, SHORT, SHORT], [LONG], [SHORT]])
    assert limits == [[8_000, 64_000, 64_000, 8_000], [8_000], [8_000]]


def test_it_lasts_for_the_session() -> None:
    policy = Adaptive(sticky=1, sticky_scope="session")
    assert walk(policy, [[LONG], [SHORT], [SHORT]]) == [[8_000], [64_000], [8_000]]
