"""Reading single values: what a token count, a time, a duration may look like in a log."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from workloads.trace import MAX_TOKENS

MAX_SECONDS = 1e11  # the year 5138 as a Unix time in seconds; above it the unit is milliseconds or smaller

LAST_YEAR = 2200  # nanoseconds since 1970 fill 64 bits in 2262

_WHOLE = re.compile(r"[+]?\d+(?:\.0*)?(?:[eE][+]?\d{1,2})?")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,12}))?\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?", re.IGNORECASE
)
_EPOCH = datetime(1970, 1, 1)


class Bad(ValueError):
    """A value that is not what its column holds; the message says what is allowed."""


def tokens(value: object) -> int:
    """Return a token count: a whole number from 0 to `MAX_TOKENS`, also as text and as ``12.0``."""
    if isinstance(value, str):
        text = value.strip()
        if not _WHOLE.fullmatch(text):
            raise Bad(f"must be a whole number of tokens, at least 0, got {_short(value)}")
        value = float(text) if not text.isdigit() else int(text) if len(text) < 19 else math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Bad(f"must be a whole number of tokens, at least 0, got {_short(value)}")
    if not 0 <= value <= MAX_TOKENS or value != int(value):
        raise Bad(f"must be a whole number of tokens from 0 to {MAX_TOKENS:,}, got {_short(value)}")
    return int(value)


def seconds(value: object) -> float:
    """Return a finite number of seconds, at least 0."""
    number_ = number(value)
    if not 0 <= number_ <= MAX_SECONDS:
        raise Bad(f"must be seconds from 0 to {MAX_SECONDS:g}, got {_short(value)}")
    return number_


def number(value: object) -> float:
    """Return a finite number, also from text."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        result = float(value)
    except (ValueError, OverflowError):
        raise Bad(f"must be a number, got {_short(value)}") from None
    if not math.isfinite(result):
        raise Bad(f"must be a finite number, got {_short(value)}")
    return result


def timestamp(value: object) -> int:
    """Return nanoseconds since 1970 of an ISO 8601 date and time.

    Fractions keep nine digits (Azure's files have seven); a time without a zone is UTC.
    """
    match = _ISO.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise Bad(f"must be a time like 2023-11-16 18:15:46.6805900, got {_short(value)}")
    *date, fraction, zone = match.groups()
    if not 1970 <= int(date[0]) <= LAST_YEAR:
        raise Bad(f"must lie in the years 1970 to {LAST_YEAR}, got {_short(value)}")
    try:
        moment = datetime(*map(int, date))  # type: ignore[arg-type]
    except ValueError as error:
        raise Bad(f"is no time of the calendar ({error}): {_short(value)}") from None
    ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000 + int((fraction or "0")[:9].ljust(9, "0"))
    if zone and zone.upper() not in ("Z", "UTC"):
        digits = zone[1:].replace(":", "").ljust(4, "0")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        if offset >= timedelta(hours=24):
            raise Bad(f"has a zone beyond 24 hours: {_short(value)}")
        ns += (offset if zone[0] == "-" else -offset) // timedelta(microseconds=1) * 1000
    return ns


def text(value: object) -> str:
    """Return a label: text of at most 200 characters."""
    if not isinstance(value, str) or len(value) > 200:
        raise Bad(f"must be text of at most 200 characters, got {_short(value)}")
    return value


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def instant(value: object) -> float:
    """Return seconds since 1970 of a moment: ISO 8601 text, or a number of seconds, milli-, micro- or nanoseconds.

    The unit of a number is told by its size: seconds up to `MAX_SECONDS` (the year 5138), then the next smaller unit,
    each of which covers years from 1973 on.
    """
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return timestamp(value) / 1e9
    moment = number(value)
    if not 0 <= moment <= MAX_SECONDS * 1e9:
        raise Bad(f"must be a moment since 1970, got {_short(value)}")
    for _ in range(3):
        if moment > MAX_SECONDS:
            moment /= 1e3
    return moment
