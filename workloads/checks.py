"""Checks of values that a study sets, all faults of an object at once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from workloads.errors import BadInput, Fault

Rule = tuple[str, object, bool, str]


def require(*rules: Rule) -> None:
    """Raise for every rule that does not hold.

    Parameters
    ----------
    rules
        ``(key, value, holds, what is allowed)`` each.

    Raises
    ------
    workloads.errors.BadInput
        One fault a broken rule, named by its key.
    """
    broken = [Fault(f"must be {allowed}, got {value!r}", key=key) for key, value, holds, allowed in rules if not holds]
    if broken:
        raise BadInput(*broken)


def positive(key: str, value: float) -> Rule:
    """Return the rule that a value is a finite number above 0."""
    return key, value, is_number(value) and value > 0, "a finite number above 0"


def at_least(key: str, value: float, low: float) -> Rule:
    """Return the rule that a value is a finite number not below ``low``."""
    return key, value, is_number(value) and value >= low, f"a finite number, at least {low:g}"


def share(key: str, value: float) -> Rule:
    """Return the rule that a value is a share from 0 to 1."""
    return key, value, is_number(value) and 0 <= value <= 1, "a share from 0 to 1"


def whole(key: str, value: float, low: int, high: int) -> Rule:
    """Return the rule that a value is a whole number of a range."""
    holds = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    return key, value, holds, f"a whole number from {low:,} to {high:,}"


def exactly_one(keys: Iterable[str], values: Iterable[object]) -> Rule:
    """Return the rule that exactly one of several keys is set."""
    names, given = list(keys), list(values)
    found = [name for name, value in zip(names, given, strict=True) if value is not None]
    return " | ".join(names), ", ".join(found) or "none", len(found) == 1, "set by exactly one of them"


def is_number(value: object) -> bool:
    """Return whether a value is a finite int or float (and no bool)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
