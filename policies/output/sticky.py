"""How long an escalation is remembered: the count that sticky policies go by."""

from __future__ import annotations

from dataclasses import dataclass, replace

from policies.output.base import OutputPolicy
from policies.output.values import Call, Kind, Send


@dataclass(slots=True)
class Since:
    """Counts the calls since the last escalation, within a turn or a whole session, as the policy's scope says.

    Attributes
    ----------
    policy
        The policy of the calls.
    calls
        Calls since the last one that escalated; None if none has.
    """

    policy: OutputPolicy
    calls: int | None = None

    def new_turn(self) -> None:
        """Begin another turn of the user."""
        if self.policy.sticky_scope == "turn":
            self.calls = None

    def tell(self, call: Call) -> Call:
        """Return the call with the count, and count it."""
        told = replace(call, calls_since_escalation=self.calls)
        if self.calls is not None:
            self.calls += 1
        return told

    def heard(self, send: Send) -> None:
        """Take note of a request of the present call."""
        if send.kind is Kind.ESCALATION:
            self.calls = 0
