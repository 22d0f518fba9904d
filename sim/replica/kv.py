"""The KV pool: blocks held by requests, and how the share of decoding requests grows, as sums and never per request."""

from __future__ import annotations

from array import array
from operator import mul

UNBOUNDED = 1 << 60
"""More steps than any run has."""

LONGEST_RUN = 4096
"""Steps in one run of a growing pool: bounds tables of the timeline; costs one more event every 4,096 tokens."""


class Growth:
    """When the decoding requests need their next blocks.

    A request whose context is ``c`` tokens at an iteration's start has ``c`` tokens stored at its end, so it takes a
    new block in the iterations that begin with ``c = 1 (mod b)``. As every context grows by one token an iteration,
    ``(c - iteration) mod b`` stays what it was: ``b`` counters by that class tell the demand of any number of
    iterations to come, whatever the number of requests.

    Parameters
    ----------
    block_tokens
        ``b``, tokens in a block.

    Attributes
    ----------
    changes
        Log of the counters: the class of who joined, its complement of who left. Who reads it clears it.
    """

    __slots__ = ("_counts", "_size", "_slack", "changes")

    def __init__(self, block_tokens: int) -> None:
        self._size = block_tokens
        # The classes twice over, so that any rotation of them is one slice.
        self._counts = array("i", [0] * (2 * block_tokens))
        # Tokens that still fit into the blocks of a request, those first whose next block is due last.
        self._slack: list[int] = [*range(block_tokens - 2, -1, -1), block_tokens - 1]
        self.changes: list[int] = []

    def join(self, context: int, iteration: int) -> None:
        """Count in a request that begins to decode at ``iteration`` with ``context`` tokens known."""
        place = (context - iteration) % self._size
        self._counts[place] += 1
        self._counts[place + self._size] += 1
        self.changes.append(place)

    def leave(self, context: int, iteration: int) -> None:
        """Count out a request that has ``context`` tokens at ``iteration``."""
        place = (context - iteration) % self._size
        self._counts[place] -= 1
        self._counts[place + self._size] -= 1
        self.changes.append(~place)

    def now(self, iteration: int) -> int:
        """Return the blocks that the next iteration takes."""
        return self._counts[(1 - iteration) % self._size]

    def held(self, iteration: int, context: int) -> int:
        """Return the blocks held in the next iteration by requests with ``context`` tokens in sum."""
        size = self._size
        first = (2 - iteration) % size
        slack: int = sum(map(mul, self._counts[first : first + size], self._slack))
        return (context + slack) // size

    def reach(self, iteration: int, requests: int, blocks: int) -> int:
        """Return how many iterations ``blocks`` blocks last: the largest number whose demand does not exceed them."""
        size = self._size
        periods = blocks // requests  # a whole period of b iterations takes one block a request
        steps, left = periods * size, blocks - periods * requests
        while steps < LONGEST_RUN:
            left -= self._counts[(1 - iteration - steps) % size]
            if left < 0:
                break
            steps += 1
        return steps


class Pool:
    """Blocks of the KV pool: how many there are, and how many are charged to requests that do not grow.

    Parameters
    ----------
    tokens
        Size of the pool; a rest that fills no block is lost, as in real engines.
    block_tokens
        Tokens in a block.
    """

    __slots__ = ("block_tokens", "blocks", "held")

    def __init__(self, tokens: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.blocks = tokens // block_tokens
        self.held = 0
