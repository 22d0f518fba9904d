"""A law of agent sessions: how long they are, how prompts grow, when they are compacted, how long everything takes.

A session has five levels, tied by a Gaussian copula: its first prompt, its number of requests, the share of them that
a user starts, its growth per round and the length of its answers. Its window is a common one of 200,000 tokens, or a
large one. Within the session growth and answers scatter around their level. Each law of one number is a table of
quantiles.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from workloads.errors import BadInput, Fault
from workloads.readers.weka import Request, Session
from workloads.substreams import generator

Floats = NDArray[np.float64]

LEVELS = (0.0, 0.005, 0.01, 0.025, *(k / 20 for k in range(1, 20)), 0.975, 0.99, 0.995, 0.999, 1.0)
SESSION = ("first", "requests", "turn_share", "growth", "answer")
BLOCK = 64
"""Tokens of a block, as in the recordings."""
WINDOW, LARGE_WINDOW = 200_000, 1_000_000
"""Tokens of the two windows that the recorded models have."""
TALK = 0.4
"""A session is a talk if users start more than this share of its requests, and at least three."""
OPENING = ((1, 2), (2, 4), (4, 8))
"""Rounds that read in what the session is about, and so append more than later ones."""
FULL = 150_000
"""First prompts above this are resumed sessions, which more often have the large window."""
EDGES = (100_000.0, 130_000.0, 150_000.0, 160_000.0, 170_000.0)
"""Prompt sizes between which the chance of a compaction is constant: it peaks where the common window fills up."""


@dataclass(frozen=True, slots=True)
class Table:
    """A law of one number, by its quantiles at `LEVELS`; between them linear in ``asinh``, so log-linear at size."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, sample: Floats) -> Self:
        """Return the table of a sample, rounded to four digits."""
        return cls(tuple(float(f"{value:.4g}") for value in np.quantile(sample, LEVELS)))

    def quantile(self, u: Floats) -> Floats:
        """Return the values at these levels."""
        return np.asarray(np.sinh(np.interp(u, LEVELS, np.arcsinh(self.values))))


@dataclass(frozen=True, slots=True)
class SessionLaw:
    """A law of sessions.

    Attributes
    ----------
    source
        What it was fitted to.
    first, requests, turn_share, growth, answer
        Of a session: tokens of its first prompt, number of requests, share of them that start a turn, and the means
        of the logarithms of what a round appends and of its answers.
    correlation
        Of the normal scores of these five, in this order.
    talk_share, talk
        Share of sessions that are talks more than errands, and the share of their requests that start a turn.
    opening
        How much the first rounds append above the session's level, on the log scale: round 1, rounds 2 and 3, 4 to 7.
    zero_rounds
        Intercept and slope, on the logit scale, of a turn having no tool round, over the log of one plus rounds per
        turn.
    rounds_spread
        Standard deviation, within a session, of the logarithms of a turn's rounds less a half.
    growth_scatter, answer_scatter
        Around the session's level, on the log scale.
    shrink_share, shrink
        Share of rounds that append less than nothing (thinking is not sent back), and how many tokens less.
    large_share
        Share of sessions with the large window, where the first prompt is up to and above `FULL`.
    compaction, large_compaction, compacted
        Chance of a compaction at a request by size of its prompt (between `EDGES`) in the common and the large
        window, and what share of the prompt is left.
    user_think, tool_think
        Whole seconds (as recorded) between an answer and a user's message, and a tool's result.
    service
        Logarithm of the seconds a request takes: constant, slopes over the logs of 1 + answer and of prompt, and the
        standard deviation of the rest.
    broken_share, kept
        Share of requests that do not repeat the whole prompt before, and what share of its blocks they repeat.
    head
        Tokens of system prompt and tools.
    """

    source: str
    first: Table
    requests: Table
    turn_share: Table
    growth: Table
    answer: Table
    correlation: tuple[tuple[float, ...], ...]
    talk_share: float
    talk: Table
    opening: tuple[float, float, float]
    zero_rounds: tuple[float, float]
    rounds_spread: float
    growth_scatter: Table
    answer_scatter: Table
    shrink_share: float
    shrink: Table
    large_share: tuple[float, float]
    compaction: tuple[float, ...]
    large_compaction: tuple[float, ...]
    compacted: Table
    user_think: Table
    tool_think: Table
    service: tuple[float, float, float, float]
    broken_share: float
    kept: Table
    head: Table

    @classmethod
    def named(cls, name: str) -> Self:
        """Return a law that comes with the project: ``claude-code``."""
        data = json.loads(resources.files("workloads.sessions").joinpath(f"{name}.json").read_text())
        return cls.from_plain(data)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the law in a JSON file that `to_plain` made.

        Raises
        ------
        workloads.errors.BadInput
            If it cannot be read or is no law of sessions.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadInput(Fault(f"is no readable JSON: {error}", path)) from None
        known = {item.name for item in fields(cls)}
        found = set(data) if isinstance(data, dict) else set()
        if found != known:
            odd = ", ".join(sorted(found ^ known)[:5])
            raise BadInput(Fault(f"is no law of sessions (see slotsim trace fit-sessions): keys differ, {odd}", path))
        try:
            law = cls.from_plain(data)
            next(law.sessions(0, 0, 1))
        except (TypeError, ValueError, AttributeError, ArithmeticError, np.linalg.LinAlgError) as error:
            raise BadInput(Fault(f"is no law of sessions: {error}", path)) from None
        return law

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Self:
        """Return the law that `to_plain` wrote."""
        return cls(**{name: _from_plain(value) for name, value in data.items()})

    def to_plain(self) -> dict[str, Any]:
        """Return the law as plain values for JSON."""
        return {name: value["values"] if isinstance(value, dict) else value for name, value in asdict(self).items()}

    def sessions(self, seed: int, replication: int, count: int, name: str = "sessions") -> Iterator[Session]:
        """Yield sessions in the form of recorded ones; each has a substream of its own."""
        root = np.linalg.cholesky(np.array(self.correlation))
        for number in range(count):
            yield self._session(generator(seed, name, replication, number), f"{name}-{number}", root)

    def _session(self, draw: np.random.Generator, name: str, root: Floats) -> Session:
        levels = dict(zip(SESSION, special.ndtr(root @ draw.standard_normal(5)), strict=True))
        first, requests, turn_share, growth, answer = (
            float(getattr(self, key).quantile(np.array([level]))[0]) for key, level in levels.items()
        )
        n = max(1, round(requests))
        if draw.random() < self.talk_share:
            turn_share = float(self.talk.quantile(draw.random(1))[0])
        starts_turn = self._starts(draw, n, int(np.clip(turn_share * n + draw.random(), 1, n)))
        large = draw.random() < self.large_share[first > FULL] or first > WINDOW
        window, chances = (LARGE_WINDOW, self.large_compaction) if large else (WINDOW, self.compaction)
        outputs = np.maximum(1, np.rint(np.exp(answer + self.answer_scatter.quantile(draw.random(n))))).astype(np.int64)
        opening = np.zeros(n)
        for (low, high), boost in zip(OPENING, self.opening, strict=True):
            opening[low:high] = boost
        appended = np.exp(growth + opening + self.growth_scatter.quantile(draw.random(n)))
        shrinks = draw.random(n) < self.shrink_share
        appended = np.where(shrinks, -self.shrink.quantile(draw.random(n)), appended)
        thinks = np.rint(
            np.where(starts_turn, self.user_think.quantile(draw.random(n)), self.tool_think.quantile(draw.random(n)))
        )
        compacts, left = draw.random(n), self.compacted.quantile(draw.random(n))
        breaks, kept = draw.random(n) < self.broken_share, self.kept.quantile(draw.random(n))
        noise = draw.standard_normal(n)
        head = float(self.head.quantile(draw.random(1))[0])
        constant, over_answer, over_prompt, scatter = self.service
        made: list[Request] = []
        prompt, at, fresh = max(first, head + 1.0), 0.0, 0
        ids: list[int] = []
        ends: list[int] = []
        for i in range(n):
            if i:
                before, at = made[-1], at + (made[-1].api_s or 0.0) + float(thinks[i])
                longer = max(head + 1.0, prompt + before.output_tokens + float(appended[i]))
                if longer > window or compacts[i] < chances[int(np.searchsorted(EDGES, prompt))]:
                    prompt = max(head + 1.0, prompt * float(left[i]))
                    keep = min(int(head) // BLOCK, before.blocks)
                else:
                    prompt = longer
                    keep = int(before.blocks * kept[i]) if breaks[i] else before.blocks
                ids, ends = _cut(ids, ends, keep)
            tokens = int(prompt)
            ids, ends, fresh = _extend(ids, ends, tokens // BLOCK, fresh)
            seconds = math.exp(
                constant
                + over_answer * math.log1p(float(outputs[i]))
                + over_prompt * math.log(max(prompt, 1.0))
                + scatter * float(noise[i])
            )
            made.append(
                Request(
                    at,
                    tokens,
                    int(outputs[i]),
                    ("text",) if starts_turn[i] else ("tool_result",),
                    ("text",),
                    "end_turn" if i + 1 == n or starts_turn[i + 1] else "tool_use",
                    float(thinks[i]) if i else 0.0,
                    seconds,
                    ids,
                    ends,
                )
            )
        return Session(name, BLOCK, int(head), 0, tuple(made), ())

    def _starts(self, draw: np.random.Generator, n: int, turns: int) -> NDArray[np.bool_]:
        """Return which of n requests start a turn: a turn is a user's message and its tool rounds."""
        rounds = n - turns
        constant, slope = self.zero_rounds
        some = draw.random(turns) >= special.expit(constant + slope * math.log1p(rounds / turns))
        some[np.flatnonzero(some)[rounds:]] = False
        if rounds and not some.any():
            some[int(draw.integers(turns))] = True
        weights = some * np.exp(self.rounds_spread * draw.standard_normal(turns))
        counts = some.astype(np.int64)  # each has one, the rest goes by weight
        rest = rounds - int(counts.sum())
        if rest:
            edges = np.floor(np.cumsum(weights) / weights.sum() * rest + draw.random())
            counts += np.diff(np.minimum(edges, rest), prepend=0.0).astype(np.int64)
            counts[np.argmax(weights)] += rounds - counts.sum()
        starts = np.zeros(n, np.bool_)
        starts[np.concatenate(([0], np.cumsum(counts[:-1] + 1)))] = True
        return starts


def _from_plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, list) and len(value) == len(LEVELS):
        return Table(tuple(value))
    if isinstance(value, list):
        return tuple(_from_plain(item) for item in value)
    return value


def _cut(ids: list[int], ends: list[int], blocks: int) -> tuple[list[int], list[int]]:
    """Return the first ``blocks`` blocks of a prompt."""
    count = int(np.searchsorted(ends, blocks)) + 1 if blocks else 0
    return ids[:count], [*ends[: count - 1], min(blocks, ends[count - 1])] if count and ids else []


def _extend(ids: list[int], ends: list[int], blocks: int, fresh: int) -> tuple[list[int], list[int], int]:
    """Return a prompt cut or lengthened to ``blocks`` blocks, and the next unused block id."""
    have = ends[-1] if ends else 0
    if blocks <= have:
        return (*_cut(ids, ends, blocks), fresh)
    more = blocks - have
    if ids and ids[-1] + (have - (ends[-2] if len(ends) > 1 else 0)) == fresh:
        return ids, [*ends[:-1], blocks], fresh + more
    return [*ids, fresh], [*ends, blocks], fresh + more
