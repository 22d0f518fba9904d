"""Step-time models: a segment equals the model evaluated step by step; decode times are those of real servers."""

from __future__ import annotations

import csv
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from sim.hardware import BYTES, GPUS, MODELS, Gpu, Model
from sim.steptime import FOREVER, REGRESSIONS, STEP_TIMES, Line, Regression, Roofline, StepTime

chunks = st.lists(st.tuples(st.integers(1, 8_192), st.integers(0, 100_000)), max_size=3)
batches = st.tuples(st.integers(0, 512), st.integers(0, 4_000), chunks).filter(lambda b: b[0] or b[2])
seconds = st.floats(0, 1, allow_subnormal=False)


def directly(model: Roofline, decodes: int, context: int, pieces: list[tuple[int, int]]) -> float:
    """Return the roofline's time of one step from the definition alone."""
    shape, gpu, gpus = model.model, model.gpu, model.tensor_parallel
    number = BYTES[model.weights or shape.weights]
    tokens = decodes + sum(size for size, _ in pieces)
    requests = decodes + len(pieces)
    passed = shape.active_parameters - shape.head_parameters * (1 if shape.tied else 2)
    read = shape.common_parameters + shape.head_parameters + shape.routed_parameters * shape.experts_touched(tokens)
    peak = gpus * gpu.peak_flops(model.weights or shape.weights) * model.mfu
    bandwidth = gpu.memory_bandwidth * model.bandwidth_efficiency
    matmul = max((2 * passed * tokens + 2 * shape.head_parameters * requests) / peak, read * number / gpus / bandwidth)
    flops = shape.attention_flops_per_pair(absorbed=True) * context
    flops += shape.attention_flops_per_pair(absorbed=False) * sum(n * (past + n / 2) for n, past in pieces)
    stored = context + tokens + sum(past for _, past in pieces)
    attention = max(
        flops / (gpus * gpu.peak_flops("bf16") * model.attention_mfu),
        stored * shape.kv_bytes_per_token(model.kv, gpus) / bandwidth,
    )
    overhead = model.step_s + model.layer_s * shape.layers + model.request_s * requests
    if gpus > 1:
        message = tokens * shape.hidden * 2 * 2 * (gpus - 1) / gpus
        overhead += 2 * shape.layers * (model.allreduce_s + message / (gpu.link_bandwidth * model.link_efficiency))
    return matmul + attention + overhead


def after(k: int, decodes: int, context: int, pieces: list[tuple[int, int]]) -> tuple[int, int, list[tuple[int, int]]]:
    return decodes, context + k * decodes, [(size, past + k * size) for size, past in pieces]


@st.composite
def rooflines(draw) -> Roofline:
    return Roofline(
        draw(st.sampled_from(list(GPUS.values()))),
        draw(st.sampled_from(list(MODELS.values()))),
        draw(st.sampled_from([1, 2, 4, 8])),
        weights=draw(st.sampled_from([None, "bf16", "fp8", "fp4", "int4"])),
        kv=draw(st.sampled_from(["bf16", "fp8"])),
        mfu=draw(st.floats(0.05, 1)),
        attention_mfu=draw(st.floats(0.05, 1)),
        bandwidth_efficiency=draw(st.floats(0.1, 1)),
    )


@given(rooflines(), batches, st.data())
def test_a_roofline_segment_equals_every_step_it_stands_for(model, batch, data):
    decodes, each, pieces = batch
    context = decodes * each
    base, slope, steps = model.segment(decodes, context, pieces)
    event("crosses" if steps < FOREVER else "forever")
    assert steps >= 1
    for k in {0, min(steps, 10**6) - 1, data.draw(st.integers(0, min(steps, 10**6) - 1))}:
        expected = directly(model, *after(k, decodes, context, pieces))
        assert base + k * slope == pytest.approx(expected, rel=1e-12)
    if steps < FOREVER:  # the break is where the line stops being true, no earlier
        beyond = steps + 1
        assert base + beyond * slope < directly(model, *after(beyond, decodes, context, pieces))


def test_attention_crosses_from_reading_to_computing_as_a_prompt_grows():
    model = Roofline(GPUS["h100"], MODELS["llama-3.1-8b"])
    _, slope, steps = model.segment(64, 64 * 1_000, [(256, 0)])
    assert 1 <= steps < 1_000
    assert model.segment(*after(steps, 64, 64_000, [(256, 0)]))[1] > slope


@given(
    st.builds(
        Line,
        st.floats(1e-6, 1),
        *[seconds] * 4,
    ),
    batches,
    st.integers(0, 10**6),
)
def test_a_line_equals_its_definition_at_every_step(model, batch, k):
    decodes, each, pieces = batch
    base, slope, steps = model.segment(decodes, decodes * each, pieces)
    _, context, grown = after(k, decodes, decodes * each, pieces)
    expected = model.base_s + model.per_request_s * (decodes + len(pieces)) + model.per_context_token_s * context
    expected += sum(model.per_prompt_token_s * n + model.per_attended_token_s * n * (past + n / 2) for n, past in grown)
    assert steps == FOREVER
    assert base + k * slope == pytest.approx(expected, rel=1e-12)


def test_a_line_is_exact_on_dyadic_numbers():
    assert Line(0.25, 0.125, 2**-10).segment(4, 1_024, [(8, 0)]) == (0.25 + 5 * 0.125 + 1.0, 4 * 2**-10, FOREVER)


def test_models_are_step_times_with_a_provenance():
    for model in (Line(1.0), Roofline(GPUS["h100"], MODELS["qwen3-32b"], 2)):
        assert isinstance(model, StepTime)
        assert model.provenance.kind in STEP_TIMES
        assert model.provenance.source


@pytest.mark.parametrize(
    ("gpu", "model", "gpus", "decodes", "milliseconds"),
    [
        ("h100", "llama-3.1-8b", 1, 1, (6.0, 8.5)),
        ("h100", "llama-3.1-8b", 1, 64, (9.0, 13.5)),  # at 1,000 tokens each
        ("h100", "llama-3.1-70b", 8, 1, (8.0, 16.0)),
    ],
)
def test_decode_times_are_those_of_real_servers(gpu, model, gpus, decodes, milliseconds):
    low, high = milliseconds
    base, _, _ = Roofline(GPUS[gpu], MODELS[model], gpus).segment(decodes, decodes * 1_000)
    assert low < base * 1e3 < high


@given(rooflines(), batches)
def test_more_work_never_takes_less_time(model, batch):
    decodes, each, pieces = batch
    base, slope, _ = model.segment(decodes, decodes * each, pieces)
    assert base > 0
    assert slope >= 0
    assert model.segment(decodes + 1, decodes * each + each, pieces)[0] >= base
    assert model.segment(decodes, decodes * each, [*pieces, (64, 0)])[0] >= base


def test_fewer_bytes_and_more_gpus_are_faster_where_reading_weights_decides():
    slow = Roofline(GPUS["h100"], MODELS["llama-3.1-70b"], 4)
    assert replace(slow, weights="fp8").segment(1, 1_000)[0] < slow.segment(1, 1_000)[0]
    assert replace(slow, tensor_parallel=8).segment(1, 1_000)[0] < slow.segment(1, 1_000)[0]


def test_a_mixture_of_experts_reads_only_what_its_tokens_visit():
    sparse, dense = MODELS["qwen3-30b-a3b"], MODELS["qwen3-32b"]
    gpu = GPUS["h100"]
    assert Roofline(gpu, sparse).segment(1, 100)[0] < 0.35 * Roofline(gpu, dense).segment(1, 100)[0]
    ratio = Roofline(gpu, sparse).segment(128, 12_800)[0] / Roofline(gpu, sparse).segment(1, 100)[0]
    assert ratio > 3  # nearly all experts


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Line(-1.0), "base_s: must be >= 0, got -1.0"),
        (lambda: Line(float("nan"), 1.0), "base_s: must be >= 0, got nan"),
        (lambda: Line(0.0, 0.0, 1.0), "a step takes no time"),
        (lambda: Roofline(GPUS["h100"], MODELS["qwen3-8b"], 0), "tensor_parallel: must be a whole number >= 1"),
        (lambda: Roofline(GPUS["h100"], MODELS["qwen3-8b"], mfu=0.0), "mfu: must be above 0 and at most 1, got 0.0"),
        (
            lambda: Roofline(GPUS["h100"], MODELS["qwen3-8b"], layer_s=-1e-6),
            "layer_s: must be seconds >= 0, got -1e-06",
        ),
    ],
)
def test_impossible_constants_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_the_catalogue_is_typed():
    assert all(isinstance(gpu, Gpu) and gpu.source for gpu in GPUS.values())
    assert all(isinstance(model, Model) and model.source for model in MODELS.values())


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_regression_is_its_formula(name):
    model, fit = Regression(name), REGRESSIONS[name]
    assert model.segment(0, 0, [(700, 0), (300, 0)])[0] * 1e3 == pytest.approx(
        fit.prefill_ms + 1_000 * fit.prompt_token_ms + (700**2 + 300**2) * fit.prompt_square_ms
    )
    for decodes in (1, 94, 95, 200):
        costs = fit.small if decodes < fit.large_from else fit.large
        base, slope, steps = model.segment(decodes, decodes * 500)
        for k in (0, 1, 1_000):
            expected = costs.decode_ms + costs.request_ms * decodes + costs.context_token_ms * decodes * (500 + k)
            assert (base + k * slope) * 1e3 == pytest.approx(expected, rel=1e-12)
        assert steps == FOREVER
    assert model.provenance.source == fit.source


def test_a_prompt_in_pieces_costs_the_same_attention():
    model, fit = Regression("distserve/opt-13b/a100"), REGRESSIONS["distserve/opt-13b/a100"]
    whole = model.segment(0, 0, [(1_024, 0)])[0]
    base, slope, _ = model.segment(0, 0, [(256, 0)])
    pieces = sum(base + k * slope for k in range(4))
    assert pieces - 4 * fit.prefill_ms / 1e3 == pytest.approx(whole - fit.prefill_ms / 1e3)


def test_an_unknown_regression_says_what_there_is():
    with pytest.raises(ValueError, match=r"fit: unknown 'distserv/opt-13b/a100', one of .*did you mean 'distserve/opt"):
        Regression("distserv/opt-13b/a100")


@pytest.mark.parametrize(
    ("name", "model", "hardware", "gpus"),
    [
        ("splitwise/llama-2-70b/h100-tp8", "llama2-70b", "h100-80gb", 8),
        ("splitwise/llama-2-70b/h100-tp4", "llama2-70b", "h100-80gb", 4),
        ("splitwise/llama-2-70b/a100-tp8", "llama2-70b", "a100-80gb", 8),
        ("splitwise/bloom-176b/h100-tp8", "bloom-176b", "h100-80gb", 8),
    ],
)
def test_the_splitwise_regressions_meet_their_measurements(shared, name, model, hardware, gpus):
    with (shared / "data/files/splitwise/perf_model.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["model"], row["hardware"]) == (model, hardware)]
    rows = [row for row in rows if int(row["tensor_parallel"]) == gpus]
    errors = []
    for row in rows:
        batch, prompt, output = (int(row[word]) for word in ("batch_size", "prompt_size", "token_size"))
        found, _, _ = Regression(name).segment(batch, int(batch * (prompt + output / 2)))
        errors.append(abs(found * 1e3 / float(row["token_time"]) - 1))
    assert len(errors) > 90
    assert median(errors) < 0.03


@given(st.integers(1, 8), st.floats(0, 0.95), st.floats(0, 0.3), st.integers(1, 300), st.integers(1, 8_000))
def test_a_draft_shares_a_checking_step_among_the_tokens_it_yields(drafts, acceptance, share, decodes, each):
    plain = Roofline(GPUS["h100"], MODELS["llama-3.1-8b"])
    model = replace(plain, draft_tokens=drafts, acceptance=acceptance, draft_share=share)
    context = decodes * each
    # checking d + 1 tokens of every request costs their products and pairs, and reads the stored tokens once
    checked, _, _ = plain._step(decodes, context, (), drafts + 1)
    yielded = sum(acceptance**i for i in range(drafts + 1))
    found, slope, steps = model.segment(decodes, context)
    assert found == pytest.approx(checked * (1 + drafts * share) / yielded, rel=1e-12)
    prompt = [(512, 0)]
    mixed, _, valid = model.segment(decodes, context, prompt)
    assert mixed - found == pytest.approx(plain._step(decodes, context, prompt, drafts + 1)[0] - checked, rel=1e-9)
    assert 1 <= valid <= FOREVER
    for k in {0, min(steps, 1_000) - 1}:
        later, _, _ = model.segment(decodes, context + k * decodes)
        assert found + k * slope == pytest.approx(later, rel=1e-12)


def test_a_good_draft_helps_few_requests_more_than_many():
    plain = Roofline(GPUS["h100"], MODELS["llama-3.1-8b"])
    drafted = replace(plain, draft_tokens=4, acceptance=0.8, draft_share=0.05)
    gains = [plain.segment(n, 200 * n)[0] / drafted.segment(n, 200 * n)[0] for n in (1, 64, 512)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 2 > 1.5 > gains[2]
