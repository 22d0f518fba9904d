"""The recorded client around its policy: history, tools, the front end and the compaction of long histories.

Only what decides the limits and the number of messages on the wire. Its constants are facts of the client's published
builds; the size of its system prompt and tool schemas is one of the recordings, hence a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from math import ceil

from policies import limits
from policies.errors import error_kind
from policies.output import (
    Call,
    Carried,
    Decision,
    ErrorKind,
    Fail,
    FinishReason,
    Kind,
    Machine,
    OutputPolicy,
    Partial,
    Response,
    Send,
    ToolKind,
    ToolUse,
)
from policies.profiles import PROFILES, Profile
from sim.conformance.recording import Recording, Sent, Step

PROMPT_CHARS = 10
"""Characters of each prompt of the recordings ("PROMPT ONE")."""

TOOLS = {
    "read_file": ToolKind.READ,
    "list_directory": ToolKind.READ,
    "glob": ToolKind.READ,
    "grep_search": ToolKind.READ,
    "write_file": ToolKind.EDIT,
    "edit": ToolKind.EDIT,
    "run_shell_command": ToolKind.EXECUTE,
}
"""What the client's tools do to the world; any other is of an unknown kind."""

_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
}


class NotReplayed(Exception):
    """A case holds something that the replay does not know how the client does; the text says what."""


@dataclass(frozen=True, slots=True)
class Client:
    """A version of the client, apart from its policy.

    Attributes
    ----------
    profile
        Its policy, retries and dialects.
    preamble
        Messages on the wire before the first prompt, by API.
    default_window
        The window of a model that nobody configured one for, in tokens; None looks the model up.
    overhead_tokens
        System prompt, tool schemas and first prompt by the client's own estimate, in tokens.
    pad_tokens
        What is added to an estimate that rests on no count of the server, in tokens.
    keeps_pending
        Whether the front end runs the tool calls of discarded attempts too.
    merges_users
        Whether user messages that touch are merged on the wire.
    shared_prefix
        Whether a compaction first tries a request that shares the history's prefix.
    forgets_preamble
        Whether a compaction drops the preamble messages except the system's.
    continuations
        How often a first stream that was cut off after visible text is continued from there.
    tail_chars, wrapper_chars
        How many characters of the partial a recovery message quotes at most, and the text around the quotation.
    """

    profile: Profile
    preamble: dict[str, int]
    default_window: int | None
    overhead_tokens: int = 2_325
    pad_tokens: int = 20_000
    keeps_pending: bool = False
    merges_users: bool = False
    shared_prefix: bool = False
    forgets_preamble: bool = False
    continuations: int = 0
    tail_chars: int = 0
    wrapper_chars: int = 0

    def compacts(self, tokens: int, window: int) -> bool:
        """Return whether a history of so many tokens is compacted before the next call."""
        if not self.shared_prefix:
            return tokens >= 0.7 * window
        thresholds = [0.85 * window, window - 33_000]
        return tokens >= min(threshold for threshold in thresholds if threshold > 0)

    def recovery_chars(self, partial_chars: int) -> int:
        """Return the characters of the recovery message after a partial with so many visible characters."""
        quoted = min(self.tail_chars, partial_chars)
        return RECOVERY_CHARS + (self.wrapper_chars + quoted if quoted else 0)


RECOVERY_CHARS = 183
"""Characters of the client's fixed recovery sentence."""

DIRECTIVE_CHARS, SUMMARY_TOKENS, SUMMARY_CHARS = 3_727, 20_000, 171
"""The compaction of version 0.24: its directive, the room for its summary, and the recorded summary."""

REJECTION_CHARS = 381
"""Characters of the client's answer to a rejected tool call."""

_V015 = Client(
    PROFILES["qwen-code-0.15"],
    preamble={"openai": 3, "anthropic": 2},
    default_window=limits.V015.default_window,  # it looks no model up for the compaction
    keeps_pending=True,
    forgets_preamble=True,
)

CLIENTS = {
    "0.15.6": replace(_V015, forgets_preamble=False),
    "0.15": _V015,
    "0.24": Client(
        PROFILES["qwen-code-0.24"],
        preamble={"openai": 1, "anthropic": 0},
        default_window=None,
        merges_users=True,
        shared_prefix=True,
        continuations=3,
        tail_chars=1_200,
        wrapper_chars=250,
    ),
}
"""The versions that are known, by the start of their number; the longest that fits is meant."""


def client_of(version: str) -> Client | None:
    """Return the client of a version, or None for a version that no profile stands for."""
    parts = version.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 1, -1))
    return next((CLIENTS[name] for name in names if name in CLIENTS), None)


@dataclass(frozen=True, slots=True)
class Message:
    """A message: who says it, its characters, the ids of its tool calls, the id of the call it answers."""

    role: str
    chars: int = 0
    calls: tuple[str, ...] = ()
    answers: str | None = None


@dataclass(slots=True)
class Replay:
    """A recorded conversation, held once more with the scripted answers.

    Attributes
    ----------
    client
        The version of the client.
    recording
        Its configuration and the scripted answers; what was sent is not looked at.
    sent
        The main requests so far.
    """

    client: Client
    recording: Recording
    sent: list[Sent] = field(default_factory=list)
    _history: list[Message] = field(default_factory=list)
    _script: Iterator[Step] = field(init=False)
    _preamble: int = field(init=False)
    _counted: bool = False
    _last_prompt: int = 0
    _last_output: int = 0
    _call_ids: int = 0

    def __post_init__(self) -> None:
        self._script = iter(self.recording.steps)

    def run(self) -> list[Sent]:
        """Hold the conversation and return its main requests.

        Raises
        ------
        NotReplayed
            If it comes to something that the replay does not know.
        """
        if self.recording.api not in self.client.preamble:
            raise NotReplayed(f"the client over the API {self.recording.api!r}")
        self._preamble = self.client.preamble[self.recording.api]
        for _ in range(self.recording.turns):
            self._turn()
        return self.sent

    def _turn(self) -> None:
        content = [Message("user", PROMPT_CHARS)]
        while content:
            content = [self._result(call) for call in self._model_call(content)]

    def _result(self, call: _Pending) -> Message:
        chars = self.recording.file_chars.get(call.file, REJECTION_CHARS)
        return Message("tool", chars, answers=call.id)

    def _model_call(self, content: list[Message]) -> list[_Pending]:
        """Send one model call with new content and return the tool calls that the front end answers afterwards."""
        self._compact(content)
        earlier = bool(self._history)
        self._history += content
        machine = self._policy.begin(self._call(content))
        parts: list[Message] = []
        recoveries: list[Message] = []
        pending: list[_Pending] = []
        decision: Decision = machine.first()
        while isinstance(decision, Send):
            if decision.history is Carried.DROP_PARTIAL:
                parts.clear()
            elif decision.history is Carried.KEEP_PARTIAL:
                recoveries.append(Message("user", self.client.recovery_chars(parts[-1].chars)))
            extra = [*chain.from_iterable(zip(parts, recoveries, strict=True))]
            response, part, calls = self._transmit(machine, decision, extra)
            if machine.trouble(response) is None:
                if not self.client.keeps_pending:
                    pending.clear()
                parts.append(part)
                pending += calls
            decision = machine.after(replace(response, continued_tokens=self._continued(part, extra)))
        if isinstance(decision, Fail):
            if decision.error is ErrorKind.TOO_LONG and decision.partial is Partial.NONE and earlier:
                raise NotReplayed("compaction forced by the server's refusal")
            return []
        self._history.append(_merged(parts))
        return pending

    @property
    def _policy(self) -> OutputPolicy:
        return self.client.profile.policy

    def _call(self, content: list[Message]) -> Call:
        sampling = self.recording.sampling
        dialect = self.client.profile.dialects[self.recording.api]
        return Call(
            self.recording.model,
            window=self._window(),
            prompt_tokens=self._estimate(content),
            user_max_tokens=dialect.user_limit(sampling),
            env_max_tokens=self.recording.env_max_tokens,
        )

    def _window(self) -> int:
        if self.recording.window is not None or self.client.default_window is not None:
            return self.recording.window or self.client.default_window or 0
        table = limits.TABLES[self._policy.table]
        return table.lookup(self.recording.model).window or table.default_window

    def _transmit(self, machine: Machine, send: Send, extra: list[Message]) -> tuple[Response, Message, list[_Pending]]:
        profile = self.client.profile
        retrying = profile.retry.begin(send.retry)
        cuts: list[Message] = []
        while True:
            parameters = profile.dialects[self.recording.api].parameters(send, self.recording.sampling)
            limit = parameters.get("max_tokens", "ABSENT")
            resumed = [each for cut in cuts for each in (cut, Message("user", RECOVERY_CHARS))]
            self.sent.append(Sent(limit, self._wire_count([*self._history, *extra, *resumed])))
            step = next(self._script, self.recording.tail)
            response, part, calls = self._answer(step, limit)
            trouble = machine.trouble(response)
            if trouble is ErrorKind.CUT and part.chars and self._may_resume(send, len(cuts)):
                cuts.append(part)
            elif trouble is None or retrying.after(trouble) is None:
                return response, _merged([*cuts, part]), calls

    def _may_resume(self, send: Send, resumed: int) -> bool:
        return send.kind is Kind.INITIAL and resumed < self.client.continuations

    def _answer(self, step: Step, limit: object) -> tuple[Response, Message, list[_Pending]]:
        if step.http_status is not None:
            return (
                Response(FinishReason.ERROR, error=error_kind(step.http_status, step.message)),
                Message("assistant"),
                [],
            )
        if step.cut or step.finish is None:
            return Response(FinishReason.ERROR, error=ErrorKind.CUT), Message("assistant", step.chars), []
        calls = [self._pending(call.name, call.arguments) for call in step.calls]
        tokens = step.output_tokens(limit)
        self._counted, self._last_prompt, self._last_output = True, self.recording.prompt_tokens, tokens
        response = Response(
            _FINISH.get(step.finish, FinishReason.STOP),
            tokens,
            tuple(
                ToolUse(call.name, TOOLS.get(call.name, ToolKind.OTHER), call.complete, pending.id)
                for call, pending in zip(step.calls, calls, strict=True)
            ),
            empty=not (step.chars or step.reasoning or calls),
        )
        return response, Message("assistant", step.chars, tuple(call.id for call in calls)), calls

    def _pending(self, name: str, arguments: str) -> _Pending:
        self._call_ids += 1
        return _Pending(f"call{self._call_ids}", arguments)

    def _wire_count(self, history: list[Message]) -> int:
        """Return how many messages a history becomes: answers to unknown calls go, touching ones merge."""
        known = {call for message in history for call in message.calls}
        merging = {"assistant"} | ({"user"} if self.client.merges_users else set())
        if self.recording.api == "anthropic":
            merging.add("tool")  # the answers to one message's calls are blocks of one message
        wire = (message.role for message in history if message.answers is None or message.answers in known)
        return self._preamble + sum(1 if role in merging else len([*run]) for role, run in groupby(wire))

    def _walk(self, messages: list[Message]) -> int:
        """Return the client's estimate of a request from its characters alone."""
        chars = sum(message.chars for message in messages) - PROMPT_CHARS  # the first prompt is in the overhead
        return self.client.overhead_tokens + ceil(max(0, chars) / 4)

    def _estimate(self, content: list[Message]) -> int:
        """Return the client's estimate of the prompt of a call that adds some content."""
        if not self._counted:
            return self._walk(self._history) + self.client.pad_tokens + self._last_output
        return self._last_prompt + self._last_output + _cautious(sum(message.chars for message in content))

    def _continued(self, part: Message, extra: list[Message]) -> int:
        """Return the client's estimate of the prompt of a recovery after a part."""
        message = Message("user", self.client.recovery_chars(part.chars))
        walk = self._walk([*self._history, *extra, part, message]) + self.client.pad_tokens
        return max(self._last_prompt + self._last_output + _cautious(message.chars), walk)

    def _compact(self, content: list[Message]) -> None:
        """Compact the history before a call, if it has grown too long."""
        new_chars = sum(message.chars for message in content)
        tokens = self._last_prompt + self._last_output
        if self.client.shared_prefix:
            tokens = tokens + ceil(new_chars / 4) if self._counted else self._walk([*self._history, *content])
        if not self._history or not self.client.compacts(tokens, self._window()):
            return
        if content[0].role == "tool":
            raise NotReplayed("compaction between a tool call and its answer")
        if self.client.shared_prefix:
            needed = self._last_prompt + self._last_output + ceil(DIRECTIVE_CHARS / 4) + SUMMARY_TOKENS
            if needed <= self._window():
                next(self._script, None)
        else:
            self._last_output = 0
        if self.client.forgets_preamble:
            self._preamble = max(0, self._preamble - 2)
        self._history = [Message("user", SUMMARY_CHARS), Message("assistant")]
        self._counted, self._last_prompt = False, 0


@dataclass(frozen=True, slots=True)
class _Pending:
    """A tool call that the front end holds: its id and raw arguments."""

    id: str
    arguments: str

    @property
    def file(self) -> str:
        """The last part of the path that it names, if it names one."""
        return self.arguments.rpartition("/")[2].strip('"}')


def _cautious(chars: int) -> int:
    return ceil(1.5 * ceil(chars / 4))


def _merged(parts: list[Message]) -> Message:
    return Message("assistant", sum(part.chars for part in parts), tuple(id for part in parts for id in part.calls))
