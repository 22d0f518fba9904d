"""Usage records of model APIs: one JSON object a call, as the API answered or wrapped by a gateway's log.

Schemas: OpenAI API reference, chat completion object (usage.prompt_tokens, completion_tokens,
prompt_tokens_details.cached_tokens, completion_tokens_details.reasoning_tokens, choices[].finish_reason, created) and
response object (usage.input_tokens, output_tokens, ..., incomplete_details.reason, created_at), versions of 2025-11.
Anthropic API reference, Messages (usage.input_tokens, cache_creation_input_tokens, cache_read_input_tokens,
output_tokens, stop_reason), version 2023-06-01, which has no time of its own.

The moment of the call is looked for in the record itself, then in what wraps it (keys of `MOMENTS`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workloads.readers import values
from workloads.readers.build import Build
from workloads.readers.calls import Calls
from workloads.readers.faults import FaultLog
from workloads.readers.jsonl import Record, records
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk

MOMENTS = ("timestamp", "request_time", "start_time", "started_at", "time", "ts", "created", "created_at")
SESSIONS = ("session_id", "conversation_id", "user_id", "user", "metadata.session_id")
WRAPPERS = ("response.body", "response", "body", "message", "data", "result")


def read(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the calls in order of arrival; records without usage (errors) are counted in the notes."""
    calls, unused = Calls(build), 0
    for outer in records(chunks, build.log):
        inner = _inner(outer)
        if inner is None:
            unused += 1
            continue
        _add(calls, outer, inner)
        outer.bad |= inner.bad
    if unused:
        build.notes.append(f"{unused:,} records without usage left out")
    return calls.sorted()


def tells(record: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is a usage record."""
    return _inner(Record(record, None, FaultLog(""))) is not None


def _inner(outer: Record) -> Record | None:
    """Return the object that holds ``usage``: the record or what it wraps."""
    if isinstance(outer.find("usage"), Mapping):
        return outer
    for key in WRAPPERS:
        body = outer.find(key)
        if isinstance(body, Mapping) and isinstance(body.get("usage"), Mapping):
            return Record(body, outer.line, outer.log)
    return None


def _add(calls: Calls, outer: Record, inner: Record) -> None:
    reasons = _reasons(inner)
    if inner.has("usage.prompt_tokens"):
        prompt = inner.need("usage.prompt_tokens", values.tokens, 0)
        output = inner.need("usage.completion_tokens", values.tokens, 0)
        cached = inner.get("usage.prompt_tokens_details.cached_tokens", values.tokens)
        reasoning = inner.get("usage.completion_tokens_details.reasoning_tokens", values.tokens)
    else:
        prompt = inner.need("usage.input_tokens", values.tokens, 0)
        output = inner.need("usage.output_tokens", values.tokens, 0)
        cached = inner.get("usage.input_tokens_details.cached_tokens", values.tokens)
        reasoning = inner.get("usage.output_tokens_details.reasoning_tokens", values.tokens)
        if inner.has("usage.cache_read_input_tokens") or inner.has("usage.cache_creation_input_tokens"):
            # Anthropic counts what its cache read or wrote beside the input, not in it
            cached = inner.get("usage.cache_read_input_tokens", values.tokens) or 0
            prompt += cached + (inner.get("usage.cache_creation_input_tokens", values.tokens) or 0)
    calls.add(
        inner,
        _moment(outer, inner),
        prompt,
        output,
        id=inner.get("id", values.text) or outer.get("request_id", values.text),
        cached=cached,
        reasoning=reasoning,
        truncated=bool(reasons & {"length", "max_tokens", "max_output_tokens"}) if reasons else None,
        kind=outer.get("kind", values.text),
        session=next((outer.get(key, values.text) for key in SESSIONS if outer.has(key)), None),
        service_s=outer.get("duration_s", values.seconds),
    )


def _moment(outer: Record, inner: Record) -> float:
    for record in (outer, inner):
        for key in MOMENTS:
            if record.has(key):
                return record.need(key, values.instant, 0.0)
    inner.fault(MOMENTS[0], f"the record has no time; one of {', '.join(MOMENTS)} is needed", "no time")
    return 0.0


def _reasons(inner: Record) -> set[str]:
    """Return why the answer ended, in the API's words; empty where it does not say."""
    choices: Any = inner.find("choices")
    found = (
        {item.get("finish_reason") for item in choices if isinstance(item, Mapping)}
        if isinstance(choices, list)
        else set()
    )
    found |= {
        inner.find(key) for key in ("stop_reason", "finish_reason", "incomplete_details.reason") if inner.has(key)
    }
    if inner.find("status") == "completed":
        found.add("completed")
    return {reason for reason in found if isinstance(reason, str)}
