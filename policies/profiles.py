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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed2026(Adaptive):
    """The design documents to the letter."""

    table: str = "0.15"
    rules: Rules = field(default=_DOCUMENTS, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenCode015(Adaptive):
    """The client that the documents describe, as recorded."""

    table: str = "0.15"
    retry_escalated: bool = True
    rules: Rules = field(default=_CLIENT_015, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenCode024(WindowClamped):
    """The same client half a year later, as recorded."""

    retry_escalated: bool = True
    message_tokens: int = 408
    rules: Rules = field(default=_CLIENT_024, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeCode8k(Fixed):
    """A ceiling of 8,000; a truncated answer is final."""

    max_tokens: int = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed32k(Fixed):
    """32,000, the default before the design documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Octo4k(Progressive):
    """A base of 4,096; the source names no escalation, so ``caps`` is yours to extend."""

    caps: tuple[int, ...] = (4_096,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Octo16k(Progressive):
    """16,384, then 32,768."""

    caps: tuple[int, ...] = (16_384, 32_768)


@dataclass(frozen=True, slots=True, kw_only=True)
class Octo32k(Progressive):
    """32,768, then 65,536, then three continuations."""

    caps: tuple[int, ...] = (32_768, 65_536)
    recoveries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HermesGrowth(Growing):
    """Continuations at x2 and x3, capped at 32K; the source names no base, so ``first_cap`` is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlimited(ModelLimit):
    """The model's whole limit at once; a model without one gets 32,000."""

    escalated_floor: int = 0
    recoveries: int = 0


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile("seed-2026", "design documents 000 and 002", Seed2026()),
            Profile(
                "qwen-code-0.15",
                "Qwen Code 0.15.6 and 0.15.10, published builds and recordings (its PRs 2898 and 3313)",
                QwenCode015(),
                Retry(refused=_REFUSED, broken=Backoff(retries=2, first_s=2.0, step_s=2.0)),
                MappingProxyType({"openai": Verbatim("openai"), "anthropic": ANTHROPIC}),
            ),
            Profile(
                "qwen-code-0.24",
                "Qwen Code 0.24.4, published build and recordings (its PRs 6556, 5939 and 3966)",
                QwenCode024(),
                Retry(refused=_REFUSED, broken=Backoff(retries=4, first_s=2.0, step_s=2.0)),
                MappingProxyType({"openai": Unclipped("openai"), "anthropic": ANTHROPIC}),
            ),
            Profile("claude-code-8k", "anthropics/claude-code issues 24055, 45436 and 55147", ClaudeCode8k()),
            Profile("fixed-32k", "QwenLM/qwen-code PR 2438", Fixed32k()),
            Profile("octo-4k", "open-octo/octo-agent issue 708", Octo4k()),
            Profile("octo-16k", "open-octo/octo-agent issues 708 and 1645", Octo16k()),
            Profile("octo-32k", "open-octo/octo-agent issue 1645", Octo32k()),
            Profile("hermes-growth", "NousResearch/hermes-agent issue 9489", HermesGrowth()),
            Profile("unlimited", "any client that asks for all a model can write", Unlimited()),
            Profile("pool-share", "unslothai/unsloth issue 9961; it gives neither share nor pool", PoolShare()),
        )
    }
)
"""Every profile by its name."""

OUTPUT_POLICIES: Mapping[str, type[OutputPolicy]] = MappingProxyType(
    {**POLICIES, **{name: type(profile.policy) for name, profile in PROFILES.items()}}
)
"""Every name under which a study picks an output policy, profiles included."""


def output_policy(name: str, **constants: object) -> OutputPolicy:
    """Return the output policy of a name, a kind of policy or a profile, with the constants that a study sets.

    Raises
    ------
    BadConstants
        For a name or constant that does not exist, and for constants that contradict each other: all in one line.
    """
    kind = OUTPUT_POLICIES.get(name)
    if kind is None:
        raise BadConstants(f"name: {name!r} is no output policy{_near(name, list(OUTPUT_POLICIES))}")
    allowed = kind.constants()
    unknown = [f"{key}: unknown constant of {name}{_near(key, allowed)}" for key in constants if key not in allowed]
    if unknown:
        raise BadConstants("; ".join(unknown))
    return kind(**constants)  # type: ignore[arg-type]  # a wrong type is a fault of its own


def _near(word: str, allowed: list[str]) -> str:
    near = difflib.get_close_matches(word, allowed, n=1)
    return f" - did you mean {near[0]!r}?" if near else f"; allowed: {', '.join(allowed)}"
