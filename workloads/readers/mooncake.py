"""Mooncake traces.

Schema: Mooncake, FAST25-release/README (commit 3b5a594): JSON lines with timestamp (milliseconds), input_length,
output_length, hash_ids (one a block of 512 tokens, the last block may be partial; equal ids mean equal contents and
equal prefixes).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute

from workloads.readers import values
from workloads.readers.arrow import flat_lines, numbers
from workloads.readers.build import Build
from workloads.readers.faults import FaultLog
from workloads.readers.jsonl import records
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk
from workloads.trace import MAX_TOKENS, Floats, Ints, Segments

BLOCK = 512
SCHEMA = pa.schema(
    {
        "timestamp": pa.float64(),
        "input_length": pa.int64(),
        "output_length": pa.int64(),
        "hash_ids": pa.list_(pa.int64()),
    }
)


def block_ids(value: object) -> array[int]:
    """Return a list of block hashes, whole numbers of 64 bits, as an array of them."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise values.Bad("must be a list of whole numbers")
    try:
        return array("q", value)
    except OverflowError:
        raise values.Bad("must be whole numbers of 64 bits") from None


class Rows(NamedTuple):
    """Good rows of some lines, column by column."""

    lines: Ints
    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    blocks: Ints
    ids: Ints
    """The block hashes of all rows, ``blocks[i]`` of row i."""


def read(chunks: Iterator[Chunk], build: Build, block: int = BLOCK) -> Recording:
    """Return the calls of the trace with their blocks as segments."""
    parts = [_fast(chunk, block) or _careful(chunk, block, build.log) for chunk in chunks]
    rows = Rows(*map(np.concatenate, zip(*parts, strict=True)))
    offsets = np.concatenate(([0], np.cumsum(rows.blocks)))
    return build.ordered(
        rows.lines,
        arrival_s=rows.arrival_s,
        prompt_tokens=rows.prompt_tokens,
        output_tokens=rows.output_tokens,
        segments=Segments.blocks(offsets, rows.ids, rows.prompt_tokens, block),
    )


def _fast(chunk: Chunk, block: int) -> Rows | None:
    """Return the chunk's rows, or None if anything at all is unusual about them."""
    table = flat_lines(chunk, SCHEMA)
    if table is None:
        return None
    at, prompt, output = (numbers(table.column(name)) for name in SCHEMA.names[:3])
    hashes = table.column("hash_ids")
    blocks = numbers(compute.list_value_length(hashes))
    fair = (
        ((at >= 0) & (at <= values.MAX_SECONDS) & ~np.signbit(at)).all()
        and all(((tokens >= 0) & (tokens <= MAX_TOKENS)).all() for tokens in (prompt, output))
        and (blocks == -(-prompt // block)).all()
    )
    if not fair:
        return None
    lines = chunk.first + np.arange(table.num_rows)
    return Rows(lines, at / 1e3, prompt, output, blocks, numbers(compute.list_flatten(hashes)))


def _careful(chunk: Chunk, block: int, log: FaultLog) -> Rows:
    """Return the chunk's good rows, line by line, and note the faults of the others."""
    lines, arrival = array("q"), array("d")
    prompt, output, blocks, ids = array("q"), array("q"), array("q"), array("q")
    for record in records(iter((chunk,)), log):
        at = record.need("timestamp", values.seconds, 0.0)
        tokens = record.need("input_length", values.tokens, 0)
        answer = record.need("output_length", values.tokens, 0)
        hashes = record.need("hash_ids", block_ids, ())
        if record.bad:
            continue
        needed, found = -(-tokens // block), len(hashes)
        if found != needed:
            message = f"{tokens:,} tokens need {needed:,} blocks of {block}, there are {found:,}"
            record.fault("hash_ids", message, "other number of blocks")
            continue
        lines.append(record.line or 0)
        arrival.append(at / 1e3)
        prompt.append(tokens)
        output.append(answer)
        blocks.append(found)
        ids.extend(hashes)
    return Rows(*map(np.asarray, (lines, arrival, prompt, output, blocks, ids)))
