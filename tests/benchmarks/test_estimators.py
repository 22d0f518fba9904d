"""How fast the estimators are, on request: ``pytest tests/benchmarks/test_estimators.py --benchmark-only``.

Bars: numpy at least 400 MB/s and ten times tiktoken, the standard library at least 100 MB/s, on the ordinary files
concatenated; a message of 2,000 characters at most 20 and 30 microseconds, which are 40 and 60 bare SimPy timeouts.
Figures in docs/estimators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from policies.tokens import Table, estimator_named
from tests.benchmarks.conftest import bare_timeout_s
from workloads.tokenizers import load, missing
from workloads.tokens.corpora import STRESS
from workloads.tokens.kernel import FastTable

TABLE = estimator_named("table:open")
assert isinstance(TABLE, Table)
WAYS: dict[str, Callable[[str], int]] = {"standard library": TABLE.estimate, "numpy": FastTable(TABLE).estimate}
MESSAGES = {"ASCII": "lat_en", "Latin": "lat_fr", "Cyrillic": "cyr_ru", "Chinese": "hans_zh"}
MESSAGES |= {"mixed": "emoji_chat", "emoji": "emoji_only"}
"""Kind of a message -> the file whose beginning it is."""


@pytest.fixture(scope="module")
def text(shared: Path) -> str:
    files = sorted((shared / "corpus").glob("*.txt"))
    return "".join(file.read_bytes().decode() for file in files if not file.stem.startswith(STRESS))


@pytest.fixture(scope="module")
def bare_s() -> float:
    return bare_timeout_s()


@pytest.mark.parametrize("way", [*WAYS, "tiktoken o200k"])
def test_corpus(way: str, text: str, benchmark, tell) -> None:
    if way not in WAYS and (lack := missing("o200k")):
        pytest.skip(lack)
    work = WAYS.get(way) or load("o200k").count
    benchmark.pedantic(work, (text,), rounds=100 if way in WAYS else 5, warmup_rounds=1)
    tell(megabytes_per_s=len(text.encode()) / 1e6 / benchmark.stats.stats.min)


@pytest.mark.parametrize("characters", [50, 500, 2_000, 20_000])
@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("way", WAYS)
def test_message(way: str, kind: str, characters: int, shared: Path, benchmark, tell, bare_s: float) -> None:
    passage = (shared / "corpus" / f"{MESSAGES[kind]}.txt").read_bytes().decode()
    message = (passage * -(-characters // len(passage)))[:characters]
    benchmark.pedantic(WAYS[way], (message,), rounds=1_000, warmup_rounds=1)
    best_s = benchmark.stats.stats.min
    tell(microseconds=1e6 * best_s, bare_timeouts=best_s / bare_s)
