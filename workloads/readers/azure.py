"""Azure LLM inference traces of 2023.

Schema: AzurePublicDataset, AzureLLMInferenceDataset2023.md (commit b469a11): TIMESTAMP of the invocation,
ContextTokens, GeneratedTokens; CRLF, seven digits of a second, in order of time.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.readers.build import Build
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk
from workloads.readers.table import TIME, TOKENS, Column, read_table

COLUMNS = (Column("TIMESTAMP", TIME), Column("ContextTokens", TOKENS), Column("GeneratedTokens", TOKENS))


def read(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the calls of the trace."""
    rows, ignored = read_table(chunks, COLUMNS, build.log)
    build.ignore(ignored)
    ns = rows.columns["TIMESTAMP"]
    return build.ordered(
        rows.lines,
        arrival_s=(ns - (ns.min() if len(ns) else 0)) / 1e9,
        prompt_tokens=rows.columns["ContextTokens"],
        output_tokens=rows.columns["GeneratedTokens"],
    )
