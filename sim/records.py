"""What is recorded: one row a request and one a call, gathered in typed columns as the simulation goes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from policies.output import FinishReason, Kind
from sim.rows import Log, Rows

KINDS = tuple(Kind)
FINISHES = tuple(FinishReason)
REFUSALS = (
    *("", "beyond the window", "beyond the pool", "queue is full", "no room for an answer"),
    *("rate limited", "server error", "tool call without a result", "given up"),
)
OUTCOMES = ("complete", "truncated", "rejected", "failed", "abandoned")
TASK_OUTCOMES = ("done", "given up", "failed")
"""Categories of the coded columns, by code."""

REQUEST = np.dtype(
    [
        ("call", "i4"),
        ("attempt", "i2"),
        ("kind", "i1"),
        ("prompt_tokens", "i4"),
        ("cached_tokens", "i4"),
        ("max_tokens", "i4"),
        ("output_tokens", "i4"),
        ("finish", "i1"),
        ("refusal", "i1"),
        ("preemptions", "i4"),
        ("submitted_s", "f8"),
        ("scheduled_s", "f8"),
        ("first_token_s", "f8"),
        ("finished_s", "f8"),
        ("reserved_token_s", "f4"),
    ],
    align=True,
)
"""A request: the call it belongs to, its place among that call's requests (from 0), what it asked for and got, when."""

CALL = np.dtype(
    [
        ("call", "i4"),
        ("kind", "i2"),
        ("script", "i2"),
        ("attempts", "i2"),
        ("outcome", "i1"),
        ("first_truncated", "?"),
        ("final_truncated", "?"),
        ("prompt_tokens", "i4"),
        ("true_tokens", "i4"),
        ("delivered_tokens", "i4"),
        ("discarded_tokens", "i4"),
        ("task", "i4"),
        ("arrival_s", "f8"),
        ("finished_s", "f8"),
        ("reserved_token_s", "f4"),
    ],
    align=True,
)
"""A call: what the model would have written, what was delivered, what was generated and thrown away, its task, when."""

TASK = np.dtype(
    [
        ("task", "i4"),
        ("kind", "i2"),
        ("script", "i2"),
        ("outcome", "i1"),
        ("calls", "i4"),
        ("requests", "i4"),
        ("rejections", "i4"),
        ("work_tokens", "i4"),
        ("written_tokens", "i4"),
        ("generated_tokens", "i4"),
        ("arrival_s", "f8"),
        ("finished_s", "f8"),
        ("reserved_token_s", "f8"),
    ],
    align=True,
)
"""A task: calls that follow one another until its work is written, what that took, when."""

CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "request.kind": tuple(kind.value for kind in KINDS),
        "request.finish": tuple(finish.value for finish in FINISHES),
        "request.refusal": REFUSALS,
        "call.outcome": OUTCOMES,
        "task.outcome": TASK_OUTCOMES,
    }
)


class Table(Log):
    """All rows of one kind, about 70 bytes a row.

    Parameters
    ----------
    dtype
        The row.
    """

    __slots__ = ("_bytes",)

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._bytes = bytearray()  # grows where it is: blocks would have to be held twice to become one array
        super().__init__(dtype, self._bytes.extend)

    def all(self) -> Rows:
        """Return all rows so far, without a copy; none can be added as long as somebody holds them."""
        self.flush()
        return np.frombuffer(self._bytes, self._dtype)
