"""What both transports do alike: the text of a message, the server's wish to wait, a stream that breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpx2

from policies.messages import NOTHING, Content, Text

BROKEN_STREAM = (httpx2.TransportError, json.JSONDecodeError)
"""What reading a stream raises that broke off: neither library wraps it."""


def text_of(content: Content) -> str:
    """Return the text of a message.

    Raises
    ------
    ValueError
        If it has none: messages of a simulation know only their size.
    """
    if content is NOTHING:
        return ""
    if not isinstance(content, Text):
        raise ValueError(f"a message without text cannot be sent: {content!r}")
    return content.text


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds that a ``retry-after`` header asks to wait; 0 without one, and for one that is a date."""
    try:
        return max(0.0, float(headers.get("retry-after", "0")))
    except ValueError:
        return 0.0
