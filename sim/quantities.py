"""Numbers with units, as studies write them: ``"30min"``, ``"250ms"``, ``"64k"``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

DURATIONS: Mapping[str, float] = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
"""Units of time in seconds."""

SIZES: Mapping[str, float] = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "Ki": 1024.0, "Mi": 1024.0**2, "Gi": 1024.0**3}
"""Units of counts: ``8k`` is 8,000 tokens, as the cap named 8K is; ``8Ki`` is 8,192."""

Hint: TypeAlias = Any
"""A type, as pydantic reads it."""

_NUMBER = r"[+-]?(?:\d[\d_]*)(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]*)\s*")


def parse(value: object, units: Mapping[str, float]) -> float | int:
    """Return a number, or a text of a number and one of the units, as a finite number in the base unit.

    Raises
    ------
    ValueError
        If it is neither, or is not finite.
    """
    allowed = f"must be a number, alone or as text with a unit ({', '.join(units)})"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{allowed}, got {value!r}")
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or (match[2] and match[2] not in units):
            raise ValueError(f"{allowed}, got {value!r}")
        number = float(match[1]) * units.get(match[2], 1.0)
        value = round(number, 12) if number != 0 and abs(number) < 1 else number
        value = int(value) if math.isfinite(value) and value == int(value) else value
    if not math.isfinite(value):
        raise ValueError(f"must be finite, got {value!r}")
    return value


def _whole(units: Mapping[str, float]) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = parse(value, units)
        if number != int(number):
            raise ValueError(f"must be a whole number, got {value!r}")
        return int(number)

    return read


def _real(units: Mapping[str, float]) -> Callable[[object], float]:
    return lambda value: float(parse(value, units))


def _schema(kind: str, units: Mapping[str, float]) -> WithJsonSchema:
    pattern = rf"^\s*{_NUMBER}\s*({'|'.join(units)})?\s*$"
    return WithJsonSchema({"anyOf": [{"type": kind}, {"type": "string", "pattern": pattern}]})


# the texts among the annotations are how the reference names the types
Duration = Annotated[float, BeforeValidator(_real(DURATIONS)), _schema("number", DURATIONS), "duration"]
"""Seconds, or a text such as ``"30min"``."""

Number = Annotated[float, BeforeValidator(_real(SIZES)), _schema("number", SIZES), "number"]
"""A finite number, or a text such as ``"1.5k"``."""

Size = Annotated[int, BeforeValidator(_whole(SIZES)), _schema("integer", SIZES), "whole number"]
"""A whole number, or a text such as ``"312_000"`` or ``"64k"``."""

Positive = Annotated[Size, Field(gt=0)]
"""A whole number above 0."""

Share = Annotated[Number, Field(ge=0, le=1)]
"""A number from 0 to 1."""


def quantity(kind: type[int] | type[float], name: str) -> Hint:
    """Return how a study writes a number of this Python type: a field whose name ends in ``_s`` is a duration."""
    if kind is int:
        return Size
    return Duration if name.endswith("_s") else Number
