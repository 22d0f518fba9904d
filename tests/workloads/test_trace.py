"""Traces keep their rows together; resampling keeps sessions whole and time in order."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.errors import BadInput
from workloads.readers import read_trace, write_trace
from workloads.substreams import generator
from workloads.trace import Labels, Segments, Trace


@st.composite
def traces(draw: st.DrawFn, min_size: int = 0) -> Trace:
    n = draw(st.integers(min_size, 30))

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=n, max_size=n))

    counts = column(st.integers(0, 3))
    total = sum(counts)
    return Trace(
        arrival_s=np.sort(np.array(column(st.floats(0, 5_000)), float)),
        prompt_tokens=np.array(column(st.integers(0, 10**8)), np.int64),
        output_tokens=np.array(column(st.integers(0, 10**8)), np.int64),
        kind=Labels.of(column(st.sampled_from(["chat", "é,\"'", "a b"]))),
        session=np.array(column(st.integers(-3, 3)), np.int64),
        segments=Segments(
            np.concatenate(([0], np.cumsum(counts))),
            np.array(draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=total, max_size=total)), np.int64),
            np.array(draw(st.lists(st.integers(1, 512), min_size=total, max_size=total)), np.int64),
            draw(st.sampled_from([1, 16, 512])),
        ),
        truncated=np.array(column(st.booleans()), bool),
        think_s=np.array(column(st.one_of(st.just(float("nan")), st.floats(0, 1e6))), float),
        timeout_s=np.array(column(st.one_of(st.just(float("nan")), st.floats(0, 1e6))), float),
    )


def rows(trace: Trace) -> list[tuple]:
    """Return each row as plain values, whatever the categories' order."""
    labels = [column.strings() for column in (trace.kind, trace.script) if column is not None]
    plain = [
        np.nan_to_num(column, nan=-1.0).tolist()
        for column in (trace.prompt_tokens, trace.output_tokens, trace.truncated, trace.think_s)
        if column is not None
    ]
    prompts = []
    if trace.segments is not None:
        prompts = [[tuple(map(tuple, trace.segments.row(i))) for i in range(len(trace))]]
    return list(zip(*labels, *plain, *prompts, strict=True))


@given(traces(min_size=1), st.sampled_from([".parquet", ".csv"]))
def test_a_trace_survives_its_file(tmp_path_factory, trace: Trace, suffix: str) -> None:
    path = tmp_path_factory.mktemp("trace") / f"trace{suffix}"
    write_trace(trace, path)
    back = read_trace(path)
    assert rows(back) == rows(trace)
    assert np.array_equal(back.session, trace.session)
    assert np.allclose(back.arrival_s, trace.arrival_s - trace.arrival_s[0], rtol=0, atol=1e-12)
    assert back.segments.block == trace.segments.block
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@given(traces(), st.integers(0, 30))
def test_parts_joined_are_the_whole(trace: Trace, cut: int) -> None:
    joined = Trace.concat([trace[:cut], trace[cut:]])
    assert rows(joined) == rows(trace)
    assert np.array_equal(joined.arrival_s, trace.arrival_s)


@given(traces(), traces())
def test_merging_keeps_every_row_in_order(one: Trace, other: Trace) -> None:
    merged = Trace.merge([one, other])
    assert (np.diff(merged.arrival_s) >= 0).all()
    assert sorted(map(repr, rows(merged))) == sorted(map(repr, rows(one) + rows(other)))


@given(traces(min_size=2), st.integers(0, 5))
def test_a_resample_holds_whole_sessions(trace: Trace, seed: int) -> None:
    again = trace.resample(generator(seed, "test"))
    originals = {
        tuple(map(repr, rows(trace.take(np.flatnonzero(trace.session == name))))) for name in np.unique(trace.session)
    }
    copies = [tuple(map(repr, rows(again.take(np.flatnonzero(again.session == name))))) for name in set(again.session)]
    assert set(copies) <= originals


def test_resampling_draws_every_call_once_on_average() -> None:
    n = 400
    trace = Trace(np.arange(n) * 10.0, np.arange(n), np.ones(n, np.int64))
    counts = np.zeros(n)
    for seed in range(400):
        again = trace.resample(generator(seed, "test"))
        assert len(again) == pytest.approx(n, abs=15)
        counts += np.bincount(again.prompt_tokens, minlength=n)
    assert np.abs(counts / 400 - 1).max() < 0.35
    assert counts.mean() / 400 == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("block_s", [300.0, 700.0])
def test_a_resample_is_made_of_contiguous_blocks(block_s: float) -> None:
    """Within a block calls follow one another as recorded, gaps included; a block may wrap around the trace's end."""
    n = 1_000
    arrivals = np.cumsum(generator(1, "gaps").exponential(5.0, n))
    trace = Trace(arrivals, np.arange(n), np.ones(n, np.int64))
    for seed in range(20):
        again = trace.resample(generator(seed, "test"), block_s)
        before, after = again.prompt_tokens[:-1], again.prompt_tokens[1:]
        gaps_alike = np.isclose(np.diff(again.arrival_s), arrivals[after] - arrivals[before])
        recorded, wraps = (after == before + 1) & gaps_alike, (before == n - 1) & (after == 0)
        assert (~recorded & ~wraps).sum() < math.ceil(arrivals[-1] / block_s)  # one seam less than there are blocks


def test_short_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="300"):
        Trace(np.arange(3.0), np.ones(3), np.ones(3)).resample(generator(1), block_s=10)


@given(traces())
def test_prefix_reuse_is_that_of_an_unlimited_cache(trace: Trace) -> None:
    seen: set[int] = set()
    hit = total = 0
    for i in range(len(trace)):
        ids, tokens = trace.segments.row(i)
        blocks = -(-tokens // trace.segments.block)
        total += int(blocks.sum())
        for name, count in zip(ids.tolist(), blocks.tolist(), strict=True):
            if name not in seen:
                break
            hit += count
        seen.update(ids.tolist())
    reuse = trace.prefix_reuse()
    assert reuse is None if total == 0 else reuse == pytest.approx(hit / total)


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"arrival_s": [1.0, 0.5]}, "nondecreasing"),
        ({"arrival_s": [0.0, float("nan")]}, "finite"),
        ({"arrival_s": [float("-inf"), 0.0]}, "arrival_s"),
        ({"prompt_tokens": [1, -1]}, "prompt_tokens"),
        ({"output_tokens": [1, 10**12]}, "output_tokens"),
        ({"output_tokens": [1.5, 2.0]}, "whole"),
        ({"output_tokens": [1]}, "rows"),
        ({"session": [[1, 2]]}, "dimension"),
    ],
)
def test_columns_out_of_range_are_refused(columns: dict, word: str) -> None:
    fair = {"arrival_s": [0.0, 1.0], "prompt_tokens": [1, 2], "output_tokens": [3, 4]}
    with pytest.raises(ValueError, match=word):
        Trace(**{name: np.array(values) for name, values in (fair | columns).items()})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_patience_below_0_is_refused(tmp_path, suffix: str) -> None:
    path = tmp_path / f"trace.{suffix}"
    ones = np.ones(2, np.int64)
    write_trace(Trace(np.arange(2.0), ones, ones, patience_s=np.array([np.nan, -1.0])), path)
    with pytest.raises(BadInput, match="patience_s"):
        read_trace(path)


def test_an_unknown_suffix_is_refused_before_writing(tmp_path) -> None:
    with pytest.raises(BadInput, match=r"\.parquet"):
        write_trace(Trace(np.arange(3.0), np.ones(3), np.ones(3)), tmp_path / "trace.xlsx")
    assert not list(tmp_path.iterdir())


def test_azure(shared) -> None:
    trace = read_trace(shared / "data/files/azure/AzureLLMInferenceTrace_conv.csv")
    assert len(trace) == 19_366
    assert trace.span_s == pytest.approx(3_501.721937, abs=1e-6)
    assert np.median(trace.prompt_tokens) == 1_020
    assert np.median(trace.output_tokens) == 129


def test_mooncake(shared) -> None:
    trace = read_trace(shared / "data/files/mooncake/synthetic_trace.jsonl")
    assert len(trace) == 3_993
    assert trace.prefix_reuse() == pytest.approx(77_953 / 121_877, abs=1e-12)
    assert np.array_equal(trace.segments.totals(), trace.prompt_tokens)


@given(st.lists(st.lists(st.integers(1, 9), max_size=5), max_size=6))
def test_segments_end_where_their_row_says(rows):
    sizes = [size for row in rows for size in row]
    offsets = np.cumsum([0, *map(len, rows)])
    segments = Segments(offsets, np.arange(len(sizes)), np.array(sizes, np.int64))
    assert segments.ends().tolist() == [end for row in rows for end in accumulate(row)]
    assert segments.totals().tolist() == list(map(sum, rows))
    assert not Segments.none(len(rows)).totals().any()
