"""Lengths without arrival times: lists of calls, and histograms.

Schemas: microsoft/sarathi-serve, data/processed_traces (commit 72339db): CSV with num_prefill_tokens,
num_decode_tokens, one row a call. Histograms are this project's own: tokens, probability.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from workloads.readers.build import Build
from workloads.readers.recording import Recording
from workloads.readers.stream import Chunk
from workloads.readers.table import SECONDS, TOKENS, Column, read_table

PAIRS = (Column("num_prefill_tokens", TOKENS), Column("num_decode_tokens", TOKENS))
HISTOGRAM = (Column("tokens", TOKENS), Column("probability", SECONDS))
WHY = "it holds lengths without arrival times; use it as an 'empirical' length law"


def read_pairs(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return one row a call, in the file's order."""
    rows, ignored = read_table(chunks, PAIRS, build.log)
    build.ignore(ignored)
    prompt, output = (rows.columns[column.name] for column in PAIRS)
    return build.untimed(WHY, arrival_s=np.zeros(len(prompt)), prompt_tokens=prompt, output_tokens=output)


def read_histogram(chunks: Iterator[Chunk], build: Build) -> Recording:
    """Return one row a length, taken as answers; prompts are not recorded."""
    rows, ignored = read_table(chunks, HISTOGRAM, build.log)
    build.ignore(ignored)
    lengths, weights = rows.columns["tokens"], rows.columns["probability"]
    if len(weights) and not weights.sum() > 0:
        raise build.log.fatal("the probabilities are all 0", key="probability")
    zeros = np.zeros(len(lengths), np.int64)
    build.notes.append("a histogram without a number of calls: shares have no interval")
    recording = build.untimed(WHY, arrival_s=np.zeros(len(lengths)), prompt_tokens=zeros, output_tokens=lengths)
    return replace(recording, weights=weights, notes=tuple(build.notes))
