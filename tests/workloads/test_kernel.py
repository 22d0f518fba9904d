"""The numpy kernel and the standard-library table: the same integer for every text."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.tokens import CLASSES, Table, count_classes
from policies.tokens.counts import BLOCK, KINDS, PAIRS
from policies.tokens.estimators import byte_sum
from workloads.tokens.kernel import FastTable

_RNG = random.Random(20261130)
# Arbitrary weights, not the fitted ones: equality must not hang on zeros or caps.
ANYHOW = Table(
    "table:anyhow",
    bytes(_RNG.randrange(256) for _ in range(PAIRS)),
    tuple(0 if number < 23 else _RNG.randrange(1020) for number in range(len(CLASSES))),
    tuple(_RNG.randrange(256) for _ in KINDS),
    capped=False,
)


@given(st.text(st.characters(exclude_categories=()), max_size=100))
@example("\ud83d\ude00 \ud83d")
@example("a\ud83d😀b")
@example("")
def test_three_ways_one_integer(text: str) -> None:
    tokens = ANYHOW.estimate(text)
    assert tokens == ANYHOW.estimate_counts(count_classes(text))
    assert tokens == FastTable(ANYHOW).estimate(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": (*ANYHOW.classes[:-1], 0x10000)}, "must be 0 to 65535"),
        ({"classes": (*ANYHOW.classes[:-1], -1)}, "must be 0 to 65535"),
        ({"classes": ANYHOW.classes[:-1]}, "classes"),
        ({"pairs": ANYHOW.pairs[:-1]}, "pairs"),
        ({"alone": ANYHOW.alone[:-1]}, "kinds"),
    ],
)
def test_a_table_that_cannot_be_is_refused(changes, message: str) -> None:
    with pytest.raises(ValueError, match=f"table:anyhow: .*{message}"):
        replace(ANYHOW, **changes)


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
@pytest.mark.parametrize("unit", ["Añ1 漢😀\n йk", "plain ", "наречие", "\ud800x"])
def test_blocks_change_nothing(unit: str, size: int) -> None:
    text = (unit * size)[:size]
    assert ANYHOW.estimate(text) == ANYHOW.estimate_counts(count_classes(text)) == FastTable(ANYHOW).estimate(text)


@given(st.binary(max_size=1000))
@example(b"\xff" * 1000)
def test_byte_sum(values: bytes) -> None:
    assert byte_sum(values) == sum(values)
