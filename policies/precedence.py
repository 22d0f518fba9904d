"""Whose ``max_tokens`` wins: the user's, then the environment's, then the policy's own.

The documents' table (002, "Bestimmung des Token-Limits") is ``documents``; the two others are what the client's
builds really do. All three agree on the order and part on what counts as a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Override:
    """What user and environment say about ``max_tokens``.

    Attributes
    ----------
    value
        The limit they ask for in tokens; None leaves it to the policy.
    final
        Whether a truncated answer is then final: no escalation, no recovery.
    """

    value: int | None
    final: bool


Precedence = Callable[[object, object], Override]
"""From the user's value and the environment's, both as they stand there, to what they mean."""


def documents(user: object, env: object) -> Override:
    """Return the first positive integer of user and environment; nothing else counts."""
    value = _positive(user) or _positive(env)
    return Override(value, final=value is not None)


def client_015(user: object, env: object) -> Override:
    """Return what version 0.15 makes of them.

    A leading integer of the environment's text is its value, and any text at all ends escalation and recovery.
    """
    leading = re.match(r"\s*\+?(\d+)", str(env)) if env is not None else None
    value = _positive(user) or _positive(leading and leading.group(1))
    return Override(value, final=user is not None or env not in (None, ""))


def client_024(user: object, env: object) -> Override:
    """Return what version 0.24 makes of them: the user's is final whatever it is, the environment's if it is digits."""
    env_value = _positive(env)
    return Override(_positive(user) or env_value, final=user is not None or env_value is not None)


def _positive(value: object) -> int | None:
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
