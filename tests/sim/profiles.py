"""Kernel profiles written for tests, from functions that interpolation must give back exactly."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

from sim.hardware import Model

TINY = Model(
    "tiny", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=256, vocabulary=100, window=4_096, source="test"
)

Point = tuple[int, int, int, int]

COARSE = ([0, 16, 512], [0, 16, 4_096], [0, 1, 8, 64], [0, 16, 256, 4_096])
FINE = ([0, 48, 128], [0, 64, 1_024], [0, 1, 8, 64], [0, 64, 512, 4_096])


def grid(chunks: list[int], pasts: list[int], counts: list[int], stored: list[int]) -> Iterable[Point]:
    for chunk, past, count, tokens in product(chunks, pasts, counts, stored):
        if (chunk or count) and (chunk or not past) and bool(count) == bool(tokens):
            yield chunk, past, count, tokens


def microseconds(point: Point) -> float:
    """Return a time that is linear along each axis, with all their products."""
    chunk, past, count, stored = point
    return 5 + chunk * (0.1 + past / 1_000) + count * stored / 100 + count / 2 + chunk * count * stored / 1e6


def write_table(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_profile(
    folder: Path,
    points: Iterable[Point],
    time: Callable[[Point], float] = microseconds,
    operators: Iterable[str] = (
        "embedding",
        "layernorm",
        "qkv_proj",
        "rotary_emb",
        "o_proj",
        "gate_up_proj",
        "act_fn",
        "down_proj",
        "final_layernorm",
    ),
    suffix: str = ".csv",
) -> Path:
    """Write a profile: dense operators cost 3 + tokens / 10 us each, output head and sampler 7 + requests us each."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [1, 2, 8, 64, 512, 1_024]
    dense = [(name, tokens, 3 + tokens / 10) for name in operators for tokens in sizes]
    heads = [(name, requests, 7 + requests) for name in ("lm_head", "sampler") for requests in (1, 4, 64)]
    write_table(folder / f"dense{suffix}", ("layer", "tokens", "time_us"), dense)
    write_table(folder / f"per_sequence{suffix}", ("layer", "sequences", "time_us"), heads)
    rows = [(*point, time(point)) for point in points]
    write_table(
        folder / f"attention{suffix}", ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"), rows
    )
    return folder
