"""The formats that are read: how each is recognised, and by which module it is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.errors import BadInput, Fault, did_you_mean
from workloads.readers import (
    azure,
    bailian,
    burstgpt,
    columnar,
    exports,
    jsonl,
    lists,
    mooncake,
    otel,
    servegen,
    transcripts,
    usage,
    weka,
    weka_trace,
)
from workloads.readers.build import Build
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk, chunks, open_bytes
from workloads.readers.table import split_header
from workloads.trace import Trace

Read = Callable[[Iterator[Chunk], Build], Recording]
Record = Mapping[str, Any]
TRIED = 50  # records that are looked at to recognise a format: transcripts begin with lines of other kinds


@dataclass(frozen=True, slots=True)
class Format:
    """A text format: how it is recognised, and read.

    Attributes
    ----------
    about
        What writes it, in a few words.
    read
        From chunks of lines to a recording.
    header
        CSV columns that tell it; empty for JSON.
    tells
        Whether a JSON record is of this format.
    document
        Key that tells it where the whole file is one JSON object over many lines; empty for JSON lines.
    """

    about: str
    read: Read
    header: frozenset[str] = frozenset()
    tells: Callable[[Record], bool] = lambda record: False
    document: str = ""


def _csv(about: str, read: Read, *header: str) -> Format:
    return Format(about, read, header=frozenset(header))


def _json(about: str, read: Read, *keys: str, without: str = "", document: str = "") -> Format:
    wanted = frozenset(keys)
    return Format(
        about, read, tells=lambda record: wanted <= record.keys() and without not in record, document=document
    )


FORMATS: dict[str, Format] = {
    "csv": _csv("this project's columns", columnar.read_csv, "arrival_s", "prompt_tokens"),
    "azure-2023": _csv("Azure LLM inference trace", azure.read, "TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": _csv("BurstGPT trace", burstgpt.read, "Timestamp", "Request tokens", "Response tokens"),
    "lengths": _csv("prompt and answer lengths", lists.read_pairs, "num_prefill_tokens", "num_decode_tokens"),
    "histogram": _csv("histogram of answer lengths", lists.read_histogram, "tokens", "probability"),
    "qwen-bailian": _json("Qwen-Bailian usage trace", bailian.read, "chat_id", "parent_chat_id", "hash_ids"),
    "mooncake": _json("Mooncake trace", mooncake.read, "timestamp", "input_length", "hash_ids"),
    "weka": _json("Claude Code sessions of kv-cache-tester", weka_trace.read, *weka.KEYS),
    "server-bench": _json("measured vLLM server", exports.read_server_bench, "request_id", "input_toks", "queued_ts"),
    "tracelab": _json("TraceLab rounds", exports.read_tracelab, "session_id", "input_tokens_total", "timing_events"),
    "aiperf": _json("aiperf profile export", exports.read_aiperf, "metadata", "metrics"),
    "vllm-bench": _json("vLLM bench result", exports.read_vllm_bench, "input_lens", document="input_lens"),
    "guidellm": _json("guidellm report", exports.read_guidellm, "benchmarks", document="benchmarks"),
    "otel": _json("OpenTelemetry spans (OTLP)", otel.read, "resourceSpans"),
    "otel-flat": _json("OpenTelemetry spans (flat)", otel.read, "attributes", "start_time"),
    "qwen-code": _json(
        "Qwen Code transcript", transcripts.read_qwen_code, "sessionId", "uuid", "type", without="isSidechain"
    ),
    "claude-code": _json("Claude Code transcript", transcripts.read_claude_code, "sessionId", "isSidechain"),
    "usage": Format("OpenAI or Anthropic usage records", usage.read, tells=usage.tells),
}
NAMES = ("auto", "parquet", "servegen", *FORMATS)
PARQUET_MAGIC = b"PAR1"
TAR_MAGIC, TAR_AT = b"ustar", 257


def read_recording(path: str | Path, format: str = "auto", skip_bad: bool = False) -> Recording:
    """Return the calls in a file and what is to be said about them.

    Parameters
    ----------
    path
        A file, plain or compressed (gzip, bzip2, xz).
    format
        ``auto`` to recognise it by its contents, or one of `NAMES`.
    skip_bad
        Leave bad rows out, counted in the notes, instead of refusing the file.

    Raises
    ------
    workloads.errors.BadInput
        All faults of the file at once.
    """
    if format not in NAMES:
        raise BadInput(Fault(f"no such format; allowed: {', '.join(NAMES)}{did_you_mean(format, NAMES)}", key="format"))
    with open_bytes(path) as source:
        head = source.peek(TAR_AT + len(TAR_MAGIC))
        if format == "parquet" or (format == "auto" and head.startswith(PARQUET_MAGIC)):
            return columnar.read_parquet(path, Build(path, "parquet", skip_bad))
        if format == "servegen" or (format == "auto" and head[TAR_AT:].startswith(TAR_MAGIC)):
            return servegen.read_tar(source, Build(path, "servegen", skip_bad))
        parts = chunks(source, path)
        first = next(parts, Chunk(1, b""))
        name = recognise(first, path) if format == "auto" else format

        def again() -> Iterator[Chunk]:
            yield first
            yield from parts

        return FORMATS[name].read(again(), Build(path, name, skip_bad))


def read_trace(path: str | Path, format: str = "auto") -> Trace:
    """Return the calls in a file, timed from the first arrival.

    Parameters
    ----------
    path
        A file, plain or compressed.
    format
        A name of `FORMATS`, or ``auto`` to recognise it by the contents.

    Raises
    ------
    workloads.errors.BadInput
        All faults of the file at once.
    """
    return read_recording(path, format).timed()


def recognise(first: Chunk, path: str | Path) -> str:
    """Return the name of the format that a text begins in.

    Raises
    ------
    workloads.errors.BadInput
        If it is none of `FORMATS`.
    """
    number, line = next(first.lines(), (1, b""))
    found = _by_record(first) if line.startswith(b"{") else _by_header(line)
    if found is None:
        shown = line[:80].decode("utf-8", "replace")
        raise BadInput(
            Fault(f"unknown format; name it with --format, one of {', '.join(NAMES[1:])}. Found: {shown}", path, number)
        )
    return found


def _by_header(line: bytes) -> str | None:
    header = set(split_header(line))
    return next((name for name, format in FORMATS.items() if format.header and format.header <= header), None)


def _by_record(first: Chunk) -> str | None:
    for _, (_, line) in zip(range(TRIED), first.lines(), strict=False):
        try:
            record = jsonl.parse(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            for name, format in FORMATS.items():
                if format.tells(record):
                    return name
    for name, format in FORMATS.items():
        if format.document and re.search(rb'"%s"\s*:' % format.document.encode(), first.data):
            return name
    return None
