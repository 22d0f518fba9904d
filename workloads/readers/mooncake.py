"""Mooncake traces.

Schema: Mooncake, FAST25-release/README (commit 3b5a594): JSON lines with timestamp (milliseconds), input_length,
output_length, hash_ids (one a block of 512 tokens, the last block may be partial; equal ids mean equal contents and
equal prefixes).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from workloads.readers import values
from workloads.readers.build import Build
from workloads.readers.jsonl import records
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk
from workloads.trace import Segments

BLOCK = 512


def block_ids(value: object) -> list[int]:
    """Return a list of block hashes: whole numbers of 64 bits."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise values.Bad("must be a list of whole numbers")
    if value and not -(2**63) <= min(value) <= max(value) < 2**63:
        raise values.Bad("must be whole numbers of 64 bits")
    return value


def block_tokens(blocks: int, prompt: int, block: int) -> list[int]:
    """Return the tokens of each of a prompt's blocks, the last one partial.

    Raises
    ------
    values.Bad
        If the blocks do not cover the prompt exactly.
    """
    if blocks != -(-prompt // block):
        raise values.Bad(f"{prompt:,} tokens need {-(-prompt // block):,} blocks of {block}, there are {blocks:,}")
    return [block] * (blocks - 1) + [prompt - block * (blocks - 1)] if blocks else []


def read(chunks: Iterator[Chunk], build: Build, block: int = BLOCK) -> Recording:
    """Return the calls of the trace with their blocks as segments."""
    lines, arrival = array("q"), array("d")
    prompt, output = array("q"), array("q")
    offsets, ids, sizes = array("q", [0]), array("q"), array("q")
    for record in records(chunks, build.log):
        at = record.need("timestamp", values.seconds, 0.0)
        tokens = record.need("input_length", values.tokens, 0)
        answer = record.need("output_length", values.tokens, 0)
        hashes: list[int] = record.need("hash_ids", block_ids, [])
        if record.bad:
            continue
        try:
            covered = block_tokens(len(hashes), tokens, block)
        except values.Bad as error:
            record.fault("hash_ids", str(error), "other number of blocks")
            continue
        lines.append(record.line or 0)
        arrival.append(at / 1e3)
        prompt.append(tokens)
        output.append(answer)
        ids.extend(hashes)
        sizes.extend(covered)
        offsets.append(len(ids))
    return build.ordered(
        np.asarray(lines),
        arrival_s=np.asarray(arrival),
        prompt_tokens=np.asarray(prompt),
        output_tokens=np.asarray(output),
        segments=Segments(np.asarray(offsets), np.asarray(ids), np.asarray(sizes), block),
    )
