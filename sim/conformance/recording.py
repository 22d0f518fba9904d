"""A recorded case: how the client was configured, what its scripted server answered, what it sent.

The format is described beside the recordings (``README.md`` of a conformance folder).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.errors import BadInput, Fault, unreadable


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a scripted answer: the tool's name and its raw arguments, perhaps cut."""

    name: str
    arguments: str

    @property
    def complete(self) -> bool:
        """Whether the arguments are whole JSON."""
        try:
            json.loads(self.arguments)
        except ValueError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the scripted server.

    Attributes
    ----------
    chars, reasoning
        Characters of text, and whether there is reasoning besides.
    calls
        The tool calls.
    finish
        The finish reason as sent; None for none.
    http_status
        Status of an error answer; None for a stream.
    message
        The error's text.
    cut
        Whether the connection is closed without a finish.
    """

    chars: int = 0
    reasoning: bool = False
    calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    http_status: int | None = None
    message: str = ""
    cut: bool = False

    def output_tokens(self, max_tokens: object) -> int:
        """Return the output tokens that the server reports for it, given the limit on the wire."""
        if self.finish == "length":
            return max_tokens if isinstance(max_tokens, int) else self.chars // 4
        return max(1, self.chars // 4)


@dataclass(frozen=True, slots=True)
class Sent:
    """A main request as it was on the wire: its limit ("ABSENT" without one) and its number of messages."""

    max_tokens: object
    messages: int

    def __str__(self) -> str:
        return f"max_tokens {self.max_tokens}, {self.messages} messages"


@dataclass(frozen=True, slots=True)
class Recording:
    """A case.

    Attributes
    ----------
    case
        Its name: scenario and version.
    version
        The client's version.
    model, api
        The model's name, and the API that was spoken: "openai" or "anthropic".
    sampling
        The user's sampling parameters; None if there are none, which differs from empty ones.
    window
        The window that the user configured in tokens; None without one.
    env_max_tokens
        The environment's limit as it stands there.
    turns
        How many prompts the user sends.
    file_chars
        Characters of the files that the client may read.
    prompt_tokens
        What the server reports as the prompt of every request.
    steps, tail
        The scripted answers, and the one after the last of them.
    sent
        The main requests, in order.
    compacts
        Whether a compaction of the history is in it.
    timed_out
        Whether the recording was stopped before the client was done.
    """

    case: str
    version: str
    model: str
    api: str
    sampling: dict[str, object] | None
    window: int | None
    env_max_tokens: str | None
    turns: int
    prompt_tokens: int
    steps: tuple[Step, ...]
    tail: Step
    sent: tuple[Sent, ...]
    compacts: bool
    timed_out: bool = False
    file_chars: dict[str, int] = field(default_factory=dict)


_ENV = "QWEN_CODE_MAX_OUTPUT_TOKENS"


def read(path: Path) -> Recording:
    """Return the recording of a file.

    Raises
    ------
    BadInput
        If the file is no JSON or lacks something that a replay needs.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(unreadable(error, path)) from None
    except ValueError as error:
        raise BadInput(Fault(f"is no JSON: {error}", path)) from None
    try:
        return _recording(raw)
    except KeyError as error:
        missing = Fault("is missing: not a recording as the folder's README describes it", path, key=str(error.args[0]))
        raise BadInput(missing) from None
    except (TypeError, AttributeError, ValueError) as error:
        fault = Fault(f"is not a recording as the folder's README describes it ({error})", path)
        raise BadInput(fault) from None


def _recording(raw: dict[str, Any]) -> Recording:
    config, server, observed = raw["config"], raw["server"], raw["observed"]
    generation = config["settings_overrides"].get("model", {}).get("generationConfig", {})
    requests = observed["requests"]
    return Recording(
        case=f"{raw['scenario']}.{raw['version']}",
        version=raw["version"],
        model=config["model"],
        api=config["auth_type"],
        sampling=generation.get("samplingParams"),
        window=generation.get("contextWindowSize"),
        env_max_tokens=config["env"].get(_ENV),
        turns=int(config["user_turns"]),
        prompt_tokens=int(server["prompt_tokens_reported"]),
        steps=tuple(map(_step, server["steps"])),
        tail=_step(server["after_last_step"]),
        sent=tuple(Sent(r["max_tokens"], r["messages_count"]) for r in requests if r["kind"] == "main"),
        compacts=any(r["kind"].startswith("compaction") for r in requests),
        timed_out=bool(observed.get("timed_out")),
        file_chars=dict(config.get("workspace_files", {})),
    )


def _step(raw: dict[str, Any]) -> Step:
    return Step(
        chars=len(raw["text"]) if "text" in raw else int(raw.get("text_chars", 0)),
        reasoning=bool(raw.get("reasoning")),
        calls=tuple(ToolCall(call["name"], call["arguments"]) for call in raw.get("tool_calls", ())),
        finish=raw.get("finish_reason"),
        http_status=raw.get("http_status"),
        message=str(((raw.get("body") or {}).get("error") or {}).get("message", "")),
        cut=bool(raw.get("cut")),
    )
