"""How much of a recorded trace's prompts a prefix cache would have found."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sim.replica.prefix_cache import PrefixCache, Prompt
from workloads.errors import BadInput, Fault
from workloads.readers import read_recording, weka
from workloads.readers.faults import FaultLog
from workloads.readers.jsonl import records
from workloads.readers.stream import chunks, open_bytes


class Lookup(NamedTuple):
    """One prompt that is looked up and then kept.

    Attributes
    ----------
    at_s
        When, in seconds.
    session
        Whose.
    prompt
        Its blocks, each one token long.
    """

    at_s: float
    session: int
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class BlockTrace:
    """Prompts as blocks, in the order in which they are sent.

    Attributes
    ----------
    lookups
        The prompts.
    scope
        ``shared`` or ``session``: what this kind of trace is measured with unless asked otherwise.
    has_sessions
        Whether its prompts are known to belong to sessions.
    """

    lookups: list[Lookup]
    scope: str
    has_sessions: bool

    @property
    def blocks(self) -> int:
        """Blocks looked up in all."""
        return sum(lookup.prompt.tokens for lookup in self.lookups)


def read_blocks(path: str | Path, first: int | None = None, stagger_s: float = 0.0) -> BlockTrace:
    """Return the blocks of a Mooncake or WEKA trace, or of any other that tells what its prompts are made of.

    Parameters
    ----------
    path
        The file.
    first
        Take the first so many sessions (WEKA) or requests (others) of the file.
    stagger_s
        Sessions of a WEKA trace, whose times all count from 0, start this far apart in file order.

    Raises
    ------
    workloads.errors.BadInput
        What is wrong with the file, all at once; also if it does not tell its blocks.
    """
    if _is_weka(path):
        sessions = weka.read_sessions(path, first)
        # Each session is in order already; ties in time go by session, then by place.
        streams = [list(_lookups(number, session, number * stagger_s)) for number, session in enumerate(sessions)]
        return BlockTrace(list(heapq.merge(*streams, key=lambda lookup: lookup[:2])), "session", True)
    trace = read_recording(path).trace
    if trace.segments is None:
        raise BadInput(Fault("does not tell the blocks of its prompts; Mooncake and WEKA traces do", path))
    # The last block of a prompt may be partial; it counts as one.
    blocks = replace(trace.segments, tokens=-(-trace.segments.tokens // trace.segments.block))
    has_sessions = trace.session is not None
    owners = [0] * len(trace) if trace.session is None else trace.session.tolist()
    lookups = map(Lookup, trace.arrival_s.tolist(), owners, Prompt.of_rows(blocks))
    return BlockTrace(list(islice(lookups, first)), "shared", has_sessions)


def _is_weka(path: str | Path) -> bool:
    with open_bytes(path) as source:
        record = next(records(chunks(source, path), FaultLog(path, skip_bad=True)), None)
    return record is not None and record.data.keys() >= weka.KEYS


def _lookups(number: int, session: weka.Session, start_s: float) -> Iterator[Lookup]:
    for request in session.requests:
        ids: list[Hashable] = [(number, run) for run in request.run_ids]  # ids are local to a session
        prompt = Prompt.of(ids, request.run_ends)
        yield Lookup(start_s + request.start_s, number, prompt)


def count_hits(lookups: Iterable[Lookup], capacity: int | None, ttl_s: float | None, shared: bool) -> int:
    """Return how many blocks are found: prefix-contiguous, every prompt kept whole, the least recently used out first.

    Parameters
    ----------
    lookups
        Prompts in order.
    capacity
        Blocks a cache holds; None is unlimited.
    ttl_s
        Seconds after its last touch at which a block is lost; None is never.
    shared
        One cache for all, or one for each session.
    """
    if shared:
        use = PrefixCache(1, capacity, ttl_s).use
        return sum([use(prompt, at_s) for at_s, _, prompt in lookups])
    caches: dict[int, PrefixCache] = {}
    hits = 0
    for at_s, session, prompt in lookups:
        cache = caches.get(session)
        if cache is None:
            cache = caches[session] = PrefixCache(1, capacity, ttl_s)
        hits += cache.use(prompt, at_s)
    return hits
