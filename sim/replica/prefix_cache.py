"""A prefix cache: which leading blocks of a prompt a server still holds.

The contents equal those of a block-level LRU with chained block hashes (vLLM's free list, servers that count hits by
block): a block is known by everything up to its last token, only whole blocks are kept, a request touches its blocks
tail first, and the block touched longest ago goes first. The cost is that of *segments*: prompts are sequences of
(segment id, tokens), the cache is a radix tree over them, and the least-recently-used order is kept between nodes.

Why that is exact: touching a path moves its nodes to the young end deepest first, so in the order every node lies
before its ancestors, the oldest node is a leaf, and inside a node, whose blocks were always touched together, the tail
is the oldest. A request that ends or leaves inside a node splits it there; when what left is evicted, the next touch
joins the two again, so that a path has no more nodes than others leave it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from sim.rows import BLOCK
from workloads.trace import Segments


class Prompt:
    """A prompt as an append-only sequence of segments.

    The same text must always be the same segment ids cut at the same places; two segments with one id and different
    lengths share the shorter one's tokens. Caches keep references into a prompt, so it only ever grows; whoever sends
    a changed history builds a new one.

    Parameters
    ----------
    segments
        Pairs of (segment id, tokens); segments without tokens are left out.
    """

    __slots__ = ("ends", "ids")

    def __init__(self, segments: Iterable[tuple[Hashable, int]] = ()) -> None:
        self.ids: list[Hashable] = []
        self.ends: list[int] = []
        for segment, tokens in segments:
            self.append(segment, tokens)

    @classmethod
    def of(cls, ids: list[Hashable], ends: list[int]) -> Prompt:
        """Return a prompt of segments given as two columns, which it keeps: ids, and tokens up to each one's end.

        Every segment has at least one token.
        """
        prompt = cls.__new__(cls)
        prompt.ids, prompt.ends = ids, ends
        return prompt

    @classmethod
    def of_rows(cls, segments: Segments) -> Iterator[Prompt]:
        """Yield what the prompts of a trace are made of.

        So many rows at a time become lists: those of a whole trace would be five times its size.
        """
        for first in range(0, len(segments), BLOCK):
            part = segments.take(slice(first, first + BLOCK))
            ids, ends = part.ids.tolist(), part.ends().tolist()
            for start, stop in pairwise(part.offsets.tolist()):
                yield cls.of(ids[start:stop], ends[start:stop])

    def append(self, segment: Hashable, tokens: int) -> None:
        """Add a segment at the end."""
        if tokens < 0:
            raise ValueError(f"segment {segment!r}: {tokens} tokens, must be at least 0")
        if tokens:
            self.ids.append(segment)
            self.ends.append(self.tokens + tokens)

    def copy(self) -> Prompt:
        """Return another prompt that begins as this one."""
        return Prompt.of(self.ids.copy(), self.ends.copy())

    def extend(self, other: Prompt, start: int, stop: int | None = None) -> None:
        """Add the segments ``start`` to ``stop`` of another prompt (to its end) at the end."""
        shift = self.tokens - other.upto(start)
        self.ids += other.ids[start:stop]
        self.ends += [end + shift for end in other.ends[start:stop]] if shift else other.ends[start:stop]

    def upto(self, segments: int) -> int:
        """Return the tokens of the first segments."""
        return self.ends[segments - 1] if segments else 0

    def place(self, at: int) -> tuple[Hashable, int]:
        """Return the segment that holds token ``at``, and how many of its tokens lie before."""
        index = bisect_right(self.ends, at)
        return self.ids[index], at - self.upto(index)

    def shared(self, other: Prompt, place: int, limit: int) -> int:
        """Return how many of the first ``limit`` tokens are the same.

        Parameters
        ----------
        other
            Another prompt.
        place
            Segments before this one are known to be the same.
        limit
            At most as many as either has, more than those of the segments before ``place``.
        """
        ids, ends, other_ids, other_ends = self.ids, self.ends, other.ids, other.ends
        # Slices of lists compare many times faster than their elements one by one: mostly all are the same, and if not,
        # the difference is halved in.
        last = middle = bisect_left(ends, limit, place)
        while place < last:
            if ids[place:middle] == other_ids[place:middle] and ends[place:middle] == other_ends[place:middle]:
                place = middle
            else:
                last = middle - 1
            middle = (place + last + 1) // 2
        if ids[place] == other_ids[place]:
            return min(limit, ends[place], other_ends[place])
        return self.upto(place)

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.ends[-1] if self.ends else 0


class _Node:
    """Tokens ``start`` to ``end`` of ``prompt`` behind the parent; owns the blocks whose *last* token lies in there."""

    __slots__ = ("children", "end", "key", "parent", "pins", "prompt", "start", "touched_s")

    def __init__(self, parent: _Node | None, key: tuple[Hashable, int], prompt: Prompt, start: int, end: int) -> None:
        self.parent = parent
        self.key = key  # (segment id, tokens into it) of the first token: what the parent finds this node by
        self.prompt = prompt
        self.start = start
        self.end = end
        self.children: dict[tuple[Hashable, int], _Node] = {}
        self.pins = 0  # leases that end here, plus one for every pinned child
        self.touched_s = 0.0


class Found(NamedTuple):
    """What a prompt shares with the cache.

    Attributes
    ----------
    tokens
        Leading tokens in whole blocks.
    loose
        How many of those blocks nobody holds.
    node, at
        Where the match ends.
    """

    tokens: int
    loose: int
    node: _Node
    at: int


class Lease:
    """The hold of a running request on the blocks it uses: they are not evicted until it is released.

    Attributes
    ----------
    tokens
        How many leading tokens of the request's prompt the held blocks cover, a multiple of the block.
    """

    __slots__ = ("node", "tokens")

    def __init__(self, node: _Node, tokens: int) -> None:
        self.node = node
        self.tokens = tokens


class PrefixCache:
    """Leading blocks of earlier prompts, least recently used first out.

    Parameters
    ----------
    block
        Tokens in a block; only whole blocks are kept and found.
    capacity
        Blocks it may hold after each `use`; None is unlimited. A server that shares its pool between running requests
        and the cache leaves it open and calls `evict` itself.
    ttl_s
        Seconds after the last touch at which a block is no longer found; None is never. An expired block keeps its
        place until it is evicted: being the oldest, it is the first.
    """

    def __init__(self, block: int = 1, capacity: int | None = None, ttl_s: float | None = None) -> None:
        if block < 1:
            raise ValueError(f"block: {block}, must be at least 1")
        if capacity is not None and capacity < 0:
            raise ValueError(f"capacity: {capacity}, must be at least 0")
        self.block: Final = block
        self.capacity: Final = capacity
        self.ttl_s: Final = ttl_s
        self.held = 0
        """Blocks in the cache, pinned ones included."""
        self.pinned = 0
        """Blocks that running requests hold; the others can be evicted."""
        self._root = _Node(None, (None, 0), Prompt(), 0, 0)
        self._root.pins = 1  # never in the order, never evicted
        self._order: OrderedDict[_Node, None] = OrderedDict()  # unpinned nodes, the oldest first

    @property
    def evictable(self) -> int:
        """Blocks that `evict` could free now."""
        return self.held - self.pinned

    def match(self, prompt: Prompt, now_s: float = 0.0, limit: int | None = None) -> int:
        """Return how many leading tokens are held, a multiple of the block; changes nothing.

        Parameters
        ----------
        prompt
            What would be sent.
        now_s
            The time, in seconds; matters with a TTL only.
        limit
            Look at the first ``limit`` tokens only (engines recompute at least the last token: prompt - 1).
        """
        node, at = self._walk(prompt, self._whole(prompt, limit))
        return self._alive(node, at, now_s) // self.block * self.block

    def probe(self, prompt: Prompt, limit: int | None = None) -> Found:
        """Return what of a prompt could be held now; ``limit`` as in `match`."""
        node, at = self._walk(prompt, self._whole(prompt, limit))
        deepest, block, loose, end = node, self.block, 0, at
        while not node.pins:
            loose += end // block - node.start // block
            end = node.start
            assert node.parent is not None
            node = node.parent
        return Found(at // block * block, loose, deepest, at)

    def use(self, prompt: Prompt, now_s: float = 0.0) -> int:
        """Look a prompt up, keep all its whole blocks, evict down to the capacity; return the tokens found before."""
        whole = self._whole(prompt, None)
        node, at = self._walk(prompt, whole)
        hit = self._alive(node, at, now_s) // self.block * self.block
        self._touch(self._grow(self._cut(node, at), prompt, whole), now_s)
        if self.capacity is not None and self.held > self.capacity:
            self.evict(self.held - self.capacity)
        return hit

    def hold(self, found: Found) -> Lease:
        """Hold what was just found of a prompt, for a request that starts to run; nothing may happen in between."""
        node = self._cut(found.node, found.at)
        self._pin(node)
        return Lease(node, found.tokens)

    def insert(self, prompt: Prompt, lease: Lease, limit: int | None = None) -> int:
        """Keep the whole blocks of a running request's prompt and hold them; return how many were not there before.

        Blocks that another request brought in meanwhile are found there, not kept twice.
        """
        whole = self._whole(prompt, limit)
        before, old = self.held, lease.node
        node, at = self._walk(prompt, whole, old)
        if node is not old:
            node = self._cut(node, at)
            self._pin(node)
            self._unpin(old, old.touched_s)  # holds a pinned child now, so it stays pinned
        lease.node, lease.tokens = self._grow(node, prompt, whole, pins=1), whole
        return self.held - before

    def release(self, lease: Lease, now_s: float = 0.0) -> None:
        """Let go of a request's blocks, tail first; they stay until evicted and are now the youngest."""
        self._unpin(lease.node, now_s)
        lease.node = self._root
        lease.tokens = 0

    def evict(self, blocks: int) -> int:
        """Free up to ``blocks`` of the oldest blocks that nobody holds; return how many were freed."""
        left = blocks
        while left > 0 and self._order:
            node = next(iter(self._order))
            size = node.end // self.block - node.start // self.block
            if size > left:
                node.end = (node.end // self.block - left) * self.block
                self.held -= left
                return blocks
            del self._order[node]
            assert node.parent is not None
            del node.parent.children[node.key]
            self.held -= size
            left -= size
        return blocks - left

    def _whole(self, prompt: Prompt, limit: int | None) -> int:
        tokens = prompt.tokens
        if limit is not None and limit < tokens:
            tokens = limit
        return tokens // self.block * self.block

    def _walk(self, prompt: Prompt, stop: int, above: _Node | None = None) -> tuple[_Node, int]:
        """Return the deepest node that shares tokens with the prompt's first ``stop``, and how many tokens match.

        Nodes that match whole adopt the prompt: it is then compared by identity, and older ones can be freed. The walk
        begins at ``above`` if the prompt is known to match so far.
        """
        ids, ends = prompt.ids, prompt.ends
        node = above or self._root
        at = node.end
        while at < stop and node.children:
            index = bisect_right(ends, at)  # as `place` does, and the comparison goes on from there
            child = node.children.get((ids[index], at - ends[index - 1] if index else at))
            if child is None:
                break
            node = child
            at = node.end if node.end < stop else stop
            if node.prompt is not prompt:
                at = prompt.shared(node.prompt, index, at)
                if at < node.end:
                    break
                node.prompt = prompt
        return node, at

    def _cut(self, node: _Node, at: int) -> _Node:
        """Split a node so that one ends at token ``at``; return that one."""
        if at == node.end:
            return node
        assert node.parent is not None
        upper = _Node(node.parent, node.key, node.prompt, node.start, at)
        upper.touched_s = node.touched_s
        node.parent.children[node.key] = upper
        node.key = node.prompt.place(at)
        node.start, node.parent = at, upper
        upper.children[node.key] = node
        if node.pins:
            upper.pins = 1
        else:
            self._order[upper] = None  # whoever cuts touches or pins it next
        return upper

    def _grow(self, node: _Node, prompt: Prompt, whole: int, pins: int = 0) -> _Node:
        """Add the prompt's tokens up to ``whole`` below a node that matches; return the deepest node.

        The caller has ``pins`` pins on the node, 0 or 1, and on the deepest from then on.
        """
        at = node.end
        if at == whole:
            return node
        blocks = whole // self.block - at // self.block
        self.held += blocks
        if pins:
            self.pinned += blocks
        if not node.children and node.pins == pins:  # a leaf of our own: its blocks are touched together from now
            node.end, node.prompt = whole, prompt
            return node
        key = prompt.place(at)
        node.children[key] = leaf = _Node(node, key, prompt, at, whole)
        if pins:
            leaf.pins = pins  # the node's own pin now counts for its pinned child
        else:
            self._order[leaf] = None
        return leaf

    def _touch(self, node: _Node, now_s: float) -> None:
        """Make a node and its ancestors the youngest, the deepest first."""
        below: _Node | None = None
        while node.parent is not None:
            above = node.parent
            if below is not None and not node.pins and len(node.children) == 1:
                del self._order[node]
                _join(node, below)
            else:
                node.touched_s = now_s
                if not node.pins:
                    self._order.move_to_end(node)
                below = node
            node = above

    def _pin(self, node: _Node | None) -> None:
        while node is not None:
            node.pins += 1
            if node.pins > 1:
                return
            del self._order[node]
            self.pinned += node.end // self.block - node.start // self.block
            node = node.parent

    def _unpin(self, node: _Node | None, now_s: float) -> None:
        below: _Node | None = None
        while node is not None:
            node.pins -= 1
            if node.pins:
                return
            self.pinned -= node.end // self.block - node.start // self.block
            above = node.parent
            if below is not None and len(node.children) == 1:
                _join(node, below)
            else:
                node.touched_s = now_s
                self._order[node] = None
                below = node
            node = above

    def _alive(self, node: _Node, at: int, now_s: float) -> int:
        """Return how many of the ``at`` matching tokens were touched within the TTL: ancestors are never older."""
        if self.ttl_s is not None:
            while node.parent is not None and now_s - node.touched_s > self.ttl_s:
                at, node = node.start, node.parent
        return at


def _join(upper: _Node, lower: _Node) -> None:
    """Let a node take in the one above it, whose only child it is; both were just touched, one after the other."""
    assert upper.parent is not None
    lower.start, lower.key, lower.parent = upper.start, upper.key, upper.parent
    upper.parent.children[upper.key] = lower
