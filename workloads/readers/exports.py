"""Requests that load generators and benches export.

Schemas: vLLM `vllm bench serve --save-result --save-detailed` (0.11: input_lens, output_lens, start_times), one JSON
document; aiperf `profile_export.jsonl` (0.3: metadata.request_start_ns, metrics.input_sequence_length.value,
output_sequence_length.value); guidellm `benchmarks.json` (0.3: benchmarks[].requests.successful[] of start_time,
end_time, prompt_tokens, output_tokens); LLMServingSim's bench of a vLLM server, requests.jsonl (commit 5daddb2:
input_toks, output_toks, queued_ts); TraceLab round_trace.jsonl (commit 0b8a262: session_id, input_tokens_total,
output_tokens, timing_events).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workloads.readers import values
from workloads.readers.build import Build
from workloads.readers.calls import Calls
from workloads.readers.jsonl import Record, entries, parse, records
from workloads.readers.recording import Recording
from workloads.readers.stream import MAX_LINE, Chunk


def document(chunks: Iterator[Chunk], build: Build) -> Record:
    """Return the one JSON object of a file, at most `MAX_LINE` bytes long.

    Raises
    ------
    workloads.errors.BadInput
        If it is longer or no JSON object.
    """
    parts, length = [], 0
    for chunk in chunks:
        parts.append(chunk.data)
        length += len(chunk.data)
        if length > MAX_LINE:
            raise build.log.fatal(f"is one JSON document longer than {MAX_LINE // 2**20} MB")
    try:
        data = parse(b"".join(parts))
    except ValueError as error:
        raise build.log.fatal(str(error)) from None
    if not isinstance(data, dict):
        raise build.log.fatal("must be a JSON object")
    return Record(data, None, build.log)


def read_vllm_bench(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the requests of a vLLM bench result."""
    whole, calls = document(chunks, build), Calls(build)
    lists = [whole.need(key, _list, []) for key in ("input_lens", "output_lens", "start_times")]
    if len({len(each) for each in lists}) > 1:
        whole.fault(None, "input_lens, output_lens and start_times must be equally long", "other lengths")
    for i, (prompt, output, start) in enumerate(zip(*lists, strict=False)):
        row = Record({"input_lens": prompt, "output_lens": output, "start_times": start}, i + 1, build.log)
        calls.add(
            row,
            row.need("start_times", values.instant, 0.0),
            row.need("input_lens", values.tokens, 0),
            row.need("output_lens", values.tokens, 0),
        )
    return calls.sorted()


def read_guidellm(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the successful requests of all benchmarks of a guidellm report, each benchmark a kind of its own."""
    whole, calls = document(chunks, build), Calls(build)
    for i, benchmark in enumerate(whole.need("benchmarks", entries, [])):
        for request in Record(benchmark, None, build.log).need("requests.successful", entries, []):
            row = Record(request, None, build.log)
            start = row.need("start_time", values.instant, 0.0)
            end = row.get("end_time", values.instant)
            calls.add(
                row,
                start,
                row.need("prompt_tokens", values.tokens, 0),
                row.need("output_tokens", values.tokens, 0),
                kind=f"benchmark {i + 1}",
                service_s=None if end is None else max(0.0, end - start),
            )
    return calls.sorted()


def read_aiperf(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the requests of an aiperf export; failed ones are counted in the notes."""
    calls, failed = Calls(build), 0
    for record in records(chunks, build.log):
        if record.has("error"):
            failed += 1
            continue
        calls.add(
            record,
            record.need("metadata.request_start_ns", values.instant, 0.0),
            record.need("metrics.input_sequence_length.value", values.tokens, 0),
            record.need("metrics.output_sequence_length.value", values.tokens, 0),
            id=record.get("metadata.x_request_id", values.text),
            session=record.get("metadata.conversation_id", values.text),
            reasoning=record.get("metrics.reasoning_token_count.value", values.tokens),
        )
    if failed:
        build.notes.append(f"{failed:,} failed requests left out")
    return calls.sorted()


def read_server_bench(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the requests of a measured vLLM server; they arrive when they are queued."""
    calls = Calls(build)
    for record in records(chunks, build.log):
        queued = record.need("queued_ts", values.seconds, 0.0)
        last = record.get("last_token_ts", values.seconds)
        calls.add(
            record,
            queued,
            record.need("input_toks", values.tokens, 0),
            record.need("output_toks", values.tokens, 0),
            id=record.get("request_id", values.text),
            service_s=None if last is None else max(0.0, last - queued),
        )
    return calls.sorted()


def read_tracelab(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the rounds of coding agents; they start at their first event."""
    calls = Calls(build)
    for record in records(chunks, build.log):
        events = record.need("timing_events", entries, [])
        first: Mapping[str, Any] = events[0] if events else {}
        calls.add(
            record,
            Record(first, record.line, build.log).need("timestamp", values.instant, 0.0),
            record.need("input_tokens_total", values.tokens, 0),
            record.need("output_tokens", values.tokens, 0),
            id=record.get("trace_key", values.text) or record.get("round_id", values.text),
            cached=record.get("prefix_tokens", values.tokens),
            reasoning=record.get("reasoning_output_tokens", values.tokens),
            session=record.get("session_id", values.text),
        )
    return calls.sorted()


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise values.Bad("must be a list")
    return value
