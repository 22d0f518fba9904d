"""A prefix cache the naive way: every block by the tokens up to its end."""

from __future__ import annotations

from collections import OrderedDict


class BlockPool:
    """Blocks with reference counts and a free list, as an engine keeps them: freed tail first, the oldest reused."""

    def __init__(self, block):
        self.block = block
        self.count = {}
        self.free = OrderedDict()

    def acquire(self, tokens, limit):
        held = []
        for name in block_names(tokens[:limit], self.block):
            if name not in self.count:
                break
            self.hold(name, held)
        return held

    def hold(self, name, held):
        self.free.pop(name, None)
        self.count[name] = self.count.get(name, 0) + 1
        held.append(name)

    def insert(self, tokens, held):
        new = 0
        for name in block_names(tokens, self.block)[len(held) :]:
            new += name not in self.count
            self.hold(name, held)
        return new

    def release(self, held):
        for name in reversed(held):
            self.count[name] -= 1
            if not self.count[name]:
                self.free[name] = None

    def evict(self, blocks):
        freed = 0
        while freed < blocks and self.free:
            name, _ = self.free.popitem(last=False)
            del self.count[name]
            freed += 1
        return freed


def block_names(tokens, block):
    return [tuple(tokens[: end + block]) for end in range(0, len(tokens) - block + 1, block)]
