"""Recorded Claude Code sessions as WEKA's cache tester publishes them, with the blocks of every prompt.

Schema (kv-cache-tester, commit 94f6046, block hashes as runs): one JSON object a line is one session with ``id``,
``block_size`` (64 tokens), ``tool_tokens``, ``system_tokens`` and ``requests``. A request has ``t`` (seconds from the
session's start), ``in`` and ``out`` tokens, ``input_types``, ``output_types``, ``stop``, often ``think_time`` (seconds
from the answer before to this request) and ``api_time`` (seconds it took), and ``runs``: ``[first block id, blocks]``
pairs that cover ``floor(in / block_size)`` blocks from the start of the prompt. Ids are local to a session; an id
stands for its whole prefix, so it determines the id before it. The source's own files hold the ids one by one, as
``hash_ids``. An entry of ``requests`` with ``requests`` of its own is
a sub-agent, which starts at its ``t``; its requests count time from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.readers import values
from workloads.readers.faults import FaultLog
from workloads.readers.jsonl import Record, records
from workloads.readers.stream import Chunk, chunks, open_bytes

KEYS = frozenset({"id", "block_size", "requests"})
"""Keys that tell a line of this format."""

_DEEPEST = 4  # sub-agents inside sub-agents: the source has one level


@dataclass(frozen=True, slots=True)
class Request:
    """One recorded request.

    Attributes
    ----------
    start_s
        Seconds from the start of its session or sub-agent.
    input_tokens, output_tokens
        The prompt and the answer.
    input_types, output_types
        What came in since the request before (``text``: a user; ``tool_result``) and what the answer holds.
    stop
        Why the answer ended: ``tool_use``, ``end_turn`` or empty.
    think_s, api_s
        Seconds between the answer before and this request, and of the request itself; None where not recorded.
    run_ids, run_ends
        The prompt's whole blocks as runs of consecutive ids: the first id of each run, and the blocks up to its end.
    """

    start_s: float
    input_tokens: int
    output_tokens: int
    input_types: tuple[str, ...]
    output_types: tuple[str, ...]
    stop: str
    think_s: float | None
    api_s: float | None
    run_ids: list[int]
    run_ends: list[int]

    @property
    def blocks(self) -> int:
        """Whole blocks of the prompt."""
        return self.run_ends[-1] if self.run_ends else 0


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A sub-agent that the session started, closed loop on its own.

    Attributes
    ----------
    start_s
        Seconds from the start of the session (or sub-agent) that started it.
    kind
        What it was, as recorded.
    requests, subagents
        What it sent and started.
    """

    start_s: float
    kind: str
    requests: tuple[Request, ...]
    subagents: tuple[SubAgent, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """One recorded session.

    Attributes
    ----------
    name
        Its id in the file.
    block
        Tokens in a block.
    tool_tokens, system_tokens
        The fixed head of its prompts.
    requests
        The main agent's requests in order.
    subagents
        The agents it started.
    """

    name: str
    block: int
    tool_tokens: int
    system_tokens: int
    requests: tuple[Request, ...]
    subagents: tuple[SubAgent, ...]


def read_sessions(path: str | Path, first: int | None = None, skip_bad: bool = False) -> Iterator[Session]:
    """Yield the sessions of a file, plain or compressed, one line at a time.

    Parameters
    ----------
    path
        The file.
    first
        Stop after this many sessions; the rest is not read.
    skip_bad
        Leave sessions with faults out instead of refusing the file.

    Raises
    ------
    workloads.errors.BadInput
        At the end, all faults at once: a line that is cut or no such session, blocks that do not cover their prompt,
        times that run backwards. No session is yielded after the first fault.
    """
    log = FaultLog(path, skip_bad)
    with open_bytes(path) as source:
        for read, session in enumerate(sessions(chunks(source, path), log), 1):
            yield session
            if read == first:
                return
    log.close()


def sessions(lines: Iterator[Chunk], log: FaultLog) -> Iterator[Session]:
    """Yield the sessions of a text; after a fault in ``log`` none, unless bad ones may be skipped."""
    for record in records(lines, log):
        session = _session(record)
        if session is not None and (log.skip_bad or not log.count):
            yield session


class _Part(FaultLog):
    """The faults of one entry of a line: named by its place in there."""

    def __init__(self, log: FaultLog, place: str) -> None:
        super().__init__(log.path, log.skip_bad)
        self._log, self._place = log, place

    def add(self, line: int | None, key: str | None, message: str, reason: str | None = None) -> None:
        self.count += 1
        self._log.add(line, f"{self._place}.{key}" if key else self._place, message, reason)


def _block(value: object) -> int:
    size = values.tokens(value)
    if not size:
        raise values.Bad("must be at least 1 token")
    return size


def _items(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise values.Bad("must be a list")
    return value


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise values.Bad("must be a list of words")
    return tuple(value)


def _runs(value: object) -> tuple[list[int], list[int]]:
    ids: list[int] = []
    ends: list[int] = []
    end, expected = 0, None
    for run in _items(value):
        fair = isinstance(run, list) and len(run) == 2 and all(type(number) is int for number in run)
        if not fair or abs(run[0]) >= 2**62 or not 1 <= run[1] < 2**62:
            raise values.Bad(f"must hold pairs [first block id, blocks >= 1], got {str(run)[:40]}")
        end += run[1]
        if run[0] == expected:  # two runs that are one: the same prompt must always be cut at the same places
            ends[-1] = end
        else:
            ids.append(run[0])
            ends.append(end)
        expected = run[0] + run[1]
    return ids, ends


def _hashes(value: object) -> tuple[list[int], list[int]]:
    """Return runs of a plain list of block ids, as the source's own files hold them."""
    items = _items(value)
    if not all(type(item) is int and abs(item) < 2**62 for item in items):
        raise values.Bad("must be a list of whole numbers")
    return _runs([[item, 1] for item in items])


def _scope(value: object) -> str:
    if value != "local":
        raise values.Bad(f"must be local: ids that sessions share are not read, got {str(value)[:20]!r}")
    return "local"


def _session(record: Record) -> Session | None:
    name = record.need("id", values.text, "")
    block = record.need("block_size", _block, 1)
    tools = record.get("tool_tokens", values.tokens, 0)
    system = record.get("system_tokens", values.tokens, 0)
    record.get("hash_id_scope", _scope)
    requests, subagents, fair = _entries(record, block, 1)
    if record.bad or not fair:
        return None
    return Session(name, block, tools or 0, system or 0, requests, subagents)


def _entries(record: Record, block: int, depth: int) -> tuple[tuple[Request, ...], tuple[SubAgent, ...], bool]:
    requests: list[Request] = []
    subagents: list[SubAgent] = []
    fair = True
    last_s = 0.0
    nothing: list[Any] = []
    for number, entry in enumerate(record.need("requests", _items, nothing)):
        log = _Part(record.log, f"requests[{number}]")
        if not isinstance(entry, dict):
            log.add(record.line, None, f"must be an object, is {type(entry).__name__}", "is no object")
        elif "requests" in entry:
            subagents.append(_subagent(Record(entry, record.line, log), block, depth))
        else:
            request = _request(Record(entry, record.line, log), block)
            if request.start_s < last_s:
                log.add(record.line, "t", f"must not run backwards: {request.start_s:g} s after {last_s:g} s")
            last_s = request.start_s
            requests.append(request)
        fair = fair and not log.count
    return tuple(requests), tuple(subagents), fair


def _subagent(record: Record, block: int, depth: int) -> SubAgent:
    start_s = record.need("t", values.seconds, 0.0)
    kind = record.get("subagent_type", values.text, "") or ""
    if depth == _DEEPEST:
        record.fault("requests", f"sub-agents are nested deeper than {_DEEPEST}")
        return SubAgent(start_s, kind, (), ())
    requests, subagents, _ = _entries(record, block, depth + 1)
    return SubAgent(start_s, kind, requests, subagents)


def _request(record: Record, block: int) -> Request:
    start_s = record.need("t", values.seconds, 0.0)
    tokens = record.need("in", values.tokens, 0)
    answer = record.need("out", values.tokens, 0)
    nothing: tuple[list[int], list[int]] = ([], [])
    key, read = ("runs", _runs) if record.has("runs") or not record.has("hash_ids") else ("hash_ids", _hashes)
    ids, ends = record.need(key, read, nothing)
    blocks = ends[-1] if ends else 0
    if not record.bad and blocks != tokens // block:
        record.fault(key, f"{tokens:,} tokens hold {tokens // block:,} whole blocks of {block}, not {blocks:,}")
    return Request(
        start_s,
        tokens,
        answer,
        record.get("input_types", _words, ()) or (),
        record.get("output_types", _words, ()) or (),
        record.get("stop", values.text, "") or "",
        record.get("think_time", values.seconds),
        record.get("api_time", values.seconds),
        ids,
        ends,
    )
