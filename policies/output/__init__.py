"""Output policies: what ``max_tokens`` a call asks for, and what is done about a truncated answer.

machine = policy.begin(call)
decision = machine.first()
while isinstance(decision, Send):
    decision = machine.after(response_to(decision))
"""

from policies.output.base import OutputPolicy
from policies.output.ladders import (
    POLICIES,
    Adaptive,
    Fixed,
    Growing,
    ModelLimit,
    Oracle,
    PoolShare,
    Progressive,
    Quantile,
    Resume,
    WindowClamped,
)
from policies.output.machine import MOVES, Event, Machine, Raises, Rules, State
from policies.output.values import (
    BadConstants,
    Call,
    Carried,
    Decision,
    Done,
    ErrorKind,
    Fail,
    FinishReason,
    IllegalMove,
    Kind,
    Outcome,
    Partial,
    Reject,
    Response,
    Retries,
    Send,
    ToolKind,
    ToolUse,
)

__all__ = [
    "MOVES",
    "POLICIES",
    "Adaptive",
    "BadConstants",
    "Call",
    "Carried",
    "Decision",
    "Done",
    "ErrorKind",
    "Event",
    "Fail",
    "FinishReason",
    "Fixed",
    "Growing",
    "IllegalMove",
    "Kind",
    "Machine",
    "ModelLimit",
    "Oracle",
    "Outcome",
    "OutputPolicy",
    "Partial",
    "PoolShare",
    "Progressive",
    "Quantile",
    "Raises",
    "Reject",
    "Response",
    "Resume",
    "Retries",
    "Rules",
    "Send",
    "State",
    "ToolKind",
    "ToolUse",
    "WindowClamped",
]
