"""Bounds that a study sets on its metrics; they decide the exit code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self

from sim import quantities

Outcome = Literal["pass", "fail", "undecided"]

_FORM = re.compile(r"\s*(<=|>=|<|>)\s*(.+?)\s*")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A bound on a metric.

    Attributes
    ----------
    relation
        ``<=``, ``<``, ``>=`` or ``>``.
    bound
        In the metric's unit.
    """

    relation: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the threshold that a text such as ``"<= 60"`` says; the bound may carry a unit of time or size.

        Raises
        ------
        ValueError
            If it is none.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f'must be a relation (<=, <, >=, >) and a number, such as "<= 60", got {text!r}')
        try:
            bound = quantities.parse(match[2], {**quantities.SIZES, **quantities.DURATIONS})
        except ValueError as error:
            raise ValueError(f"after {match[1]}: {error}") from None
        return cls(match[1], float(bound))

    def decide(self, low: float | None, high: float | None) -> Outcome:
        """Return whether a metric with this interval meets the bound.

        ``pass`` if the whole interval does, ``fail`` if none of it does, else ``undecided``; so is a metric without an
        interval (one replication, or no value).
        """
        if low is None or high is None:
            return "undecided"
        meets = [self._holds(end) for end in (low, high)]
        return "pass" if all(meets) else "undecided" if any(meets) else "fail"

    def _holds(self, value: float) -> bool:
        match self.relation:
            case "<=":
                return value <= self.bound
            case "<":
                return value < self.bound
            case ">=":
                return value >= self.bound
            case _:
                return value > self.bound

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"
