"""The prefix cache against naive block-level caches that share nothing with it."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.replica.prefix_cache import Lease, PrefixCache, Prompt
from tests.sim.blocks import BlockPool, block_names


class BlockLRU:
    """The textbook cache: one entry a block, known by all tokens up to its end, tail touched first."""

    def __init__(self, block, capacity=None, ttl_s=None):
        self.block, self.capacity, self.ttl_s = block, capacity, ttl_s
        self.blocks = OrderedDict()

    def use(self, tokens, now_s=0.0):
        names = block_names(tokens, self.block)
        hit = 0
        for name in names:
            touched = self.blocks.get(name)
            if touched is None or (self.ttl_s is not None and now_s - touched > self.ttl_s):
                break
            hit += 1
        for name in reversed(names):
            self.blocks.pop(name, None)
            self.blocks[name] = now_s
        while self.capacity is not None and len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return hit * self.block


def spell(segments):
    """Return the tokens of a prompt: the n-th token of a segment is always the same."""
    return [(segment, n) for segment, tokens in segments for n in range(tokens)]


SEGMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), max_size=8)
# Few ids and lengths, so that prompts share beginnings, end inside one another and part inside a segment.


@given(
    prompts=st.lists(st.tuples(SEGMENTS, st.floats(0, 5)), max_size=30),
    block=st.sampled_from([1, 2, 4, 5]),
    capacity=st.none() | st.integers(0, 20),
    ttl_s=st.none() | st.floats(0, 20),
)
def test_equals_a_block_lru(prompts, block, capacity, ttl_s):
    cache, naive = PrefixCache(block, capacity, ttl_s), BlockLRU(block, capacity, ttl_s)
    now_s = 0.0
    for raw, gap_s in prompts:
        segments = canonical(raw)
        now_s += gap_s
        assert cache.use(Prompt(segments), now_s) == naive.use(spell(segments), now_s)
        assert cache.held == len(naive.blocks)
        assert cache.evictable == cache.held


def canonical(segments):
    """Keep the prompts prefix-consistent: the same tokens are always cut into the same segments."""
    out = []
    for segment, tokens in segments:
        if tokens and not (out and out[-1][0] == segment):
            out.append((segment, tokens))
    return out


@given(data=st.data(), block=st.sampled_from([1, 2, 4]))
def test_equals_an_engines_block_pool_under_leases(data, block):
    cache, naive = PrefixCache(block), BlockPool(block)
    running = []
    for _ in range(data.draw(st.integers(0, 40))):
        move = data.draw(st.sampled_from(["start", "start", "grow", "finish", "evict", "match"]))
        if move == "start":
            segments = canonical(data.draw(SEGMENTS))
            tokens = spell(segments)
            limit = data.draw(st.sampled_from([len(tokens), max(0, len(tokens) - 1)]))
            lease, held = cache.hold(cache.probe(Prompt(segments), limit)), naive.acquire(tokens, limit)
            assert lease.tokens == len(held) * block
            running.append((segments, lease, held))
        elif move == "grow" and running:
            place = data.draw(st.integers(0, len(running) - 1))
            segments, lease, held = running[place]
            segments = canonical([*segments, *data.draw(SEGMENTS)])
            assert cache.insert(Prompt(segments), lease) == naive.insert(spell(segments), held)
            assert lease.tokens == len(held) * block
            running[place] = (segments, lease, held)
        elif move == "finish" and running:
            _, lease, held = running.pop(data.draw(st.integers(0, len(running) - 1)))
            cache.release(lease)
            naive.release(held)
        elif move == "evict":
            blocks = data.draw(st.integers(0, 9))
            assert cache.evict(blocks) == naive.evict(blocks)
        elif move == "match":
            segments = canonical(data.draw(SEGMENTS))
            seen = 0
            for name in block_names(spell(segments), block):
                if name not in naive.count:
                    break
                seen += block
            assert cache.match(Prompt(segments)) == seen
        assert cache.held == len(naive.count)
        assert cache.evictable == len(naive.free)


@given(
    prompts=st.lists(SEGMENTS.map(canonical), max_size=25),
    capacities=st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted),
)
def test_a_larger_cache_never_hits_less(prompts, capacities):
    small, large = (PrefixCache(1, capacity) for capacity in capacities)
    for segments in prompts:
        prompt = Prompt(segments)
        assert small.use(prompt) <= large.use(prompt)


def test_a_growing_prompt_costs_no_new_nodes():
    cache, prompt = PrefixCache(16), Prompt([("instruction", 100)])
    lease = None
    for turn in range(50):
        if lease:
            cache.release(lease)
        lease = cache.hold(cache.probe(prompt, prompt.tokens - 1))
        cache.insert(prompt, lease)
        prompt.append(turn, 30)
    assert len(cache._root.children) == 1
    assert not lease.node.children
    assert cache.held == cache.pinned == (100 + 49 * 30) // 16


def test_a_released_lease_holds_nothing():
    cache = PrefixCache(4)
    lease = cache.hold(cache.probe(Prompt()))
    cache.insert(Prompt([("a", 9)]), lease)
    assert (cache.held, cache.pinned, cache.evict(5)) == (2, 2, 0)
    cache.release(lease)
    assert isinstance(lease, Lease)
    assert (lease.tokens, cache.pinned, cache.evict(5), cache.held) == (0, 0, 2, 0)


@pytest.mark.parametrize(("wrong", "word"), [({"block": 0}, "block"), ({"capacity": -1}, "capacity")])
def test_refuses_impossible_sizes(wrong, word):
    with pytest.raises(ValueError, match=word):
        PrefixCache(**wrong)


def test_refuses_a_negative_segment():
    with pytest.raises(ValueError, match="at least 0"):
        Prompt([("a", -1)])
