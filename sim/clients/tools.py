"""What kinds of calls end in: a tool call, and what the model does when that is rejected because it was cut."""

from __future__ import annotations

from dataclasses import dataclass

from policies.output import ToolKind
from workloads.lengths import Length


@dataclass(frozen=True, slots=True)
class Tool:
    """The tool that a kind of calls ends in, and what the model does when its call is rejected.

    The whole answer is the tool call: the true length of the first call is the work, all in one.

    Attributes
    ----------
    kind
        What the tool does to the world.
    splits
        Probability that the model, told to split its work, does: else it sends the same call again.
    part
        Tokens of each part, drawn anew for each call; the last part is what is left.
    rejections
        Rejected calls with which a task is given up.
    result_tokens
        Tokens of what the tool answers to a call that ran.
    """

    kind: ToolKind
    splits: float
    part: Length
    rejections: int = 10
    result_tokens: int = 50
