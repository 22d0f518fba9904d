"""Whose limit wins, and how it is named and clipped: the documents' table, and what the client's builds do."""

import pytest

from policies import precedence
from policies.output import Adaptive, Call, Send
from policies.profiles import PROFILES, output_policy
from policies.wire import ANTHROPIC, DASHSCOPE, OPENAI, Unclipped, Verbatim


def wire(dialect, policy, model: str = "", sampling=None, env=None) -> list[dict]:
    """Return the parameters of the requests of a call whose answers are all truncated, without repetitions."""
    from policies.output import FinishReason, Response

    machine = policy.begin(Call(model, user_max_tokens=dialect.user_limit(sampling), env_max_tokens=env))
    decision, seen = machine.first(), []
    while isinstance(decision, Send):
        parameters = dialect.parameters(decision, sampling)
        seen += [parameters] if parameters not in seen else []
        decision = machine.after(Response(FinishReason.LENGTH, 1))
    return seen


def limits(*values) -> list[dict]:
    return [{"max_tokens": value} for value in values]


@pytest.mark.parametrize("dialect", [OPENAI, DASHSCOPE, ANTHROPIC])
class TestTheDocumentsTable:
    """Known models are clipped to their limit (qwen3-coder-plus: 32,768), unknown ones get what is asked for."""

    known, unknown = "qwen3-coder-plus", "my-model"

    def test_user_before_environment(self, dialect) -> None:
        given = {"max_tokens": 200_000}
        assert wire(dialect, Adaptive(), self.known, given, "9000") == limits(32_768)
        assert wire(dialect, Adaptive(), self.unknown, given, "9000") == limits(200_000)

    def test_environment(self, dialect) -> None:
        assert wire(dialect, Adaptive(), self.known, None, "200000") == limits(32_768)
        assert wire(dialect, Adaptive(), self.unknown, None, "200000") == limits(200_000)

    def test_capped_default(self, dialect) -> None:
        assert wire(dialect, Adaptive(), self.known) == limits(8_000, 32_768)
        assert wire(dialect, Adaptive(), self.unknown) == limits(8_000, 64_000)

    def test_other_parameters_stay(self, dialect) -> None:
        assert wire(dialect, Adaptive(), self.unknown, {"temperature": 0.2}) == [
            {"temperature": 0.2, "max_tokens": 8_000},
            {"temperature": 0.2, "max_tokens": 64_000},
        ]


def test_dashscope_inherits_the_openai_way() -> None:
    assert (DASHSCOPE.field, DASHSCOPE.aliases) == (OPENAI.field, OPENAI.aliases)
    assert type(DASHSCOPE) is type(OPENAI)


def test_a_limit_under_another_name_is_the_users_limit() -> None:
    assert wire(OPENAI, Adaptive(), "", {"max_completion_tokens": 500}) == limits(500)


class TestVersion015:
    policy, dialect = PROFILES["qwen-code-0.15"].policy, Verbatim("openai")

    def test_sampling_parameters_are_all_there_is(self) -> None:
        assert wire(self.dialect, self.policy, "gpt-5", {"max_tokens": 10**6}) == limits(10**6)
        assert wire(self.dialect, self.policy, "gpt-5", {}) == [{}]
        assert wire(self.dialect, self.policy, "gpt-5", {"temperature": 0}, "500") == [{"temperature": 0}]
        assert wire(self.dialect, self.policy, "gpt-5", {"max_tokens": None}) == limits(None)

    def test_any_text_in_the_environment_ends_escalation(self) -> None:
        assert wire(self.dialect, self.policy, "", None, "12abc") == limits(12)
        assert wire(self.dialect, self.policy, "", None, "abc") == limits(8_000)
        assert wire(self.dialect, self.policy, "", None, "") == limits(8_000, 64_000)


class TestVersion024:
    policy, dialect = PROFILES["qwen-code-0.24"].policy, Unclipped("openai")

    def test_with_sampling_parameters_nothing_is_clipped(self) -> None:
        assert wire(self.dialect, self.policy, "qwen3-coder-plus", {"max_tokens": 200_000}) == limits(200_000)
        given = {"temperature": 0.2}
        assert [each["max_tokens"] for each in wire(self.dialect, self.policy, "gpt-4o", given)] == [16_384, 64_000]
        assert wire(self.dialect, self.policy, "gpt-4o") == limits(16_384)  # sent again and again, byte for byte

    def test_another_name_takes_its_place(self) -> None:
        given = {"max_completion_tokens": 40_000}
        assert wire(self.dialect, self.policy, "", given) == [
            {"max_completion_tokens": 32_000},
            {"max_completion_tokens": 40_000},
        ]

    def test_only_digits_count(self) -> None:
        assert wire(self.dialect, self.policy, "", None, "abc") == limits(32_000, 64_000)
        assert wire(self.dialect, self.policy, "", None, "500") == limits(500)

    def test_opus_keeps_its_whole_limit(self) -> None:
        assert wire(ANTHROPIC, self.policy, "claude-opus-4-6") == limits(128_000)


@pytest.mark.parametrize("rule", [precedence.documents, precedence.client_015, precedence.client_024])
def test_all_agree_on_the_plain_cases(rule) -> None:
    assert rule(500, "600") == precedence.Override(500, final=True)
    assert rule(None, "600") == precedence.Override(600, final=True)
    assert rule(None, None) == precedence.Override(None, final=False)


@pytest.mark.parametrize(
    ("name", "constants", "fault"),
    [
        ("adaptve", {}, "did you mean 'adaptive'"),
        ("seed-2027", {}, "did you mean 'seed-2026'"),
        ("adaptive", {"first_cpa": 1}, "did you mean 'first_cap'"),
        ("adaptive", {"first_cap": "8k"}, "'8k' is not a whole number"),
        (
            "adaptive",
            {"first_cap": True, "margin_share": "x"},
            "margin_share: 'x' is not a number; first_cap: True is not",
        ),
        ("progressive", {"caps": ["a"]}, "not a list of numbers"),
        ("quantile", {"lengths": 3}, "not a table"),
        ("seed-2026", {"first_cap": 70_000}, "escalated_floor: 64000 is below first_cap, 70000"),
        ("pool-share", {"share": 2}, "share"),
        ("growing", {"factors": [0.5]}, "factors"),
    ],
)
def test_a_study_hears_of_its_faults(name: str, constants: dict, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        output_policy(name, **constants)


def test_a_study_sets_constants_of_policies_and_profiles() -> None:
    assert output_policy("progressive", caps=[1_000, 2_000]).caps == (1_000, 2_000)
    seed = output_policy("seed-2026", first_cap=4_000)
    assert (seed.first_cap, seed.rules) == (4_000, PROFILES["seed-2026"].policy.rules)
    assert all(profile.source for profile in PROFILES.values())
