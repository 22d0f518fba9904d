"""OpenAI-compatible chat completions, streamed, on the official ``openai`` library (extra ``openai``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import openai

from policies.drive.transport import (
    CallDelta,
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
from policies.wire import OPENAI, Dialect

_FINISH = {
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
}


class OpenAITransport:
    """Chat completions of an OpenAI-compatible server.

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
        client: openai.AsyncOpenAI,
        model: str,
        tools: Sequence[Mapping[str, object]] = (),
        dialect: Dialect = OPENAI,
    ) -> None:
        self.dialect = dialect
        self._client = client.with_options(max_retries=0)
        self._fixed: dict[str, Any] = {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"tools": list(tools)} if tools else {}),
        }

    async def stream(self, messages: Sequence[Message], parameters: Mapping[str, object]) -> AsyncIterator[Delta]:
        """Send one request and yield its answer as it comes; see ``Transport``."""
        begun = False
        try:
            body = {**self._fixed, "messages": list(map(_message, messages)), "extra_body": dict(parameters)}
            chunks: Any = await self._client.chat.completions.create(**body)
            async for chunk in chunks:
                begun = True
                for delta in _deltas(chunk):
                    yield delta
        except openai.APIStatusError as error:
            raise TransportError(
                error_kind(error.status_code, error.message), error.message, retry_after_s(error.response.headers)
            ) from error
        except (openai.APIError, *BROKEN_STREAM) as error:
            raise TransportError(ErrorKind.CUT if begun else ErrorKind.SERVER, str(error)) from error


def _deltas(chunk: Any) -> Iterable[Delta]:  # noqa: ANN401 - servers add fields that the library does not type
    if chunk.usage:
        yield Usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
    for choice in chunk.choices:
        delta = choice.delta
        if delta.content:
            yield TextDelta(delta.content)
        reasoning = getattr(delta, "reasoning_content", None)
        if reasoning:
            yield ReasoningDelta(reasoning)
        for call in delta.tool_calls or ():
            function = call.function
            yield CallDelta(call.index, call.id or "", function.name or "", function.arguments or "")
        if choice.finish_reason:
            yield Finish(_FINISH.get(choice.finish_reason, FinishReason.STOP))


def _message(message: Message) -> dict[str, object]:
    if message.role is Role.TOOL:
        return {"role": "tool", "tool_call_id": message.answers, "content": text_of(message.content)}
    plain: dict[str, object] = {"role": message.role.value, "content": text_of(message.content)}
    if message.calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": text_of(call.arguments) or "{}"},
            }
            for call in message.calls
        ]
    return plain
