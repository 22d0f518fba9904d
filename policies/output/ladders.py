"""The output policies: each says which limits a call climbs through, and the machine climbs them.

Every constant is a field, so that a study may set it by its name. Sources: the design documents (8,000 -> 64,000 -> 3
recoveries, 32,000 fixed, 8K -> 16K -> 32K -> 64K) and the later designs of the client that they describe
(``docs/policies.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from types import MappingProxyType
from typing import ClassVar

from policies.limits import ModelLimits
from policies.output.base import OutputPolicy, is_numbers, listed, not_below, not_negative, positive
from policies.output.machine import Machine, initial
from policies.output.values import Call, Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(OutputPolicy):
    """One limit; a truncated answer is final. The default before the design documents: 32,000.

    Attributes
    ----------
    max_tokens
        Limit of the only request.
    """

    max_tokens: int = 32_000

    opens_with: ClassVar[str] = "max_tokens"

    def _faults(self) -> list[str]:
        return OutputPolicy._faults(self) + positive(max_tokens=self.max_tokens)

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        return (initial(self.max_tokens),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive(OutputPolicy):
    """The design documents: a low first limit, one escalation that generates anew, then continuations.

    Attributes
    ----------
    first_cap
        Limit of the first request (the documents' ``CAPPED_DEFAULT_MAX_TOKENS``).
    escalated_floor
        The escalated limit is the model's, but at least this (``ESCALATED_MAX_TOKENS``), clipped where the model's is
        known.
    recoveries
        How many continuations follow (``MAX_OUTPUT_RECOVERY_ATTEMPTS``).
    """

    first_cap: int = 8_000
    escalated_floor: int = 64_000
    recoveries: int = 3

    opens_with: ClassVar[str] = "first_cap"

    def _faults(self) -> list[str]:
        return (
            OutputPolicy._faults(self)
            + positive(first_cap=self.first_cap)
            + not_negative(recoveries=self.recoveries)
            + not_below("escalated_floor", self.escalated_floor, "first_cap", self.first_cap)
        )

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        escalated = max(self.escalated_floor, known.output or 0)
        return initial(self.first_cap), self._escalation(escalated), *self._recoveries(self.recoveries, escalated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(OutputPolicy):
    """Ours: a first truncated answer is kept and continued at the escalated limit; nothing is generated twice.

    Attributes
    ----------
    first_cap, escalated_floor
        As ``Adaptive``.
    recoveries
        How many continuations follow; the default makes the same five requests at most as ``Adaptive``.
    """

    first_cap: int = 8_000
    escalated_floor: int = 64_000
    recoveries: int = 4

    opens_with: ClassVar[str] = "first_cap"

    def _faults(self) -> list[str]:
        return (
            OutputPolicy._faults(self)
            + positive(first_cap=self.first_cap)
            + not_negative(recoveries=self.recoveries)
            + not_below("escalated_floor", self.escalated_floor, "first_cap", self.first_cap)
        )

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        return initial(self.first_cap), *self._recoveries(self.recoveries, max(self.escalated_floor, known.output or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressive(OutputPolicy):
    """A staircase of limits, generating the whole answer anew on each step: the alternative that the documents reject.

    Attributes
    ----------
    caps
        The limits, rising.
    recoveries
        How many continuations follow at the last limit.
    """

    caps: tuple[int, ...] = (8_000, 16_000, 32_000, 64_000)
    recoveries: int = 0

    opens_with: ClassVar[str] = "caps"

    def __post_init__(self) -> None:
        object.__setattr__(self, "caps", listed(self.caps))
        OutputPolicy.__post_init__(self)

    def _faults(self) -> list[str]:
        faults = OutputPolicy._faults(self) + not_negative(recoveries=self.recoveries)
        if not self.caps or self.caps[0] <= 0 or any(a >= b for a, b in pairwise(self.caps)):
            faults.append(f"caps: {list(self.caps)} is not a rising list of limits above 0")
        return faults

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        escalations = map(self._escalation, self.caps[1:])
        return initial(self.caps[0]), *escalations, *self._recoveries(self.recoveries, self.caps[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimit(OutputPolicy):
    """The client's design after the documents' (E3): the model's own limit at once, continuations after it.

    Attributes
    ----------
    unknown_limit
        Limit of the first request to a model that has none of its own.
    escalated_floor, recoveries
        As ``Adaptive``; where the model's limit is above the floor there is nothing to escalate to.
    """

    unknown_limit: int = 32_000
    escalated_floor: int = 64_000
    recoveries: int = 3

    def _faults(self) -> list[str]:
        return (
            OutputPolicy._faults(self)
            + positive(unknown_limit=self.unknown_limit)
            + not_negative(escalated_floor=self.escalated_floor, recoveries=self.recoveries)
        )

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        first = known.output or self.unknown_limit
        escalated = max(self.escalated_floor, first)
        return initial(first), self._escalation(escalated), *self._recoveries(self.recoveries, escalated)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowClamped(OutputPolicy):
    """The client's present design (E4): the model's limit up to a ceiling, clamped to the room in the window.

    Attributes
    ----------
    unknown_limit
        Limit of the first request to a model that has none of its own.
    ceiling
        Largest limit asked for unless somebody overrides it; also what is escalated to.
    recoveries
        How many continuations follow.
    """

    unknown_limit: int = 32_000
    ceiling: int = 64_000
    recoveries: int = 3

    def _faults(self) -> list[str]:
        return (
            OutputPolicy._faults(self)
            + positive(unknown_limit=self.unknown_limit)
            + not_negative(recoveries=self.recoveries)
            + not_below("ceiling", self.ceiling, "unknown_limit", self.unknown_limit)
        )

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        first = known.output or self.unknown_limit
        if not known.uncapped:
            first = min(first, self.ceiling)
        recoveries = self._recoveries(self.recoveries, max(first, self.ceiling))
        return initial(first), self._escalation(self.ceiling), *recoveries


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile(Adaptive):
    """Ours: the first limit is a quantile of the lengths observed for this kind of call; then as ``Adaptive``.

    The quantile is a newsvendor's: a reserved token that is not written costs 1, a token that is missing costs
    ``cost_ratio``, so the limit is the ``cost_ratio / (1 + cost_ratio)`` quantile of the lengths.

    Attributes
    ----------
    lengths
        Output lengths in tokens by ``"kind/script"``, ``"kind"``, ``"/script"`` or ``""`` (any call), the most
        particular that exists being used: a sample, or equidistant quantiles of one. Without any the first limit is
        ``first_cap``.
    cost_ratio
        Cost of one token missing over the cost of one token reserved in vain.
    first_cap, escalated_floor, recoveries
        As ``Adaptive``; a first limit above the floor moves the floor up.
    """

    lengths: Mapping[str, Sequence[float]] = field(default_factory=dict)
    cost_ratio: float = 99.0

    def __post_init__(self) -> None:
        if isinstance(self.lengths, Mapping):
            object.__setattr__(self, "lengths", {name: listed(sample) for name, sample in self.lengths.items()})
        OutputPolicy.__post_init__(self)
        object.__setattr__(self, "lengths", {name: tuple(sorted(sample)) for name, sample in self.lengths.items()})

    def _misfits(self) -> list[str]:
        if not isinstance(self.lengths, Mapping):
            return [*OutputPolicy._misfits(self), f"lengths: {self.lengths!r} is not a table of lists of numbers"]
        return OutputPolicy._misfits(self) + [
            f"lengths.{name}: {sample!r} is not a list of numbers"
            for name, sample in self.lengths.items()
            if not is_numbers(sample)
        ]

    def _faults(self) -> list[str]:
        faults = Adaptive._faults(self) + positive(cost_ratio=self.cost_ratio)
        for name, sample in self.lengths.items():
            if not sample or min(sample) < 0:
                faults.append(f"lengths.{name}: needs lengths in tokens, none below 0")
        return faults

    def cap(self, kind: str = "", script: str = "") -> int:
        """Return the first limit of a kind of call in a script, in tokens."""
        for name in (f"{kind}/{script}", kind, f"/{script}", ""):
            sample = self.lengths.get(name)
            if sample:
                return max(1, ceil(_quantile(sample, self.cost_ratio / (1 + self.cost_ratio))))
        return self.first_cap

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        first = self.cap(call.kind, call.script)
        escalated = max(self.escalated_floor, known.output or 0, first)
        return initial(first), self._escalation(escalated), *self._recoveries(self.recoveries, escalated)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest length that at least a share of a sample does not exceed."""
    return ordered[max(0, ceil(share * len(ordered) - 1e-9) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing(OutputPolicy):
    """Continuations under a limit that grows with each: found in the wild as x2, x3, capped at 32K.

    Attributes
    ----------
    first_cap
        Limit of the first request. The source names none; the default is the documents'.
    factors
        The limit of the n-th continuation is this multiple of the first; one continuation for each.
    ceiling
        Largest limit.
    """

    first_cap: int = 8_000
    factors: tuple[float, ...] = (2.0, 3.0)
    ceiling: int = 32_768

    opens_with: ClassVar[str] = "first_cap"

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", listed(self.factors))
        OutputPolicy.__post_init__(self)

    def _faults(self) -> list[str]:
        faults = (
            OutputPolicy._faults(self)
            + positive(first_cap=self.first_cap)
            + not_below("ceiling", self.ceiling, "first_cap", self.first_cap)
        )
        if any(factor < 1 for factor in self.factors):
            faults.append(f"factors: {list(self.factors)} has one below 1: a recovery may not lower the limit")
        return faults

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        grown = (min(self.ceiling, int(self.first_cap * factor)) for factor in self.factors)
        return initial(self.first_cap), *(self._recoveries(1, cap)[0] for cap in grown)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShare(OutputPolicy):
    """A share of the server's KV pool as the only limit.

    Attributes
    ----------
    pool_tokens
        Tokens of the pool. No source gives one: a study sets it to its server's.
    share
        Which part of it a response may fill; no source gives one either.
    """

    pool_tokens: int = 128_000
    share: float = 0.25

    opens_with: ClassVar[str] = "pool_tokens"

    def _faults(self) -> list[str]:
        faults = OutputPolicy._faults(self) + positive(pool_tokens=self.pool_tokens)
        return faults if 0 < self.share <= 1 else [*faults, f"share: {self.share} is not a share: 0 < share <= 1"]

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        return (initial(max(1, int(self.share * self.pool_tokens))),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle(OutputPolicy):
    """Reserves the true length: the bound that nobody can beat. Whoever begins its calls has to know that length."""

    needs_oracle: ClassVar[bool] = True

    def begin(self, call: Call, prompt_tokens: int | None = None, *, true_tokens: int | None = None) -> Machine:
        """Return the machine of one call that asks for exactly its true length.

        Raises
        ------
        ValueError
            Without the true length: only an arm that is marked as an oracle may pass it.
        """
        if true_tokens is None:
            raise ValueError(
                "true_tokens: an oracle's calls begin with their true length, which only a simulator knows"
            )
        plan = self._bounded((initial(max(1, true_tokens)),), self._known(call))
        return Machine(plan, call.prompt_tokens if prompt_tokens is None else prompt_tokens)

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        raise AssertionError("an oracle's only request is its true length")


POLICIES: Mapping[str, type[OutputPolicy]] = MappingProxyType(
    {
        "adaptive": Adaptive,
        "fixed": Fixed,
        "progressive": Progressive,
        "model-limit": ModelLimit,
        "window-clamped": WindowClamped,
        "resume": Resume,
        "quantile": Quantile,
        "growing": Growing,
        "pool-share": PoolShare,
        "oracle": Oracle,
    }
)
"""Names under which studies pick a policy; its fields are the constants that they may set."""
