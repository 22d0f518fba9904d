"""Random substreams addressed by name: what is drawn for one entity never depends on what else is drawn.

The generator is Philox 4x64, whose state is a key and a counter (Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3", SC'11). The key is a hash of the seed and the names, the counter's highest word is the
block: two policies, two processes or two event orders that ask for the same address get the same numbers, and a new
stream leaves all others bit-identical.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *names: str | int, block: int = 0) -> np.random.Generator:
    """Return the generator at an address.

    Parameters
    ----------
    seed
        Root seed of the study, any integer.
    names
        Path of the substream, for example ``("stream", "chat", replication, "output")``. ``1`` and ``"1"`` are
        different.
    block
        Block of entities, from 0; each block has 2**192 numbers of its own.

    Raises
    ------
    ValueError
        If ``block`` is negative or 2**64 or more.
    """
    if not 0 <= block < 2**64:
        raise ValueError(f"block must lie in 0 .. 2**64 - 1, got {block}")
    address = repr((int(seed), *(name if isinstance(name, str) else int(name) for name in names)))
    key = hashlib.blake2b(address.encode(), digest_size=16).digest()
    counter = np.array([0, 0, 0, block], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=np.frombuffer(key, dtype="<u8").astype(np.uint64), counter=counter))
