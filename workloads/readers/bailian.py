"""Qwen-Bailian anonymised usage traces.

Schema: alibaba-edu/qwen-bailian-usagetraces-anon, README (2025): JSON lines with chat_id, parent_chat_id (-1 for a
first turn), timestamp (seconds), input_length, output_length, type (text, search, image, file), turn, hash_ids
(salted, one a block of 16 tokens).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from workloads.readers import values
from workloads.readers.build import Build
from workloads.readers.jsonl import records
from workloads.readers.mooncake import block_ids
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk
from workloads.trace import Labels, Segments

BLOCK = 16


def read(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return the turns; a session is a chain of turns through parent_chat_id."""
    lines, arrival, prompt, output, session = array("q"), array("d"), array("q"), array("q"), array("q")
    kinds: list[str] = []
    offsets, ids = array("q", [0]), array("q")
    root: dict[int, int] = {}
    for record in records(chunks, build.log):
        chat = record.need("chat_id", whole, 0)
        parent = record.need("parent_chat_id", whole, -1)
        at = record.need("timestamp", values.seconds, 0.0)
        tokens = record.need("input_length", values.tokens, 0)
        answer = record.need("output_length", values.tokens, 0)
        kind = record.get("type", values.text, "unknown")
        hashes = record.need("hash_ids", block_ids, ())
        if chat in root:
            record.fault("chat_id", f"{chat} stands already further up", "duplicate id")
        if len(hashes) > -(-tokens // BLOCK):
            record.fault(
                "hash_ids", f"{tokens:,} tokens have at most {-(-tokens // BLOCK):,} blocks", "too many blocks"
            )
        if record.bad:
            continue
        root[chat] = root.get(parent, chat)
        lines.append(record.line or 0)
        arrival.append(at)
        prompt.append(tokens)
        output.append(answer)
        session.append(root[chat])
        kinds.append(kind or "unknown")
        ids.extend(hashes)
        offsets.append(len(ids))
    return build.ordered(
        np.asarray(lines),
        arrival_s=np.asarray(arrival),
        prompt_tokens=np.asarray(prompt),
        output_tokens=np.asarray(output),
        kind=Labels.of(kinds),
        session=np.asarray(session),
        segments=Segments.blocks(np.asarray(offsets), np.asarray(ids), np.asarray(prompt), BLOCK),
    )


def whole(value: object) -> int:
    """Return a whole number of 64 bits."""
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise values.Bad("must be a whole number of 64 bits")
    return value
