"""Scripted model servers, in the process: OpenAI's chat completions and Anthropic's messages, over ASGI, streamed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import httpx2


@dataclass
class Scripted:
    """One answer of a server.

    ``text`` comes in two pieces. ``finish`` is "stop", "length" or "tool_calls"; None closes the stream without one,
    and ``crash`` breaks the connection instead. ``calls`` are (id, name, arguments). An answer cut by its limit fills
    it unless ``output_tokens`` says otherwise. ``status`` other than 200 answers with an error.
    """

    text: str = ""
    finish: str | None = "stop"
    calls: tuple[tuple[str, str, str], ...] = ()
    output_tokens: int | None = None
    prompt_tokens: int = 100
    reasoning: str = ""
    crash: bool = False
    status: int = 200
    message: str = "scripted"
    headers: dict[str, str] = field(default_factory=dict)

    def tokens(self, max_tokens: int) -> int:
        if self.output_tokens is None:
            return max_tokens if self.finish == "length" else max(1, len(self.text) // 4)
        return self.output_tokens


class Server:
    """Answers one request after the other by a script: a list, or a function of the request's body."""

    def __init__(self, script) -> None:
        self.script = script if callable(script) else iter(script).__next__
        self.takes_body = callable(script)
        self.bodies: list[dict] = []

    async def __call__(self, scope, receive, send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(json.loads(body))
        scripted = self.script(self.bodies[-1]) if self.takes_body else self.script()
        headers = {"content-type": "application/json", **scripted.headers}
        if scripted.status != 200:
            await start(send, scripted.status, headers)
            await send({"type": "http.response.body", "body": json.dumps(self.error(scripted)).encode()})
            return
        crash = {"x-crash": "scripted"} if scripted.crash else {}
        await start(send, 200, {**headers, **crash, "content-type": "text/event-stream"})
        for line in self.lines(scripted, self.bodies[-1]["max_tokens"]):
            await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Connection(httpx2.ASGITransport):
    """A connection to a server in the process, which breaks off where the server's script says so."""

    async def handle_async_request(self, request):
        response = await super().handle_async_request(request)
        if "x-crash" in response.headers:
            response.stream = Breaking(response.stream)
        return response


class Breaking(httpx2.AsyncByteStream):
    def __init__(self, stream) -> None:
        self.stream = stream

    async def __aiter__(self):
        async for piece in self.stream:
            yield piece
        raise httpx2.ReadError("scripted")


async def start(send, status: int, headers: dict[str, str]) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


def halves(text: str) -> list[str]:
    return [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]


class OpenAIServer(Server):
    def error(self, scripted: Scripted) -> dict:
        return {"error": {"message": scripted.message, "type": "scripted", "code": None}}

    def lines(self, scripted: Scripted, max_tokens: int):
        def chunk(delta: dict, finish: str | None = None) -> str:
            return self.line(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])

        if scripted.reasoning:
            yield chunk({"reasoning_content": scripted.reasoning})
        for piece in halves(scripted.text):
            yield chunk({"content": piece})
        for index, (call, name, arguments) in enumerate(scripted.calls):
            yield chunk({"tool_calls": [{"index": index, "id": call, "function": {"name": name, "arguments": ""}}]})
            for piece in halves(arguments):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        if scripted.finish is None:
            return
        yield chunk({}, scripted.finish)
        tokens, prompt = scripted.tokens(max_tokens), scripted.prompt_tokens
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        yield self.line(choices=[], usage=usage)
        yield "data: [DONE]\n\n"

    def line(self, **fields) -> str:
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "scripted", **fields}
        return f"data: {json.dumps(chunk)}\n\n"


ANTHROPIC_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class AnthropicServer(Server):
    def error(self, scripted: Scripted) -> dict:
        return {"type": "error", "error": {"type": "scripted", "message": scripted.message}}

    def lines(self, scripted: Scripted, max_tokens: int):
        usage = {"input_tokens": scripted.prompt_tokens - 40, "cache_read_input_tokens": 40, "output_tokens": 1}
        message = {
            "id": "x",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": [],
            "usage": usage,
        }
        yield self.line("message_start", message={**message, "stop_reason": None, "stop_sequence": None})
        for index, (block, pieces) in enumerate(self.blocks(scripted)):
            yield self.line("content_block_start", index=index, content_block=block)
            for piece in pieces:
                yield self.line("content_block_delta", index=index, delta=piece)
            yield self.line("content_block_stop", index=index)
        if scripted.finish is None:
            return
        delta = {"stop_reason": ANTHROPIC_FINISH[scripted.finish], "stop_sequence": None}
        yield self.line("message_delta", delta=delta, usage={"output_tokens": scripted.tokens(max_tokens)})
        yield self.line("message_stop")

    def blocks(self, scripted: Scripted):
        if scripted.reasoning:
            thought = {"type": "thinking_delta", "thinking": scripted.reasoning}
            yield {"type": "thinking", "thinking": "", "signature": ""}, [thought]
        if scripted.text:
            yield (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": piece} for piece in halves(scripted.text)],
            )
        for call, name, arguments in scripted.calls:
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in halves(arguments)]
            yield {"type": "tool_use", "id": call, "name": name, "input": {}}, pieces

    def line(self, event: str, **fields) -> str:
        return f"event: {event}\ndata: {json.dumps({'type': event, **fields})}\n\n"
