"""OpenTelemetry spans of model calls.

Schemas: OTLP/JSON (opentelemetry-proto 1.x, ExportTraceServiceRequest, as file exporters write it, one object a
line), and flat spans with ``start_time``, ``end_time``, ``attributes`` (the SDK's ``to_json``). Attributes: semantic
conventions for generative AI 1.37, gen_ai.usage.input_tokens, gen_ai.usage.output_tokens,
gen_ai.response.finish_reasons, gen_ai.conversation.id, gen_ai.operation.name, and the older names
gen_ai.usage.prompt_tokens, gen_ai.usage.completion_tokens (up to 1.26).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workloads.readers import values
from workloads.readers.build import Build
from workloads.readers.calls import Calls
from workloads.readers.jsonl import Record, entries, records
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk

INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens")
SCALARS = ("stringValue", "intValue", "doubleValue", "boolValue")


def read(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the calls in order of arrival; spans that are no model calls are counted in the notes."""
    calls, others = Calls(build), 0
    for record in records(chunks, build.log):
        for span in _spans(record):
            attributes = Record(_attributes(span), record.line, record.log)
            if any(attributes.has(key) for key in OUTPUT):
                _add(calls, span, attributes)
            else:
                others += 1
    if others:
        build.notes.append(f"{others:,} spans without gen_ai usage left out")
    return calls.sorted()


def _spans(record: Record) -> Iterator[Record]:
    if not record.has("resourceSpans"):
        yield record
        return
    for resource in record.need("resourceSpans", entries, []):
        for scope in Record(resource, record.line, record.log).need("scopeSpans", entries, []):
            for span in Record(scope, record.line, record.log).need("spans", entries, []):
                yield Record(span, record.line, record.log)


def _attributes(span: Record) -> dict[str, Any]:
    given = span.find("attributes")
    if isinstance(given, Mapping):
        return dict(given)
    found: dict[str, Any] = {}
    for item in given if isinstance(given, list) else []:
        if isinstance(item, Mapping) and isinstance(item.get("key"), str):
            found[item["key"]] = _value(item.get("value"))
    return found


def _value(value: Any) -> Any:  # noqa: ANN401 - any attribute value
    """Return an OTLP value as plain JSON; 64-bit integers come as text."""
    if not isinstance(value, Mapping):
        return value
    for key in SCALARS:
        if key in value:
            return value[key]
    array = value.get("arrayValue")
    inside = array.get("values") if isinstance(array, Mapping) else None
    return [_value(item) for item in inside] if isinstance(inside, list) else None


def _add(calls: Calls, span: Record, attributes: Record) -> None:
    def count(keys: tuple[str, ...]) -> int | None:
        return next((attributes.need(key, values.tokens, 0) for key in keys if attributes.has(key)), None)

    start = _moment(span, ("startTimeUnixNano", "start_time"))
    end = _moment(span, ("endTimeUnixNano", "end_time"))
    prompt = count(INPUT)
    if prompt is None:
        attributes.fault(INPUT[0], "is missing", "is missing")
    if start is None:
        span.fault("startTimeUnixNano", "is missing", "is missing")
    if start is not None and end is not None and end < start:
        span.fault("endTimeUnixNano", "the span ends before it starts", "ends before it starts")
    reasons = attributes.find("gen_ai.response.finish_reasons")
    reasons = [reasons] if isinstance(reasons, str) else reasons
    told = [reason for reason in reasons if isinstance(reason, str)] if isinstance(reasons, list) else []
    attributes.bad |= span.bad
    calls.add(
        attributes,
        start or 0.0,
        prompt or 0,
        count(OUTPUT) or 0,
        id=span.get("spanId", values.text) or span.get("context.span_id", values.text),
        cached=count(CACHED),
        truncated=bool({"length", "max_tokens"} & {reason.lower() for reason in told}) if told else None,
        kind=attributes.get("gen_ai.operation.name", values.text),
        session=attributes.get("gen_ai.conversation.id", values.text),
        service_s=None if start is None or end is None else end - start,
    )


def _moment(span: Record, keys: tuple[str, ...]) -> float | None:
    return next((span.need(key, values.instant, 0.0) for key in keys if span.has(key)), None)
