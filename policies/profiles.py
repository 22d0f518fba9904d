"""Named sets of constants: what is known to run in the wild, each with its source, and the documents to the letter.

A profile's policy keeps the defects of what it stands for; ``docs/policies.md`` lists which invariants that breaks.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from policies import precedence
from policies.output import (
    POLICIES,
    Adaptive,
    BadConstants,
    FinishReason,
    Fixed,
    Growing,
    Kind,
    ModelLimit,
    OutputPolicy,
    PoolShare,
    Progressive,
    Raises,
    Retries,
    Rules,
    ToolKind,
    WindowClamped,
)
from policies.retry import Backoff, Retry
from policies.wire import ANTHROPIC, DIALECTS, Dialect, Unclipped, Verbatim

DEFAULT_RETRY = Retry()


@dataclass(frozen=True, slots=True)
class Profile:
    """A policy as somebody runs it.

    Attributes
    ----------
    name
        What a study calls it.
    source
        Where its constants were found.
    policy
        The policy with those constants.
    retry
        When it sends requests again after transient errors.
    dialects
        How it names the output limit, by API.
    """

    name: str
    source: str
    policy: OutputPolicy
    retry: Retry = DEFAULT_RETRY
    dialects: Mapping[str, Dialect] = field(default_factory=lambda: DIALECTS)


_DOCUMENTS = Rules(
    clamps=False,
    raises=Raises.NOTHING,
    keep_partial=False,
    continue_calls=True,
    never_run=frozenset({ToolKind.EDIT}),
    empty_is_truncated=frozenset(),
)
_CLIENT_015 = replace(
    _DOCUMENTS,
    precedence=precedence.client_015,
    continue_calls=False,
    after_failed_recovery=FinishReason.STOP,
    run_cut=True,
)
_CLIENT_024 = replace(
    _CLIENT_015,
    clamps=True,
    refuses=False,
    raises=Raises.REQUESTED,
    ceiling_follows=True,
    precedence=precedence.client_024,
    empty_is_truncated=frozenset({Kind.INITIAL}),
    retried=Retries.ALL,
)
_REFUSED = Backoff(retries=27, first_s=1.5, factor=2.0, longest_s=30.0, jitter=0.3)

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile(
                "seed-2026",
                "the design documents 000 and 002, to the letter",
                Adaptive(table="0.15", rules=_DOCUMENTS),
            ),
            Profile(
                "qwen-code-0.15",
                "Qwen Code 0.15.6 and 0.15.10, published builds and recordings (its PRs 2898 and 3313)",
                Adaptive(table="0.15", retry_escalated=True, rules=_CLIENT_015),
                Retry(refused=_REFUSED, broken=Backoff(retries=2, first_s=2.0, step_s=2.0)),
                MappingProxyType({"openai": Verbatim("openai"), "anthropic": ANTHROPIC}),
            ),
            Profile(
                "qwen-code-0.24",
                "Qwen Code 0.24.4, published build and recordings (its PRs 6556, 5939 and 3966)",
                WindowClamped(retry_escalated=True, message_tokens=408, rules=_CLIENT_024),
                Retry(refused=_REFUSED, broken=Backoff(retries=4, first_s=2.0, step_s=2.0)),
                MappingProxyType({"openai": Unclipped("openai"), "anthropic": ANTHROPIC}),
            ),
            Profile(
                "claude-code-8k",
                "anthropics/claude-code issues 24055, 55147 and 45436: a ceiling of 8,000, truncated is final",
                Fixed(max_tokens=8_000),
            ),
            Profile("fixed-32k", "QwenLM/qwen-code PR 2438: the default before the documents", Fixed()),
            Profile(
                "octo-4k",
                "open-octo/octo-agent issue 708: base 4,096; no escalation is given, so `caps` is yours to extend",
                Progressive(caps=(4_096,)),
            ),
            Profile("octo-16k", "open-octo/octo-agent issues 708 and 1645", Progressive(caps=(16_384, 32_768))),
            Profile(
                "octo-32k",
                "open-octo/octo-agent issue 1645: and three continuations",
                Progressive(caps=(32_768, 65_536), recoveries=3),
            ),
            Profile(
                "hermes-growth",
                "NousResearch/hermes-agent issue 9489: x2 and x3, capped at 32K; no base is given, `first_cap` is ours",
                Growing(),
            ),
            Profile(
                "unlimited",
                "the model's whole limit at once; a model without one gets 32,000",
                ModelLimit(escalated_floor=0, recoveries=0),
            ),
            Profile(
                "pool-share",
                "unslothai/unsloth issue 9961: a share of the KV pool; neither share nor pool is given",
                PoolShare(),
            ),
        )
    }
)
"""Every profile by its name."""


def output_policy(name: str, **constants: object) -> OutputPolicy:
    """Return the output policy of a name, of a kind of policy or a profile, with the constants that a study sets.

    Raises
    ------
    BadConstants
        For a name or constant that does not exist, and for constants that contradict each other: all in one line.
    """
    if name not in POLICIES and name not in PROFILES:
        raise BadConstants(f"name: {name!r} is no output policy{_near(name, [*POLICIES, *PROFILES])}")
    kind = POLICIES.get(name) or type(PROFILES[name].policy)
    allowed = kind.constants()
    unknown = [f"{key}: unknown constant of {name}{_near(key, allowed)}" for key in constants if key not in allowed]
    if unknown:
        raise BadConstants("; ".join(unknown))
    if name in POLICIES:
        return kind(**constants)  # type: ignore[arg-type]  # a wrong type is a fault of its own
    return replace(PROFILES[name].policy, **constants)  # type: ignore[arg-type]


def _near(word: str, allowed: list[str]) -> str:
    near = difflib.get_close_matches(word, allowed, n=1)
    return f" - did you mean {near[0]!r}?" if near else f"; allowed: {', '.join(allowed)}"
