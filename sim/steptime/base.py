"""What a step-time model answers, and where its constants are from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

Segment = tuple[float, float, int]
"""``(base, slope, steps)``: the k-th of the next `steps` equal steps, k from 0, costs ``base + k * slope`` seconds."""

Chunk = tuple[int, int]
"""``(tokens, past)``: a prompt piece computed in a step, and the tokens of its request that are already stored."""

FOREVER = 1 << 60
"""The steps of a segment that never breaks."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a model's constants are from; it travels into every summary and report.

    Attributes
    ----------
    kind
        The model's name in a study.
    engine, version, hardware, date
        What was measured, where and when; empty where the constants are nobody's measurement.
    source
        Where the constants are from, in words.
    constants
        Their values, in SI units.
    covers
        Smallest and largest value measured of some axes; empty where a model holds everywhere it is defined. The axes:
        ``running`` (requests in a step), ``prompt_tokens``, ``request_tokens`` (prompt and output).
    """

    kind: str
    source: str
    engine: str = ""
    version: str = ""
    hardware: str = ""
    date: str = ""
    constants: Mapping[str, float] = field(default_factory=dict)
    covers: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return one line for people: model, hardware, engine, version, date, constants that are not 0, source."""
        measured = ", ".join(filter(None, (self.hardware, f"{self.engine} {self.version}".strip(), self.date)))
        head = f"{self.kind} ({measured})" if measured else self.kind
        constants = ", ".join(f"{name} {value:.4g}" for name, value in self.constants.items() if value)
        return f"{head}: {'; '.join(filter(None, (constants, self.source)))}"

    def outside(self, seen: Mapping[str, tuple[float, float]]) -> list[str]:
        """Return one line for each axis on which what was seen leaves the covered range."""
        lines = []
        for axis, (low, high) in self.covers.items():
            least, most = seen.get(axis, (low, high))
            if least < low or most > high:
                reach = f"{least:,.0f} to {most:,.0f}"
                lines.append(
                    f"{axis} of {reach} leave the {low:,.0f} to {high:,.0f} that the step times were measured at"
                )
        return lines


@runtime_checkable
class StepTime(Protocol):
    """How long an iteration of the server takes."""

    @property
    def provenance(self) -> Provenance:
        """Where the constants are from."""

    def segment(self, decodes: int, context: int, chunks: Sequence[Chunk] = ()) -> Segment:
        """Return the cost of this step and of the equal ones after it.

        Parameters
        ----------
        decodes
            Requests that make one token each.
        context
            Their stored tokens in sum (prompts and generated so far).
        chunks
            Prompt pieces computed in the same step. Not both `decodes` = 0 and no chunk.

        Returns
        -------
        Segment
            Seconds. From step to step every decoding context grows by one token (`context` by `decodes`) and the past
            of every chunk by its own tokens; `steps` >= 1 is how long the straight line holds.
        """


def upper(first: tuple[float, float], second: tuple[float, float]) -> Segment:
    """Return the larger of two lines ``value + k * slope`` at k = 0, and for how many steps it stays the larger."""
    (a, up), (b, rise) = first, second
    if a < b or (a == b and up < rise):
        a, up, b, rise = b, rise, a, up
    return (a, up, FOREVER if up >= rise else min(FOREVER, int((a - b) / (rise - up)) + 1))
