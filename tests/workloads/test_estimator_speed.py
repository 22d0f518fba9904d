"""How fast the estimators are: ratios in one run, asked for with ``--benchmark-only``.

Bars: numpy at least 400 MB/s and ten times tiktoken, the standard library at least 100 MB/s, on the ordinary files
concatenated; a message of 2,000 characters at most 20 and 30 microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policies.tokens import Table, count_classes, estimator_named
from workloads.tokenizers import load, missing
from workloads.tokens.kernel import FastTable

TABLE = estimator_named("table:open")
assert isinstance(TABLE, Table)
WAYS: dict[str, Callable[[str], Any]] = {
    "standard library": TABLE.estimate,
    "numpy": FastTable(TABLE).estimate,
    "class counts": count_classes,
}


@pytest.fixture(scope="module")
def text(shared: Path) -> str:
    files = sorted((shared / "corpus").glob("*.txt"))
    return "".join(file.read_bytes().decode() for file in files if not file.stem.startswith("h_"))


@pytest.mark.benchmark(group="corpus")
@pytest.mark.parametrize("way", [*WAYS, "tiktoken o200k"])
def test_corpus(way: str, text: str, benchmark: Any) -> None:
    if way not in WAYS and (lack := missing("o200k")):
        pytest.skip(lack)
    benchmark(WAYS.get(way) or load("o200k").count, text)
    benchmark.extra_info["MB/s"] = len(text.encode()) / 1e6 / benchmark.stats.stats.min


@pytest.mark.benchmark(group="message")
@pytest.mark.parametrize("way", WAYS)
def test_message_of_2000_characters(way: str, text: str, benchmark: Any) -> None:
    benchmark(WAYS[way], text[300_000:302_000])
