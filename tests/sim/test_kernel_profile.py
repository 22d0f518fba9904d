"""Kernel profiles: interpolation gives back what it must, ragged grids included, and holes are refused."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware import MODELS
from sim.steptime import FOREVER, Profile, read_kernels
from sim.steptime.curve import Curve, between, total
from workloads.errors import BadInput

from .profiles import COARSE, FINE, TINY, grid, microseconds, write_profile, write_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(write_profile(tmp_path_factory.mktemp("profile"), {*grid(*COARSE), *grid(*FINE)}))


@pytest.fixture(scope="module")
def kernels(folder):
    return read_kernels(folder, TINY)


floats = st.floats(0, 1e3)
curves = st.dictionaries(st.integers(0, 50), floats, min_size=1, max_size=6).map(lambda d: Curve(sorted(d.items())))


@given(curves, st.integers(0, 60), st.integers(1, 7))
def test_a_curves_line_is_the_curve_as_long_as_it_says(curve, x, step):
    start, slope, steps = curve.line(x, step)
    for k in range(min(steps, 60)):
        assert start + k * slope == pytest.approx(curve(x + k * step), rel=1e-9, abs=1e-9)


@given(curves, curves, floats, st.floats(0, 1), st.integers(0, 50))
def test_sums_and_mixtures_of_curves_are_exact_at_every_point(one, other, factor, share, x):
    inside = min(max(x, one.xs[0], other.xs[0]), one.xs[-1], other.xs[-1])
    assert total([(factor, one), (1, other)])(inside) == pytest.approx(factor * one(inside) + other(inside), abs=1e-9)
    assert between(one, other, share)(inside) == pytest.approx(
        one(inside) * (1 - share) + other(inside) * share, abs=1e-9
    )


def test_a_curve_is_flat_before_and_goes_on_after():
    curve = Curve([(2, 5.0), (4, 5.0), (6, 7.0), (8, 9.0)])
    assert [curve(x) for x in (0, 2, 8, 12)] == [5.0, 5.0, 9.0, 13.0]
    assert curve.line(0) == (5.0, 0.0, 3)
    assert curve.line(8) == (9.0, 1.0, FOREVER)


@given(st.integers(16, 512), st.floats(0, 4_096), st.integers(1, 64), st.floats(16, 4_096))
def test_attention_linear_along_each_axis_comes_back_exactly_from_two_overlaid_grids(
    kernels, chunk, past, count, stored
):
    attention = kernels.attention
    assert attention.both(chunk, past, count, stored) * 1e6 == pytest.approx(microseconds((chunk, past, count, stored)))
    assert attention.prompt(chunk, past)[0] * 1e6 == pytest.approx(microseconds((chunk, past, 0, 0)))
    assert attention.decodes(count)(stored) * 1e6 == pytest.approx(microseconds((0, 0, count, stored)))


def test_a_finer_grid_is_used_where_it_reaches(tmp_path):
    def bent(point):
        return 100.0 if point[0] == 48 else microseconds(point)

    attention = read_kernels(write_profile(tmp_path, {*grid(*COARSE), *grid(*FINE)}, bent), TINY).attention
    assert attention.both(48, 0, 8, 64) == pytest.approx(100e-6)  # measured at 64 tokens each
    assert attention.both(48, 0, 8, 32) * 1e6 == pytest.approx(
        microseconds((48, 0, 8, 32))
    )  # only the coarse one at 32


def test_a_piece_longer_than_measured_is_several_of_the_longest(kernels):
    attention = kernels.attention
    parts = [attention.prompt(512, 100)[0], attention.prompt(512, 612)[0], attention.prompt(76, 1_124)[0]]
    assert attention.prompt(1_100, 100)[0] == pytest.approx(sum(parts))
    assert attention.both(1_100, 100, 8, 64) == pytest.approx(sum(parts[:2]) + attention.both(76, 1_124, 8, 64))


batches = st.tuples(
    st.integers(0, 64),
    st.integers(16, 3_000),
    st.lists(st.tuples(st.integers(1, 700), st.integers(0, 3_000)), max_size=3),
).filter(lambda b: b[0] or b[2])


@given(batches, st.sampled_from(["sum", "measured"]))
def test_a_segment_equals_every_step_it_stands_for(folder, batch, mixed):
    model = Profile(folder, TINY, step_s=0.003, mixed=mixed)
    decodes, each, pieces = batch
    base, slope, steps = model.segment(decodes, decodes * each, pieces)
    assert steps >= 1
    for k in {0, 1, steps // 2, steps - 1} & set(range(min(steps, 10**6))):
        grown = [(size, past + k * size) for size, past in pieces]
        alone, _, _ = model.segment(decodes, decodes * (each + k), grown)
        assert base + k * slope == pytest.approx(alone, rel=1e-12)


def test_a_step_is_the_sum_of_its_kernels(folder):
    tokens, requests = 8 + 100 + 60, 10
    a_layer = 2 + 1 + 1 + 1 + 3  # two norms, qkv, rotary, output projection, three of the feed-forward block
    dense = (TINY.layers * a_layer + 2) * (3 + tokens / 10) + 2 * (7 + requests)
    length = sqrt(100**2 + 60**2)
    piece = microseconds((length, (100 * 20 + 60 * 0) / length, 0, 0)) + microseconds((0, 0, 8, 200))
    expected = dense + TINY.layers * piece
    model = Profile(folder, TINY, step_s=0.003)
    found, _, _ = model.segment(8, 8 * 200, [(100, 20), (60, 0)])
    assert (found - 0.003) * 1e6 == pytest.approx(expected)
    linked = replace(model, tensor_parallel=2, allreduce_gbps=10.0, allreduce_s=2e-5)
    message = tokens * TINY.hidden * 2
    assert linked.segment(8, 1_600, [(100, 20), (60, 0)])[0] - found == pytest.approx(
        2 * TINY.layers * (2e-5 + message / 10e9)
    )
    alone = replace(model, allreduce_gbps=10.0, allreduce_s=2e-5)
    assert alone.segment(8, 1_600, [(100, 20), (60, 0)])[0] == found, "one GPU has nobody to wait for"


def test_experts_are_read_at_the_number_expected_to_be_visited(tmp_path):
    model = replace(TINY, ffn=0, experts=8, experts_per_token=2, expert_ffn=32)
    operators = ("embedding", "layernorm", "qkv_proj", "qk_norm", "rotary_emb", "o_proj", "final_layernorm")
    folder = write_profile(tmp_path / "tp1", grid(*COARSE), operators=operators, suffix=".csv.gz")
    moe = [(n, experts, 10 * experts + n) for n in (1, 2, 16, 512) for experts in (2, 4, 8) if experts <= 2 * n]
    write_table(folder / "moe.csv", ("tokens", "activated_experts", "time_us"), moe)
    kernels = read_kernels(folder, model)
    a_layer = 2 + 1 + 1 + 1 + 1
    for tokens, visited in ((1, 2), (2, 8 * (1 - 0.75**2)), (16, 8 * (1 - 0.75**16))):
        dense = (model.layers * a_layer + 2) * (3 + tokens / 10)
        assert kernels.tokens(tokens) * 1e6 == pytest.approx(dense + model.layers * (10 * visited + tokens))
    shared = write_profile(tmp_path / "tp2", grid(*COARSE), operators=operators)
    halves = read_kernels(shared, model, 2)  # each of two GPUs holds half of the experts
    dense = (model.layers * a_layer + 2) * (3 + 16 / 10)
    visited = 8 * (1 - 0.75**16) / 2
    assert halves.tokens(16) * 1e6 == pytest.approx(dense + model.layers * (10 * visited + 16))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("dense.csv", "layer,token,time_us\n", r"dense.csv:1: tokens: column is missing - did you mean 'token'"),
        ("dense.csv", "layer,tokens,time_us\n", r"dense.csv: has no rows"),
        ("dense.csv", "layer,tokens,time_us\nembedding,x,1\n", r"dense.csv:2: tokens: is 'x': a whole number >= 0"),
        ("dense.csv", "layer,tokens,time_us\nembedding,1,nan\n", r"dense.csv:2: time_us: is 'nan': microseconds >= 0"),
        ("dense.csv", "layer,tokens,time_us\nembedding,1\n", r"dense.csv:2: has 2 of 3 columns"),
        (
            "dense.csv",
            "layer,tokens,time_us\nembeding,1,1\n",
            r"operator 'embedding' is missing - did you mean 'embeding'",
        ),
        ("per_sequence.csv", "layer,sequences,time_us\nlm_head,1,1\n", r"operator 'sampler' is missing"),
        (
            "attention.csv",
            "prefill_chunk,kv_prefill,n_decode,time_us\n",
            r"attention.csv:1: kv_decode: column is missing",
        ),
    ],
)
def test_a_table_that_cannot_be_used_says_where(tmp_path, file, text, message):
    folder = write_profile(tmp_path, grid(*COARSE))
    (folder / file).write_text(text)
    with pytest.raises(BadInput, match=message):
        read_kernels(folder, TINY)


def test_missing_files_and_all_faults_come_at_once(tmp_path):
    with pytest.raises(BadInput, match="is no folder"):
        read_kernels(tmp_path / "absent", TINY)
    with pytest.raises(BadInput) as caught:
        read_kernels(tmp_path, TINY)
    assert [fault.file.name for fault in caught.value.faults] == [
        "dense.csv.gz",
        "per_sequence.csv.gz",
        "attention.csv.gz",
    ]


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (lambda p: not p[0], "has no rows with decoding requests alone"),
        (lambda p: p[0] and not p[2], "has no rows with a prompt alone"),
        (lambda p: p[0] and p[2], "has no rows with a prompt beside decoding requests"),
        (lambda p: p == (512, 4_096, 0, 0), "prefill_chunk = 512, kv_prefill = 4096, n_decode = 0"),
        (lambda p: p[:3] == (16, 0, 1) and p[3] == 16, "n_decode = 1, kv_decode = 16"),
    ],
)
def test_a_hole_is_refused(tmp_path, gone, message):
    folder = write_profile(tmp_path, [point for point in grid(*COARSE) if not gone(point)])
    with pytest.raises(BadInput, match=message):
        read_kernels(folder, TINY)


def test_points_that_did_not_fit_into_memory_may_be_absent(tmp_path):
    fitting = [point for point in grid(*COARSE) if point[2] * point[3] + point[0] + point[1] <= 64 * 256 + 4_608]
    assert (0, 0, 64, 4_096) not in fitting
    attention = read_kernels(write_profile(tmp_path, fitting), TINY).attention
    assert attention.decodes(64)(4_096) > attention.decodes(64)(256)
    assert attention.both(100, 50, 40, 3_000) > attention.both(100, 50, 40, 256)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_s": -1.0}, "step_s: must be seconds >= 0, got -1.0"),
        ({"tensor_parallel": 2}, "allreduce_gbps: needed with 2 GPUs"),
        ({"allreduce_gbps": 0.0}, "allreduce_gbps: must be GB/s above 0, got 0.0"),
        ({"allreduce_s": -1e-6}, "allreduce_s: must be seconds >= 0, got -1e-06"),
        ({"mixed": "both"}, "mixed: must be 'sum' or 'measured', got 'both'"),
    ],
)
def test_impossible_constants_are_refused(folder, changes, message):
    with pytest.raises(ValueError, match=message):
        Profile(folder, TINY, **changes)


@pytest.mark.parametrize(
    ("gpu", "model", "gpus"),
    [
        ("RTXPRO6000", "meta-llama/Llama-3.1-8B", (1, 2)),
        ("RTXPRO6000", "Qwen/Qwen3-32B", (1, 2)),
        ("RTXPRO6000", "Qwen/Qwen3-30B-A3B-Instruct-2507", (1, 2)),
        ("RTX4090", "meta-llama/Llama-3.1-8B", (1,)),
    ],
)
def test_real_profiles_are_valid_and_of_the_expected_size(shared, gpu, model, gpus):
    shape = next(entry for entry in MODELS.values() if model in entry.aliases)
    base = shared / "data/files/llmservingsim/profiler/perf" / gpu / model / "bf16"
    times = [Profile(str(base / f"tp{n}"), shape, n, allreduce_gbps=1e3).segment(1, 512)[0] for n in gpus]
    read = (shape.common_parameters + shape.head_parameters + shape.routed_parameters * shape.experts_touched(1)) * 2
    bandwidth = {"RTXPRO6000": 1.792e12, "RTX4090": 1.008e12}[gpu]
    assert read / bandwidth < times[0] < 1.7 * read / bandwidth + 1e-3
    assert times == sorted(times, reverse=True)
