"""The same address gives the same numbers; different addresses give independent ones."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workloads.substreams import generator

names = st.lists(st.one_of(st.text(max_size=8), st.integers(-5, 2**70)), max_size=4)


@given(st.integers(-(2**80), 2**80), names, st.integers(0, 2**64 - 1))
def test_an_address_always_gives_the_same_numbers(seed: int, path: list, block: int) -> None:
    first, second = (generator(seed, *path, block=block).random(5) for _ in range(2))
    assert np.array_equal(first, second)


@given(names, names)
def test_other_names_give_other_numbers(one: list, other: list) -> None:
    same = [(type(name), name) for name in one] == [(type(name), name) for name in other]
    assert np.array_equal(generator(1, *one).random(4), generator(1, *other).random(4)) == same


def test_blocks_and_names_are_uncorrelated() -> None:
    columns = [generator(7, "a", block=k).random(20_000) for k in range(3)]
    columns += [generator(7, "b").random(20_000), generator(8, "a").random(20_000)]
    correlation = np.corrcoef(columns)
    assert np.abs(correlation[np.triu_indices(5, 1)]).max() < 4.5 / np.sqrt(20_000)
    for column in columns:
        assert stats.kstest(column, "uniform").pvalue > 1e-4


def test_numbers_do_not_depend_on_the_hash_seed() -> None:
    program = "from workloads.substreams import generator; print(generator(3, 'x', 4, block=5).integers(2**62))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(seen) == 1


@pytest.mark.parametrize("block", [-1, 2**64])
def test_a_block_out_of_range_is_refused(block: int) -> None:
    with pytest.raises(ValueError, match="block"):
        generator(1, block=block)
