"""The output policies: each says which limits a call climbs through, and the machine climbs them.

Every constant is a field, so that a study may set it by its name. Sources: the design documents (8,000 -> 64,000 -> 3
recoveries, 32,000 fixed, 8K -> 16K -> 32K -> 64K) and the later designs of the client that they describe
(``docs/policies.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from types import MappingProxyType
from typing import ClassVar

from policies import limits
from policies.limits import ModelLimits
from policies.output.machine import Clamp, Machine, Plan, Rules, escalation, initial, recovery
from policies.output.values import BadConstants, Call, Retries, Send

_RECOVERY_TOKENS = 46
_KEEP_ALL = Rules()
_PLANS_KEPT = 1024

Key = tuple[str, int | None, int | None, int | None, int | str | None, str, str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPolicy:
    """What all output policies share: the model's limits, the window clamp, the overrides of user and environment.

    An override is sent as the only request: the user's value before the environment's,
    clipped to the output limit of a model that has one.

    Attributes
    ----------
    table
        Which table of ``policies.limits`` knows the models: "0.15" or "0.24".
    margin_tokens, margin_share, floor
        The window clamp: prompt and response stay ``max(margin_tokens, margin_share * window)`` tokens below the
        window, and a response of fewer than ``floor`` tokens is refused instead of asked for. Source: the client's
        version 0.24.4.
    message_tokens
        Size of the recovery message in tokens. Source: the client's 183 characters, at 4 a token.
    retry_escalated
        Whether transient errors of escalations and recoveries go through the retry machine. The documents let them
        through to the caller; the client they describe retries them.
    sticky
        For how many calls after an escalation a call opens at the escalated limit. 0 opens every call at the first
        limit.
    rules
        What the client does beside choosing limits; the default keeps every invariant.

    Raises
    ------
    BadConstants
        If constants are out of range or contradict each other; all of them in one line.
    """

    table: str = "0.24"
    margin_tokens: int = 10_000
    margin_share: float = 0.05
    floor: int = 4_000
    message_tokens: int = _RECOVERY_TOKENS
    retry_escalated: bool = False
    sticky: int = 0
    rules: Rules = _KEEP_ALL
    _plans: dict[Key, Plan] = field(default_factory=dict, init=False, repr=False, compare=False)

    needs_oracle: ClassVar[bool] = False

    def __post_init__(self) -> None:
        faults = self._faults()
        if faults:
            raise BadConstants("; ".join(faults))

    def _faults(self) -> list[str]:
        faults = [
            f"{name}: {value} is negative"
            for name in ("margin_tokens", "floor", "message_tokens", "sticky")
            if (value := getattr(self, name)) < 0
        ]
        if not 0 <= self.margin_share < 1:
            faults.append(f"margin_share: {self.margin_share} is not a share of the window: 0 <= share < 1")
        if self.table not in limits.TABLES:
            faults.append(f"table: {self.table!r} is unknown; allowed: {', '.join(limits.TABLES)}")
        return faults

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        """Return what the policy would send, before the model's limit and the window have their say."""
        raise NotImplementedError

    def begin(self, call: Call) -> Machine:
        """Return the machine of one call. The plans of equal calls are shared, so this is cheap."""
        sticky = call.calls_since_escalation is not None and call.calls_since_escalation < self.sticky
        key = (
            call.model,
            call.window,
            call.output_limit,
            call.user_max_tokens,
            call.env_max_tokens,
            call.kind,
            call.script,
            sticky,
        )
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            plan = self._plans[key] = self._plan(call, sticky)
        return Machine(plan, call.prompt_tokens)

    def _plan(self, call: Call, sticky: bool) -> Plan:
        known = self._known(call)
        override = self.rules.precedence(call.user_max_tokens, call.env_max_tokens)
        rungs = self._rungs(call, known)
        if sticky and len(rungs) > 1:
            rungs = (initial(rungs[1].requested), *rungs[2:])
        if override.value is not None:
            rungs = (initial(override.value), *rungs[1:])
        return self._bounded(rungs[:1] if override.final else rungs, known)

    def _known(self, call: Call) -> ModelLimits:
        known = limits.lookup(self.table, call.model)
        return replace(
            known,
            output=known.output if call.output_limit is None else call.output_limit,
            window=known.window if call.window is None else call.window,
        )

    def _bounded(self, rungs: tuple[Send, ...], known: ModelLimits) -> Plan:
        clamp = Clamp(self.margin_tokens, self.margin_share, self.floor, self.rules.refuses)
        room = clamp.room(known.window) if self.rules.clamps and known.window is not None else None
        return Plan(tuple(_limited(rung, known.output) for rung in rungs), self.rules, clamp, room)

    def _recoveries(self, count: int, max_tokens: int) -> tuple[Send, ...]:
        return (recovery(max_tokens, self.message_tokens, self._retried()),) * count

    def _escalation(self, max_tokens: int) -> Send:
        return escalation(max_tokens, self._retried())

    def _retried(self) -> Retries:
        return self.rules.retried if self.retry_escalated else Retries.NONE


def _limited(rung: Send, limit: int | None) -> Send:
    """Return a request clipped to the output limit of a model that has one."""
    return rung if limit is None or rung.max_tokens <= limit else replace(rung, max_tokens=limit)


def _positive(**constants: float) -> list[str]:
    return [f"{name}: {value} is not above 0" for name, value in constants.items() if value <= 0]


def _not_negative(**constants: float) -> list[str]:
    return [f"{name}: {value} is negative" for name, value in constants.items() if value < 0]


def _not_below(name: str, value: int, other_name: str, other: int) -> list[str]:
    return (
        [f"{name}: {value} is below {other_name}, {other}: an escalation has to raise the limit"]
        if value < other
        else []
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(OutputPolicy):
    """One limit; a truncated answer is final. The default before the design documents: 32,000."""

    max_tokens: int = 32_000

    def _faults(self) -> list[str]:
        return OutputPolicy._faults(self) + _positive(max_tokens=self.max_tokens)

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

    def _faults(self) -> list[str]:
        return (
            OutputPolicy._faults(self)
            + _positive(first_cap=self.first_cap)
            + _not_negative(recoveries=self.recoveries)
            + _not_below("escalated_floor", self.escalated_floor, "first_cap", self.first_cap)
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

    def _faults(self) -> list[str]:
        return (
            OutputPolicy._faults(self)
            + _positive(first_cap=self.first_cap)
            + _not_negative(recoveries=self.recoveries)
            + _not_below("escalated_floor", self.escalated_floor, "first_cap", self.first_cap)
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "caps", tuple(self.caps))  # a study file gives a list
        OutputPolicy.__post_init__(self)

    def _faults(self) -> list[str]:
        faults = OutputPolicy._faults(self) + _not_negative(recoveries=self.recoveries)
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
            + _positive(unknown_limit=self.unknown_limit)
            + _not_negative(escalated_floor=self.escalated_floor, recoveries=self.recoveries)
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
            + _positive(unknown_limit=self.unknown_limit)
            + _not_negative(recoveries=self.recoveries)
            + _not_below("ceiling", self.ceiling, "unknown_limit", self.unknown_limit)
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
        object.__setattr__(self, "lengths", {name: tuple(sorted(sample)) for name, sample in self.lengths.items()})
        OutputPolicy.__post_init__(self)

    def _faults(self) -> list[str]:
        faults = Adaptive._faults(self) + _positive(cost_ratio=self.cost_ratio)
        for name, sample in self.lengths.items():
            if not sample or sample[0] < 0:
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
class Oracle(OutputPolicy):
    """Reserves the true length: the bound that nobody can beat. Whoever begins its calls has to know that length."""

    needs_oracle: ClassVar[bool] = True

    def begin(self, call: Call, *, true_tokens: int | None = None) -> Machine:
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
        return Machine(plan, call.prompt_tokens)

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
        "oracle": Oracle,
    }
)
"""Names under which studies pick a policy; its fields are the constants that they may set."""
