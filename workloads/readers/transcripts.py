"""Session transcripts of coding agents, reduced to counts while reading: no text of theirs is kept.

Schemas: Claude Code 2.x, projects/*/SESSION.jsonl (lines of type user and assistant with timestamp, sessionId,
isSidechain and message; an answer spans several lines that repeat message.id, the last one has its full usage;
message.stop_reason); Qwen Code 0.5, chats/SESSION.jsonl (lines of type user, assistant, tool_result with timestamp,
sessionId, usageMetadata of promptTokenCount, candidatesTokenCount, cachedContentTokenCount, thoughtsTokenCount).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.readers import values
from workloads.readers.build import Build
from workloads.readers.calls import Calls
from workloads.readers.jsonl import Record, records
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk


@dataclass(slots=True)
class _Thread:
    """Where one session (or side chain) stands while its lines go by."""

    asked_at: float | None = None  # when the last input came
    answered_at: float | None = None  # when the last answer ended
    kind: str = "user"
    answers: dict[str, tuple[Record, float, float | None, str, float]] = field(default_factory=dict)


def read_claude_code(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the answered calls; ``kind`` is user, tool-round or subagent.

    A call starts when its input was written (the line before it). Tool results' sizes go to the notes, in characters.
    """
    threads: dict[tuple[str, bool], _Thread] = {}
    results: list[int] = []
    for record in records(chunks, build.log):
        role = record.find("type")
        if role not in ("user", "assistant") or not isinstance(record.find("message"), Mapping):
            continue
        at = record.need("timestamp", values.instant, 0.0)
        name = record.get("sessionId", values.text) or ""
        side = record.find("isSidechain") is True
        thread = threads.setdefault((name, side), _Thread())
        if record.bad:
            continue
        if role == "user":
            sizes = list(_tool_results(record.find("message.content")))
            results += sizes
            thread.asked_at, thread.kind = at, "tool-round" if sizes else "user"
        elif isinstance(record.find("message.usage"), Mapping):
            answer = record.get("message.id", values.text) or f"line {record.line}"
            earlier = thread.answers.get(answer)
            start = thread.asked_at if thread.asked_at is not None else at
            if earlier is None:
                thread.answers[answer] = (record, start, thread.answered_at, thread.kind, at)
            else:
                thread.answers[answer] = (record, *earlier[1:4], at)
            thread.answered_at = at
    calls = Calls(build)
    for key, thread in threads.items():
        for answer, (record, start, before, kind, end) in thread.answers.items():
            usage = "message.usage."
            cached = record.get(usage + "cache_read_input_tokens", values.tokens) or 0
            written = record.get(usage + "cache_creation_input_tokens", values.tokens) or 0
            reason = record.get("message.stop_reason", values.text)
            calls.add(
                record,
                start,
                record.need(usage + "input_tokens", values.tokens, 0) + cached + written,
                record.need(usage + "output_tokens", values.tokens, 0),
                id=(key, answer),
                cached=cached,
                truncated=None if reason is None else reason == "max_tokens",
                kind="subagent" if key[1] else kind,
                session=key,
                think_s=None if before is None else max(0.0, start - before),
                service_s=max(0.0, end - start),
            )
    _note_results(build, results)
    return calls.sorted()


def read_qwen_code(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the answered calls; ``kind`` is user or tool-round."""
    calls = Calls(build)
    threads: dict[str, _Thread] = {}
    results: list[int] = []
    for record in records(chunks, build.log):
        role = record.find("type")
        if role not in ("user", "assistant", "tool_result"):
            continue
        at = record.need("timestamp", values.instant, 0.0)
        thread = threads.setdefault(record.get("sessionId", values.text) or "", _Thread())
        if record.bad:
            continue
        if role != "assistant":
            thread.asked_at, thread.kind = at, "user" if role == "user" else "tool-round"
            if role == "tool_result":
                results.append(_characters(record.find("message")))
            continue
        if not isinstance(record.find("usageMetadata"), Mapping):
            continue
        start = thread.asked_at if thread.asked_at is not None else at
        thoughts = record.get("usageMetadata.thoughtsTokenCount", values.tokens)
        calls.add(
            record,
            start,
            record.need("usageMetadata.promptTokenCount", values.tokens, 0),
            record.need("usageMetadata.candidatesTokenCount", values.tokens, 0),
            id=record.get("uuid", values.text),
            cached=record.get("usageMetadata.cachedContentTokenCount", values.tokens),
            reasoning=thoughts,
            kind=thread.kind,
            session=record.get("sessionId", values.text),
            think_s=None if thread.answered_at is None else max(0.0, start - thread.answered_at),
            service_s=max(0.0, at - start),
        )
        thread.answered_at = at
    _note_results(build, results)
    return calls.sorted()


def _tool_results(content: Any) -> Iterator[int]:  # noqa: ANN401 - any JSON value
    for block in content if isinstance(content, list) else []:
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            yield _characters(block.get("content"))


def _characters(value: Any, depth: int = 20) -> int:  # noqa: ANN401 - any JSON value
    """Return how many characters of text there are inside a JSON value."""
    if isinstance(value, str):
        return len(value)
    if depth == 0:
        return 0
    if isinstance(value, Mapping):
        return sum(_characters(item, depth - 1) for item in value.values())
    return sum(_characters(item, depth - 1) for item in value) if isinstance(value, list) else 0


def _note_results(build: Build, sizes: list[int]) -> None:
    if sizes:
        ordered = sorted(sizes)
        shown = ", ".join(f"p{p} {ordered[min(len(ordered) * p // 100, len(ordered) - 1)]:,}" for p in (50, 90, 99))
        build.notes.append(f"{len(sizes):,} tool results, characters: {shown}, max {ordered[-1]:,}")
