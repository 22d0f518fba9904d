"""What is recorded: one row a request and one a call, gathered in typed columns as the simulation goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.output import FinishReason, Kind

Rows = NDArray[np.void]

KINDS = tuple(Kind)
FINISHES = tuple(FinishReason)
REFUSALS = ("", "beyond the window", "beyond the pool", "queue is full", "no room for an answer")
OUTCOMES = ("complete", "truncated", "failed")
"""Categories of the coded columns, by code."""

REQUEST = np.dtype(
    [
        ("call", "i4"),
        ("attempt", "i1"),
        ("kind", "i1"),
        ("prompt_tokens", "i4"),
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
    ]
)
"""A request: the call it belongs to, its place among that call's requests (from 0), what it asked for and got, when."""

CALL = np.dtype(
    [
        ("call", "i4"),
        ("kind", "i2"),
        ("script", "i2"),
        ("attempts", "i1"),
        ("outcome", "i1"),
        ("first_truncated", "?"),
        ("final_truncated", "?"),
        ("prompt_tokens", "i4"),
        ("true_tokens", "i4"),
        ("delivered_tokens", "i4"),
        ("discarded_tokens", "i4"),
        ("arrival_s", "f8"),
        ("finished_s", "f8"),
        ("reserved_token_s", "f4"),
    ]
)
"""A call: what the model would have written, what was delivered, what was generated and thrown away, when."""

CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "request.kind": tuple(kind.value for kind in KINDS),
        "request.finish": tuple(finish.value for finish in FINISHES),
        "request.refusal": REFUSALS,
        "call.outcome": OUTCOMES,
    }
)

BLOCK = 8192
"""Rows that wait as tuples before they become columns."""


@dataclass(slots=True)
class Log:
    """Rows of one kind: appended as tuples, kept as typed columns (about 65 bytes a row).

    Attributes
    ----------
    dtype
        The row.
    pending
        Rows to be packed; append to it and call :meth:`pack` from time to time.
    """

    dtype: np.dtype[Any]
    pending: list[tuple[Any, ...]] = field(default_factory=list)
    _packed: list[Rows] = field(default_factory=list)

    def pack(self) -> None:
        """Turn the pending rows into columns."""
        if self.pending:
            self._packed.append(np.array(self.pending, dtype=self.dtype))
            self.pending.clear()

    def rows(self) -> Rows:
        """Return all rows so far."""
        self.pack()
        if len(self._packed) != 1:
            self._packed = [np.concatenate(self._packed) if self._packed else np.empty(0, self.dtype)]
        return self._packed[0]
