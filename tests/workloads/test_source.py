"""Sources give the same calls to whoever asks, and streams do not disturb each other."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from workloads.arrivals import Gamma, Poisson, Ticks
from workloads.durations import Exponential
from workloads.errors import BadInput
from workloads.lengths import Constant, Lognormal, Uniform
from workloads.readers import read_trace
from workloads.scripts import RATIOS, TOKENIZERS
from workloads.source import Mixture, Replay, Source, Stream, until
from workloads.tokenizers import missing
from workloads.trace import Trace

CHAT = Stream("chat", Poisson(2.0), Lognormal(900, p99=30_000), Lognormal(600, p99=5_000), {"latin": 3, "han": 1})
AGENT = Stream("agent", Gamma(0.5, 3.0), Uniform(1, 9), Constant(5), kind="tool")
RARE = Stream("rare", Poisson(1e-4), Constant(1), Constant(1))
BATCH = Stream("batch", Ticks(10.0, 20_000), Constant(2), Constant(2))


def taken(source: Source, n: int, seed: int = 1, replication: int = 0) -> Trace:
    parts, held = [], 0
    for block in source.blocks(seed, replication):
        parts.append(block)
        held += len(block)
        if held >= n:
            break
    return Trace.concat(parts)[:n]


def columns(trace: Trace) -> list:
    return [
        trace.arrival_s.tolist(),
        trace.prompt_tokens.tolist(),
        trace.output_tokens.tolist(),
        trace.script.strings(),
    ]


@pytest.mark.parametrize("streams", [[CHAT], [CHAT, AGENT], [AGENT, RARE, CHAT], [BATCH, CHAT, AGENT]])
def test_blocks_come_in_order_and_do_not_change(streams: list[Stream]) -> None:
    first, second = (taken(Mixture(streams), 60_000) for _ in range(2))
    assert (np.diff(first.arrival_s) >= 0).all()
    assert columns(first) == columns(second)
    assert columns(first) != columns(taken(Mixture(streams), 60_000, seed=2))
    assert columns(first) != columns(taken(Mixture(streams), 60_000, replication=1))


def test_only_the_calls_of_a_stream_with_patience_have_one() -> None:
    patient = replace(CHAT, patience=Exponential(20.0))
    mixed = taken(Mixture([AGENT, patient]), 30_000)
    chat = np.array(mixed.kind.strings()) == "chat"
    assert np.isnan(mixed.patience_s[~chat]).all()
    assert mixed.patience_s[chat].mean() == pytest.approx(20.0, rel=0.05)
    assert mixed.timeout_s is None
    assert columns(mixed) == columns(taken(Mixture([AGENT, CHAT]), 30_000))


def test_another_stream_leaves_the_others_as_they_were() -> None:
    alone = taken(CHAT, 20_000)
    mixed = taken(Mixture([BATCH, AGENT, CHAT]), 150_000)
    chat = mixed.take(np.flatnonzero(np.array(mixed.kind.strings()) == "chat"))
    n = min(len(chat), 20_000)
    assert n > 50
    assert columns(chat[:n]) == columns(alone[:n])


def test_a_copula_ties_prompt_and_output_and_keeps_both_laws() -> None:
    law = Lognormal(600, p99=5_000)
    tied = taken(Stream("s", Poisson(1.0), law, law, correlation=0.7), 50_000)
    free = taken(Stream("s", Poisson(1.0), law, law), 50_000)
    scores = np.log([tied.prompt_tokens, tied.output_tokens])
    assert np.corrcoef(scores)[0, 1] == pytest.approx(0.7, abs=0.02)
    assert np.array_equal(tied.prompt_tokens, free.prompt_tokens)
    assert np.median(tied.output_tokens) == pytest.approx(600, rel=0.03)


def test_script_shares() -> None:
    scripts = np.array(taken(CHAT, 50_000).script.strings())
    assert (scripts == "latin").mean() == pytest.approx(0.75, abs=0.01)


def test_the_same_content_takes_more_tokens_in_other_scripts() -> None:
    """The laws are English: with a tokenizer, each script's mean length is its measured ratio times theirs."""
    law = Lognormal(2_000, sigma=0.1)
    shares = {"latin": 1.0, "cyrillic": 1.0, "tamil": 1.0}
    trace = taken(Stream("s", Poisson(1.0), law, law, shares, tokenizer="qwen3.5"), 60_000)
    plain = taken(Stream("s", Poisson(1.0), law, law, shares), 60_000)
    scripts = np.array(trace.script.strings())
    for script, ratio in (("latin", 1.0), ("cyrillic", 1.44), ("tamil", 2.91)):
        mine = scripts == script
        found = trace.output_tokens[mine].mean() / plain.output_tokens[mine].mean()
        assert found == pytest.approx(ratio * (1.0 if ratio == 1 else np.exp(0.11**2 / 2)), rel=0.005)
    assert trace.arrival_s.tolist() == plain.arrival_s.tolist()
    with pytest.raises(BadInput, match="did you mean 'qwen'"):
        Stream("s", Poisson(1.0), law, law, tokenizer="quen")


def test_ratios_are_those_of_the_declaration(shared) -> None:
    """Measured again where the corpus and a tokenizer are at hand: articles 1 to 9 in Russian over English."""
    from workloads.tokenizers import load

    def tokens(file: str, heading: str) -> int:
        lines = (shared / "corpus" / file).read_text(encoding="utf-8").split("\n")
        first, last = (lines.index(f"{heading} {article}") for article in (1, 10))
        return tokenizer.count("\n".join(lines[first:last]))

    for name, ratio in zip(TOKENIZERS, RATIOS["cyrillic"], strict=True):
        if missing(name) is None:
            tokenizer = load(name)
            assert tokens("cyr_ru.txt", "Статья") / tokens("lat_en.txt", "Article") == pytest.approx(ratio, abs=0.006)


def test_a_replay_is_the_trace_itself_and_its_resamples_differ() -> None:
    trace = taken(CHAT, 2_000)
    assert next(Replay(trace).blocks(1, 0)).arrival_s.tolist() == trace.arrival_s.tolist()
    assert next(Replay(trace, time_scale=0.5).blocks(1, 0)).span_s == pytest.approx(trace.span_s / 2)
    again = [next(Replay(trace, resample=True).blocks(1, r)).arrival_s.tolist() for r in (0, 0, 1)]
    assert again[0] == again[1] != again[2]


def test_bad_streams_are_refused() -> None:
    with pytest.raises(BadInput, match="two streams"):
        Mixture([CHAT, CHAT])
    with pytest.raises(BadInput, match="at least one"):
        Mixture([])
    with pytest.raises(BadInput, match="did you mean 'latin'"):
        Stream("x", Poisson(1.0), Constant(1), Constant(1), {"latn": 1.0})
    with pytest.raises(BadInput, match="time_scale"):
        Replay(taken(CHAT, 5), time_scale=0.0)


def test_calls_up_to_a_time() -> None:
    trace = until(CHAT.blocks(1, 0), 10_000.0)
    assert trace.arrival_s[-1] <= 10_000.0
    assert len(trace) == pytest.approx(20_000, rel=0.05)
    assert columns(trace) == columns(taken(CHAT, len(trace)))
    assert len(until(Replay(trace).blocks(1, 0), None)) == len(trace)


def test_the_command_draws_a_study(tmp_path) -> None:
    program = "from sim.cli import main; main()"
    out = tmp_path / "t.parquet"
    command = [sys.executable, "-c", program, "trace", "synth", "quickstart", "-o", str(out), "--set", "run.horizon=60"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    trace = read_trace(out)
    assert done.stdout.startswith(f"{out}: {len(trace):,} calls")
    assert trace.span_s <= 60
    assert trace.script is not None
