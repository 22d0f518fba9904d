"""Anthropic's messages, streamed, on the official ``anthropic`` library (extra ``anthropic``)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import anthropic

from policies.drive.transport import (
    CallDelta,
    CitationDelta,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    TransportError,
    Usage,
)
from policies.drive.wording import BROKEN_STREAM, retry_after_s, text_of
from policies.errors import error_kind
from policies.messages import Message, Role
from policies.output import ErrorKind, FinishReason
from policies.wire import ANTHROPIC, Dialect

_FINISH = {
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
}
_ERRORS = {"rate_limit_error": 429, "overloaded_error": 529, "api_error": 500, "timeout_error": 504}
"""Status of the errors that come in a stream, whose own status was 200 already."""


class AnthropicTransport:
    """Anthropic's messages API, or one that speaks it.

    Parameters
    ----------
    client
        The library's client. Its own retries are switched off: the driver's retry machine is the only one.
    model
        The model's name.
    tools
        Tool definitions, as the API has them.
    dialect
        How the server names the output limit.
    """

    def __init__(
        self,
        client: anthropic.AsyncAnthropic,
        model: str,
        tools: Sequence[Mapping[str, object]] = (),
        dialect: Dialect = ANTHROPIC,
    ) -> None:
        self.dialect = dialect
        self._client = client.with_options(max_retries=0)
        self._fixed: dict[str, Any] = {"model": model, "stream": True, **({"tools": list(tools)} if tools else {})}

    async def stream(self, messages: Sequence[Message], parameters: Mapping[str, object]) -> AsyncIterator[Delta]:
        """Send one request and yield its answer as it comes; see ``Transport``."""
        begun = False
        system = "\n\n".join(text_of(message.content) for message in messages if message.role is Role.SYSTEM)
        others = dict(parameters)
        body: dict[str, Any] = {
            **self._fixed,
            "messages": _turns(messages),
            "max_tokens": others.pop(self.dialect.field),
            "extra_body": others,
            **({"system": system} if system else {}),
        }
        try:
            events: Any = await self._client.messages.create(**body)
            async for event in events:
                begun = True
                for delta in _deltas(event):
                    yield delta
        except anthropic.APIStatusError as error:
            body = error.body if isinstance(error.body, dict) else {}
            status = _ERRORS.get((body.get("error") or {}).get("type", ""), error.status_code)
            kind = ErrorKind.CUT if begun else error_kind(status, error.message)
            raise TransportError(kind, error.message, retry_after_s(error.response.headers)) from error
        except (anthropic.APIError, *BROKEN_STREAM) as error:
            raise TransportError(ErrorKind.CUT if begun else ErrorKind.SERVER, str(error)) from error


def _deltas(event: Any) -> Iterable[Delta]:  # noqa: ANN401 - servers send events that the library does not type
    if event.type == "message_start":
        usage = event.message.usage
        cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
        yield Usage(prompt_tokens=usage.input_tokens + cached)
    elif event.type == "content_block_start" and event.content_block.type == "tool_use":
        yield CallDelta(event.index, event.content_block.id, event.content_block.name)
    elif event.type == "content_block_delta":
        yield from _piece(event.index, event.delta)
    elif event.type == "message_delta":
        yield Usage(output_tokens=event.usage.output_tokens)
        if event.delta.stop_reason:
            yield Finish(_FINISH.get(event.delta.stop_reason, FinishReason.STOP))


def _piece(index: int, delta: Any) -> Iterable[Delta]:  # noqa: ANN401
    if delta.type == "text_delta":
        yield TextDelta(delta.text)
    elif delta.type == "thinking_delta":
        yield ReasoningDelta(delta.thinking)
    elif delta.type == "input_json_delta":
        yield CallDelta(index, arguments=delta.partial_json)
    elif delta.type == "citations_delta":
        yield CitationDelta(delta.citation.cited_text)


def _turns(messages: Sequence[Message]) -> list[dict[str, object]]:
    """Return the messages as turns of user and assistant, touching ones merged: the API wants them to alternate."""
    spoken = [message for message in messages if message.role is not Role.SYSTEM]
    turns = groupby(spoken, key=lambda message: "assistant" if message.role is Role.ASSISTANT else "user")
    return [{"role": role, "content": [block for message in run for block in _blocks(message)]} for role, run in turns]


def _blocks(message: Message) -> Iterable[dict[str, object]]:
    text = text_of(message.content)
    if message.role is Role.TOOL:
        yield {"type": "tool_result", "tool_use_id": message.answers, "content": text}
        return
    if text:
        yield {"type": "text", "text": text}
    for call in message.calls:
        yield {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": json.loads(text_of(call.arguments) or "{}"),
        }
