"""ServeGen clients.

Schema: alibaba/ServeGen, data/ (commit f891d11), a folder packed as tar: for each client chunk-N-trace.csv, without a
header, of start (s), rate (1/s), cv of the gaps, their law and its two parameters for each window of 600 s, and
chunk-N-dataset.json with histograms of input_tokens and output_tokens for each window of 21,600 s, each a text
``{tokens: probability, ...}``.
"""

from __future__ import annotations

import bisect
import re
import tarfile
from collections import defaultdict
from dataclasses import replace
from typing import IO

import numpy as np
from numpy.typing import NDArray

from workloads.readers import values
from workloads.readers.build import Build
from workloads.readers.jsonl import parse
from workloads.readers.recording import Recording
from workloads.readers.stream import MAX_LINE

WINDOW_S = 600.0
_MEMBER = re.compile(r"chunk-(\d+)-(trace\.csv|dataset\.json)")
_PAIR = re.compile(r"\s*(\d+)\s*:\s*([0-9.eE+-]+)\s*,?")
MAX_MEMBERS = 100_000
Floats = NDArray[np.float64]
Histogram = tuple[NDArray[np.int64], Floats]


def read_tar(source: IO[bytes], build: Build) -> Recording:
    """Return the histograms of all clients and windows, weighted by the calls in each window.

    Prompts and answers of a window are paired by rank: the source has each alone, not their joint law.
    """
    rates: dict[int, list[tuple[float, float]]] = {}
    histograms: dict[int, dict[float, tuple[Histogram, Histogram]]] = {}
    try:
        with tarfile.open(fileobj=source, mode="r|") as tar:
            for count, member in enumerate(tar):
                match = _MEMBER.fullmatch(member.name.rsplit("/", 1)[-1])
                if count > MAX_MEMBERS:
                    raise build.log.fatal(f"holds more than {MAX_MEMBERS:,} files")
                if not (match and member.isfile()):
                    continue
                if member.size > MAX_LINE:
                    raise build.log.fatal(f"{member.name} is longer than {MAX_LINE // 2**20} MB")
                stream = tar.extractfile(member)
                assert stream is not None
                data, client = stream.read(), int(match[1])
                if match[2] == "trace.csv":
                    rates[client] = _rates(data, member.name, build)
                else:
                    histograms[client] = _histograms(data, member.name, build)
    except (tarfile.TarError, EOFError) as error:
        raise build.log.fatal(f"is no whole tar archive ({error})") from None
    return _recording(rates, histograms, build)


def _rates(data: bytes, name: str, build: Build) -> list[tuple[float, float]]:
    found = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        cells = line.split(",")
        try:
            found.append((values.seconds(cells[0]), values.seconds(cells[1] if len(cells) > 1 else "")))
        except values.Bad as error:
            build.log.add(number, name, str(error), "bad value")
    return found


def _histograms(data: bytes, name: str, build: Build) -> dict[float, tuple[Histogram, Histogram]]:
    try:
        windows = parse(data)
        if not isinstance(windows, dict):
            raise ValueError("must be a JSON object")
        found = {}
        for start, window in windows.items():
            if not isinstance(window, dict):
                raise ValueError("each window must be a JSON object")
            pair = _histogram(window.get("input_tokens")), _histogram(window.get("output_tokens"))
            if len(pair[0][0]) and len(pair[1][0]):
                found[values.seconds(start)] = pair
        return found
    except ValueError as error:
        build.log.add(None, name, str(error), "bad value")
        return {}


def _histogram(value: object) -> Histogram:
    if not (isinstance(value, str) and value.startswith("{") and value.endswith("}")):
        raise values.Bad("a histogram must be text like '{12: 0.5, 13: 0.5}'")
    body, at, tokens, shares = value[1:-1], 0, [], []
    while at < len(body):
        match = _PAIR.match(body, at)
        if not match:
            raise values.Bad(f"a histogram must be text like '{{12: 0.5, 13: 0.5}}', got {body[at : at + 20]!r}")
        tokens.append(values.tokens(match[1]))
        shares.append(values.seconds(match[2]))
        at = match.end()
    order = np.argsort(tokens, kind="stable")
    return np.array(tokens, np.int64)[order], np.array(shares, np.float64)[order]


def _recording(
    rates: dict[int, list[tuple[float, float]]],
    histograms: dict[int, dict[float, tuple[Histogram, Histogram]]],
    build: Build,
) -> Recording:
    prompt, output, weights, clients = [], [], [], []
    lost = total = 0.0
    for client in sorted(histograms):
        starts = sorted(histograms[client])
        calls: defaultdict[float, float] = defaultdict(float)
        for start, rate in rates.get(client, []):
            total += rate * WINDOW_S
            at = bisect.bisect_right(starts, start) - 1
            if at >= 0:
                calls[starts[at]] += rate * WINDOW_S
            else:
                lost += rate * WINDOW_S
        for start, expected in calls.items():
            if expected > 0:
                levels, (ins, outs) = _paired(*histograms[client][start])
                prompt.append(ins)
                output.append(outs)
                weights.append(levels * expected)
                clients.append(np.full(len(ins), client, np.int64))
    if lost:
        build.notes.append(f"{lost:,.0f} of {total:,.0f} calls are in windows without lengths and left out")
    build.notes.append("prompts and answers are paired by rank: the source has each alone")
    empty = np.empty(0)
    outs = np.concatenate([*output, empty]).astype(np.int64)
    recording = build.untimed(
        "it holds rates and lengths of clients, not calls; use it as a pool of clients",
        arrival_s=np.zeros(len(outs)),
        prompt_tokens=np.concatenate([*prompt, empty]).astype(np.int64),
        output_tokens=outs,
    )
    heavy = np.concatenate([*weights, empty])
    return replace(
        recording,
        weights=heavy,
        clusters=np.concatenate([*clients, empty]).astype(np.int64),
        calls=round(float(heavy.sum())),
    )


def _paired(first: Histogram, second: Histogram) -> tuple[Floats, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return shares and pairs of values with exactly these two marginals, largest with largest."""
    levels = [np.cumsum(shares) / shares.sum() for _, shares in (first, second)]
    edges = np.unique(np.concatenate(levels))
    shares = np.diff(edges, prepend=0.0)
    middle = edges - shares / 2
    ins, outs = (
        tokens[np.minimum(np.searchsorted(level, middle), len(tokens) - 1)]
        for (tokens, _), level in zip((first, second), levels, strict=True)
    )
    return shares, (ins, outs)
