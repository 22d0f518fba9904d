"""Calls gathered one by one from logs of JSON records."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import Any

import numpy as np

from workloads.readers.build import Build
from workloads.readers.jsonl import Record
from workloads.readers.recording import Recording
from workloads.trace import Labels

NAN = float("nan")


class Calls:
    """The columns of a trace as they grow; what no record tells stays out of the trace.

    Parameters
    ----------
    build
        The file they come from.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._ids: dict[Hashable, int | None] = {}
        self._lines, self._arrival = array("q"), array("d")
        self._counts = {
            name: array("q") for name in ("prompt_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
        }
        self._times = {name: array("d") for name in ("think_s", "service_s")}
        self._truncated = array("b")
        self._kinds: list[str] = []
        self._sessions: dict[Hashable, int] = {}
        self._session = array("q")
        self._told: set[str] = set()

    def add(
        self,
        record: Record,
        arrival_s: float,
        prompt: int,
        output: int,
        *,
        id: Hashable = None,
        cached: int | None = None,
        reasoning: int | None = None,
        truncated: bool | None = None,
        kind: str | None = None,
        session: Hashable = None,
        think_s: float | None = None,
        service_s: float | None = None,
    ) -> None:
        """Add one call unless its record is bad; a second call with the same ``id`` is a fault."""
        if id is not None:
            if id in self._ids:
                record.fault("id", f"{str(id)[:40]!r} stands already in line {self._ids[id]}", "duplicate id")
            else:
                self._ids[id] = record.line
        if record.bad:
            return
        given = {
            "cached_tokens": cached,
            "reasoning_tokens": reasoning,
            "truncated": truncated,
            "kind": kind,
            "session": session,
            "think_s": think_s,
            "service_s": service_s,
        }
        self._told |= {name for name, value in given.items() if value is not None}
        self._lines.append(record.line or 0)
        self._arrival.append(arrival_s)
        self._counts["prompt_tokens"].append(prompt)
        self._counts["output_tokens"].append(output)
        self._counts["cached_tokens"].append(cached or 0)
        self._counts["reasoning_tokens"].append(reasoning or 0)
        self._times["think_s"].append(NAN if think_s is None else think_s)
        self._times["service_s"].append(NAN if service_s is None else service_s)
        self._truncated.append(bool(truncated))
        self._kinds.append(kind or "unknown")
        owner = ("alone", len(self._arrival)) if session is None else ("named", session)
        self._session.append(self._sessions.setdefault(owner, len(self._sessions)))

    def __len__(self) -> int:
        return len(self._arrival)

    def ordered(self) -> Recording:
        """Return the recording of a format that promises order of arrival."""
        return self._build.ordered(np.asarray(self._lines), **self._columns())

    def sorted(self) -> Recording:
        """Return the recording of a log in any order."""
        return self._build.sorted(**self._columns())

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {
            "arrival_s": np.asarray(self._arrival),
            "truncated": np.asarray(self._truncated).astype(np.bool_),
            "kind": Labels.of(self._kinds),
            "session": np.asarray(self._session),
        }
        columns |= {name: np.asarray(values) for name, values in (self._counts | self._times).items()}
        always = ("arrival_s", "prompt_tokens", "output_tokens")
        return {name: values for name, values in columns.items() if name in always or name in self._told}
