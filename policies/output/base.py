"""What all output policies share: the model's limits, the window clamp, overrides, and how a call begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, NamedTuple

from policies import limits
from policies.limits import ModelLimits
from policies.output.machine import Clamp, Machine, Plan, Rules, escalation, initial, recovery
from policies.output.values import BadConstants, Call, Retries, Send

_RECOVERY_TOKENS = 46
SCOPES = ("turn", "session")
_KEEP_ALL = Rules()


def is_number(value: object) -> bool:
    """Return whether a value is a number (true and false are none)."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_numbers(value: object) -> bool:
    """Return whether a value is a tuple of numbers."""
    return isinstance(value, tuple) and all(map(is_number, value))


def listed(value: object) -> object:
    """Return a list, as study files give them, as a tuple; anything else as it is, to be found fault with."""
    return tuple(value) if isinstance(value, list | range) else value


class _Wanted(NamedTuple):
    fits: Callable[[object], bool]
    words: str


_TYPES = {
    bool: _Wanted(lambda value: isinstance(value, bool), "true or false"),
    int: _Wanted(lambda value: isinstance(value, int) and is_number(value), "a whole number"),
    float: _Wanted(is_number, "a number"),
    str: _Wanted(lambda value: isinstance(value, str), "text"),
    tuple: _Wanted(is_numbers, "a list of numbers"),
}
_PLANS_KEPT = 1024

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPolicy:
    """An output policy: constants, and what a call that begins with them would send.

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
    sticky_scope
        How far an escalation is remembered: "turn" forgets it at the user's next message, "session" does not.
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
    sticky_scope: str = "turn"
    rules: Rules = field(default=_KEEP_ALL, repr=False)
    _plans: dict[Key, Plan] = field(default_factory=dict, init=False, repr=False, compare=False)
    _begun: dict[int, tuple[Call, Plan]] = field(default_factory=dict, init=False, repr=False, compare=False)

    needs_oracle: ClassVar[bool] = False
    opens_with: ClassVar[str] = ""
    """The constant that holds the first limit; empty where the model's limit does."""

    def __post_init__(self) -> None:
        faults = self._misfits() or self._faults()
        if faults:
            raise BadConstants("; ".join(faults))

    def _misfits(self) -> list[str]:
        """Return a fault for each constant that is of another type than its default."""
        faults = []
        for each in fields(self):
            value = getattr(self, each.name)
            wanted = _TYPES.get(type(each.default))
            if wanted and not wanted.fits(value):
                faults.append(f"{each.name}: {value!r} is not {wanted.words}")
        return faults

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
        if self.sticky_scope not in SCOPES:
            faults.append(f"sticky_scope: {self.sticky_scope!r} is unknown; allowed: {', '.join(SCOPES)}")
        return faults

    @classmethod
    def constants(cls) -> list[str]:
        """Return the names of the constants that a study may set."""
        return [each.name for each in fields(cls) if each.init and each.name != "rules"]

    def _rungs(self, call: Call, known: ModelLimits) -> tuple[Send, ...]:
        """Return what the policy would send, before the model's limit and the window have their say."""
        raise NotImplementedError

    def beyond(self, window: int) -> str:
        """Return the fault of constants under which no call fits a window of so many tokens, or an empty string."""
        first = self._rungs(Call(), ModelLimits(None, None))[0].max_tokens if self.opens_with else 1
        if first > window:
            return f"{self.opens_with}: {first:,} tokens are above the model's window, {window:,}"
        clamp = Clamp(self.margin_tokens, self.margin_share, self.floor, self.rules.refuses)
        if self.rules.clamps and clamp.fit(first, clamp.room(window)) is None:
            return (
                f"margin_tokens: {self.margin_tokens:,} leave no room for an answer in the model's window, {window:,}"
            )
        return ""

    def begin(self, call: Call, prompt_tokens: int | None = None) -> Machine:
        """Return the machine of one call. The plans of equal calls are shared, so this is cheap.

        Parameters
        ----------
        call
            What the client knows of the call.
        prompt_tokens
            The estimate of the prompt where the call's own does not hold: many calls that differ in nothing else can
            be begun with one description.
        """
        known = self._begun.get(id(call))  # one description begins many calls: found without a look at its fields
        if known is not None and known[0] is call:
            plan = known[1]
        else:
            plan = self._shared(call)
            if len(self._begun) >= _PLANS_KEPT:
                self._begun.clear()
            self._begun[id(call)] = (call, plan)
        return Machine(plan, call.prompt_tokens if prompt_tokens is None else prompt_tokens)

    def _shared(self, call: Call) -> Plan:
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
        return plan

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


def positive(**constants: float) -> list[str]:
    """Return a fault for each constant that is not above 0."""
    return [f"{name}: {value} is not above 0" for name, value in constants.items() if value <= 0]


def not_negative(**constants: float) -> list[str]:
    """Return a fault for each constant that is below 0."""
    return [f"{name}: {value} is negative" for name, value in constants.items() if value < 0]


def not_below(name: str, value: int, other_name: str, other: int) -> list[str]:
    """Return a fault if a limit is below the one that it has to raise."""
    fault = f"{name}: {value} is below {other_name}, {other}: an escalation has to raise the limit"
    return [fault] if value < other else []
