"""Hits of recorded traces: exact values, on the radix tree and on a naive block LRU."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict

import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.trace_cache import count_hits, read_blocks
from workloads.errors import BadInput

MOONCAKE = "data/files/mooncake/synthetic_trace.jsonl"
WEKA = "data/files/weka-claude-code/weka_sessions_dev.jsonl.gz"


def spelled(lookups):
    """Return the lookups with the id of each block written out; ids are local to a session where runs say whose."""
    out = []
    for at_s, session, prompt in lookups:
        runs = [run if isinstance(run, int) else (run[0] << 40) + run[1] for run in prompt.ids]
        sizes = [end - start for start, end in zip([0, *prompt.ends], prompt.ends, strict=False)]
        out.append((at_s, session, [run + n for run, size in zip(runs, sizes, strict=True) for n in range(size)]))
    return out


def naive_hits(lookups, capacity, ttl_s, shared):
    """Count block by block: an ordered dict of block ids, tail touched first."""
    caches = defaultdict(OrderedDict)
    hits = 0
    for at_s, session, names in lookups:
        cache = caches[0 if shared else session]
        for name in names:
            if name not in cache or (ttl_s is not None and at_s - cache[name] > ttl_s):
                break
            hits += 1
        for name in reversed(names):
            cache[name] = at_s
            cache.move_to_end(name)
        while capacity is not None and len(cache) > capacity:
            cache.popitem(last=False)
    return hits


@pytest.fixture(scope="module")
def mooncake(shared):
    return read_blocks(shared / MOONCAKE)


@pytest.fixture(scope="module")
def recorded(shared):
    return read_blocks(shared / WEKA)


@pytest.fixture(scope="module")
def staggered(shared):
    return read_blocks(shared / WEKA, first=40, stagger_s=60.0)


# Exact values of the handed data, computed independently (oracles B).
MOONCAKE_HITS = {
    195: 2_050,
    1_000: 10_252,
    1_953: 17_351,
    5_000: 34_043,
    10_000: 51_669,
    19_531: 69_059,
    30_000: 76_077,
    50_000: 77_953,
    None: 77_953,
}
MOONCAKE_TTL_HITS = {10: 13_024, 60: 39_202, 300: 71_228, 600: 77_265, 1_800: 77_953}
STAGGERED_HITS = {
    5_000: 2_585_717,
    10_000: 3_717_748,
    20_000: 4_299_023,
    50_000: 4_354_608,
    100_000: 4_361_619,
    None: 4_365_723,
}
SESSION_HITS = {None: 41_695_004, 60: 33_856_970, 300: 39_633_406, 600: 40_478_004, 3_600: 41_582_163}


def test_mooncake_by_capacity(mooncake):
    assert mooncake.blocks == 121_877
    blocks = spelled(mooncake.lookups)
    for capacity, hits in MOONCAKE_HITS.items():
        assert count_hits(mooncake.lookups, capacity, None, shared=True) == hits
        assert naive_hits(blocks, capacity, None, shared=True) == hits


def test_mooncake_by_ttl(mooncake):
    blocks = spelled(mooncake.lookups)
    for ttl_s, hits in MOONCAKE_TTL_HITS.items():
        assert count_hits(mooncake.lookups, None, ttl_s, shared=True) == hits
        assert naive_hits(blocks, None, ttl_s, shared=True) == hits


def test_claude_code_shared(staggered):
    assert (len(staggered.lookups), staggered.blocks) == (2_560, 4_589_752)
    for capacity, hits in STAGGERED_HITS.items():
        assert count_hits(staggered.lookups, capacity, None, shared=True) == hits
    assert naive_hits(spelled(staggered.lookups), 10_000, None, shared=True) == STAGGERED_HITS[10_000]


def test_claude_code_per_session(recorded):
    assert recorded.blocks == 43_274_596
    for ttl_s, hits in SESSION_HITS.items():
        assert count_hits(recorded.lookups, None, ttl_s, shared=False) == hits


def test_claude_code_shares_most_with_the_previous_request_alone(recorded):
    before, hits = {}, 0
    for _, session, prompt in recorded.lookups:
        previous = before.get(session)
        if previous is not None and (both := min(previous.tokens, prompt.tokens)):
            hits += prompt.shared(previous, 0, both)
        before[session] = prompt
    assert hits == 41_673_095


def test_capacity_and_ttl_together_equal_the_naive_count(staggered):
    lookups = staggered.lookups[:600]
    blocks = spelled(lookups)
    for capacity in (2_000, 20_000):
        for ttl_s in (30.0, 300.0):
            for together in (True, False):
                assert count_hits(lookups, capacity, ttl_s, together) == naive_hits(blocks, capacity, ttl_s, together)


def test_the_verb_prints_the_product_capacity_outermost(shared):
    result = CliRunner().invoke(
        app, ["trace", "cache", str(shared / MOONCAKE), "--capacity", "1k,inf", "--ttl", "60,5min", "--json"]
    )
    document = json.loads(result.stdout)
    assert (document["unit"], document["lookups"]) == ("block", 121_877)
    assert [(row["capacity"], row["ttl_s"]) for row in document["settings"]] == [
        (1_000, 60),
        (1_000, 300),
        (None, 60),
        (None, 300),
    ]
    assert [row["hits"] for row in document["settings"]][2:] == [39_202, 71_228]
    assert document["settings"][2]["ratio"] == 39_202 / 121_877


def test_the_verb_names_all_that_is_wrong_with_its_options():
    result = CliRunner().invoke(
        app, ["trace", "cache", "x", "--capacity", "5,-3,1.5", "--ttl", "soon", "--stagger", "inf"]
    )
    assert isinstance(result.exception, BadInput)
    assert [fault.key for fault in result.exception.faults] == ["--capacity", "--capacity", "--ttl", "--stagger"]


def test_a_trace_without_blocks_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,6\n")
    with pytest.raises(BadInput, match="does not tell the blocks"):
        read_blocks(path)


def test_a_trace_without_sessions_has_no_session_caches(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\n')
    result = CliRunner().invoke(app, ["trace", "cache", str(path), "--scope", "session"])
    assert isinstance(result.exception, BadInput)
    assert "does not tell sessions" in str(result.exception)


@pytest.mark.benchmark(group="trace-cache")
@pytest.mark.parametrize("way", ["radix", "block-lru"])
def test_speed_on_claude_code(benchmark, staggered, way):
    """The radix costs segments: at least 50 times faster than the block LRU (compare the two medians)."""
    count, lookups = (count_hits, staggered.lookups) if way == "radix" else (naive_hits, spelled(staggered.lookups))
    rounds = 20 if way == "radix" else 3
    hits = benchmark.pedantic(count, (lookups, 20_000, None, True), rounds=rounds, warmup_rounds=1)
    assert hits == STAGGERED_HITS[20_000]
