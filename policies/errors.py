"""What an API's error answer means for a client: whether the same request may succeed, and whose it is to act."""

from __future__ import annotations

import re

from policies.output.values import ErrorKind

_TOO_LONG = re.compile(
    r"context.?(length|window|size)|(prompt|input|conversation|messages?) (is|are) too long|too many (input )?tokens"
    r"|exceeds? the (max|limit|context)|reduce the length",
    re.IGNORECASE,
)
"""How servers say that a request does not fit the model: OpenAI and vLLM ("maximum context length is"), Anthropic
("prompt is too long"), SGLang, llama.cpp ("exceeds the available context size")."""


def error_kind(status: int, message: str = "") -> ErrorKind:
    """Return what an error answer means.

    Parameters
    ----------
    status
        HTTP status. 429 is a rate limit; 408, 409 and 5xx (Anthropic's 529 too) are the server's trouble; the rest of
        4xx rejects the request.
    message
        The error's text, which tells a request that is too long from one that is otherwise invalid.
    """
    if status == 429:
        return ErrorKind.RATE_LIMITED
    if status >= 500 or status in (408, 409):
        return ErrorKind.SERVER
    return ErrorKind.TOO_LONG if status == 413 or _TOO_LONG.search(message) else ErrorKind.INVALID
