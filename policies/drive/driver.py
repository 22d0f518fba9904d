"""The async driver: one call after another over a transport, by an output policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from policies.drive.events import Answered, Called, Cited, Ended, Event, Retried, Said
from policies.drive.transport import (
    CallDelta,
    CitationDelta,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    Transport,
    TransportError,
    Usage,
)
from policies.exchange import UNKNOWN, Answer, Exchange, Request, Requested
from policies.messages import Message
from policies.output import Call, ErrorKind, FinishReason, Kind, OutputPolicy, ToolKind
from policies.retry import Retry
from policies.wire import Sampling


@dataclass(frozen=True, slots=True)
class Driver:
    """Runs an output policy over an API.

    Attributes
    ----------
    policy
        Decides ``max_tokens`` and what follows a truncation. (An oracle cannot: nobody knows the true length here.)
    transport
        Sends the requests.
    retry
        When requests are sent again after transient errors.
    sampling
        The user's sampling parameters; a limit among them overrides the policy.
    kinds
        What each tool does to the world; a tool that is not in it counts as having side effects.
    sleep
        Waits for so many seconds.
    """

    policy: OutputPolicy
    transport: Transport
    retry: Retry = field(default_factory=Retry)
    sampling: Sampling | None = None
    kinds: Mapping[str, ToolKind] = field(default_factory=dict)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def call(self, history: Sequence[Message], call: Call, seed: object = 0) -> AsyncIterator[Event]:
        """Make one call and yield what happens; the last event is ``Ended``.

        Parameters
        ----------
        history
            The messages that the call begins with; it is not changed.
        call
            What the client knows of it. The user's limit is taken from the driver's sampling parameters if it has none.
        seed
            What the jitter of retries is drawn from.
        """
        if call.user_max_tokens is None:
            call = replace(call, user_max_tokens=self.transport.dialect.user_limit(self.sampling))
        exchange = Exchange(history, self.policy.begin(call))
        step = exchange.first()
        kept = 0
        while isinstance(step, Request):
            send = step.send
            if send.kind is not Kind.INITIAL:
                yield Retried(send.is_continuation, kept, send.max_tokens)
            parameters = self.transport.dialect.parameters(send, self.sampling)
            retrying = self.retry.begin(send.retry, seed)
            while True:
                received = _Received(self.kinds)
                async for event in received.read(self.transport.stream(step.messages, parameters)):
                    yield event
                answer = received.answer(send.max_tokens)
                yield Answered(send, answer)
                trouble = exchange.machine.trouble(answer.response)
                wait_s = None if trouble is None else retrying.after(trouble, answer.retry_after_s)
                if wait_s is None:
                    break
                yield Retried(send.is_continuation, kept, send.max_tokens, trouble, wait_s)
                await self.sleep(wait_s)
            step = exchange.after(answer)
            kept = kept + len(answer.text) if isinstance(step, Request) and step.send.is_continuation else 0
        for requested in step.run:
            yield Called(requested)
        yield Ended(step)


class _Received:
    """An answer while it comes in."""

    def __init__(self, kinds: Mapping[str, ToolKind]) -> None:
        self._kinds = kinds
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, CallDelta] = {}
        self._usage = Usage()
        self._finish: FinishReason | None = None
        self._error: TransportError | None = None

    async def read(self, deltas: AsyncIterator[Delta]) -> AsyncIterator[Event]:
        """Take in an answer to its end or failure, and yield what of it is shown."""
        try:
            async for delta in deltas:
                event = self._take(delta)
                if event is not None:
                    yield event
        except TransportError as error:
            self._error = error

    def _take(self, delta: Delta) -> Event | None:
        match delta:
            case TextDelta(text):
                self._text.append(text)
                return Said(text) if text else None
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case CitationDelta(text):
                return Cited(text)
            case CallDelta(index):
                begun = self._calls.get(index, CallDelta(index))
                self._calls[index] = CallDelta(
                    index, delta.id or begun.id, delta.name or begun.name, begun.arguments + delta.arguments
                )
            case Usage(prompt, output):
                self._usage = Usage(
                    self._usage.prompt_tokens if prompt is None else prompt,
                    self._usage.output_tokens if output is None else output,
                )
            case Finish(reason):
                self._finish = reason
        return None

    def answer(self, max_tokens: int) -> Answer:
        """Return what was received."""
        text = "".join(self._text)
        calls = tuple(
            Requested(call.id or f"call-{call.index}", call.name, call.arguments, self._kinds.get(call.name, UNKNOWN))
            for _, call in sorted(self._calls.items())
            if call.name  # a call without a name cannot be told from noise
        )
        error = self._error.kind if self._error else None if self._finish else ErrorKind.CUT
        tokens = self._usage.output_tokens
        if tokens is None:  # a server that counts nothing: a cut answer filled its limit, else four characters a token
            written = len(text) + sum(map(len, self._reasoning)) + sum(len(call.arguments) for call in calls)
            tokens = max_tokens if self._finish is FinishReason.LENGTH else ceil(written / 4)
        return Answer(
            text,
            any(self._reasoning),
            calls,
            FinishReason.ERROR if error or self._finish is None else self._finish,
            tokens,
            self._usage.prompt_tokens,
            error,
            self._error.retry_after_s if self._error else 0.0,
        )
