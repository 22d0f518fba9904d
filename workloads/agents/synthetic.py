"""Drawn sessions: chats, agents, and sub-agents with one instruction and hundreds of tool rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workloads.agents.plan import Part, Plan, Step
from workloads.agents.writing import WRITINGS
from workloads.checks import Rule, at_least, positive, require, share, whole
from workloads.errors import BadInput, Fault, did_you_mean
from workloads.lengths import P99
from workloads.substreams import generator

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AgentMix:
    """A law of sessions. Sizes are log-normal, given by their median and 99th percentile in true tokens.

    Attributes
    ----------
    name
        Names the random numbers, and the system prompt that all of these sessions share.
    count
        Sessions in a replication.
    every_s
        Mean time between the starts of two sessions, exponential; matters where sessions share a server.
    turns
        User messages of a session; 1 is a sub-agent.
    rounds
        Tool rounds of a turn; 0 is a chat.
    results, answers
        What tool results and answers are written in: kind of text (see :data:`workloads.agents.writing.WRITINGS`) to
        its share of the messages.
    head_tokens, first_tokens, user_tokens
        System prompt with tool definitions, the first message, each further user message.
    result_median, result_p99, answer_median, answer_p99
        Sizes of tool results and answers.
    tool_median_s, tool_p99_s, think_median_s, think_p99_s
        Seconds that a tool takes, and a user before the next message.
    look_back_share
        Share of the steps that need an earlier result again.
    look_back_mean
        How many results back it lies in the mean, geometric.
    patience_low
        An agent that was not told of clearing stops at a share of the room drawn evenly from here to 1.
    """

    name: str = "agents"
    count: int = 100
    every_s: float = 60.0
    turns: int = 1
    rounds: int = 120
    results: Mapping[str, float] = field(default_factory=lambda: {"code": 0.6, "json": 0.2, "logs": 0.2})
    answers: Mapping[str, float] = field(default_factory=lambda: {"english": 1.0})
    head_tokens: int = 15_200
    first_tokens: int = 800
    user_tokens: int = 150
    result_median: float = 393.0
    result_p99: float = 17_273.0
    answer_median: float = 222.0
    answer_p99: float = 3_633.0
    tool_median_s: float = 3.0
    tool_p99_s: float = 120.0
    think_median_s: float = 60.0
    think_p99_s: float = 3_070.0
    look_back_share: float = 0.0
    look_back_mean: float = 10.0
    patience_low: float = 0.2

    def __post_init__(self) -> None:
        require(
            whole("count", self.count, 1, 10**6),
            at_least("every_s", self.every_s, 0),
            whole("turns", self.turns, 1, 10**6),
            whole("rounds", self.rounds, 0, 10**6),
            whole("head_tokens", self.head_tokens, 0, 10**8),
            whole("first_tokens", self.first_tokens, 1, 10**8),
            whole("user_tokens", self.user_tokens, 1, 10**8),
            share("look_back_share", self.look_back_share),
            at_least("look_back_mean", self.look_back_mean, 1),
            share("patience_low", self.patience_low),
            *self._sizes("result_median", self.result_median, "result_p99", self.result_p99),
            *self._sizes("answer_median", self.answer_median, "answer_p99", self.answer_p99),
            *self._sizes("tool_median_s", self.tool_median_s, "tool_p99_s", self.tool_p99_s),
            *self._sizes("think_median_s", self.think_median_s, "think_p99_s", self.think_p99_s),
        )
        faults = [
            Fault(
                f"no such kind of text; allowed: {', '.join(WRITINGS)}{did_you_mean(name, WRITINGS)}",
                key=f"{key}.{name}",
            )
            for key, mix in (("results", self.results), ("answers", self.answers))
            for name in mix
            if name not in WRITINGS
        ]
        if faults:
            raise BadInput(*faults)

    @staticmethod
    def _sizes(median: str, middle: float, p99: str, high: float) -> tuple[Rule, Rule]:
        return positive(median, middle), at_least(p99, high, middle)

    def plans(self, seed: int, replication: int) -> Iterator[Plan]:
        """Yield the sessions; each is drawn from its own substream, so their number changes none of them."""
        gaps = generator(seed, "agents", self.name, replication, "starts").standard_exponential(self.count)
        starts_s = (np.cumsum(gaps) * self.every_s).tolist()
        for number, start_s in enumerate(starts_s):
            source = generator(seed, "agents", self.name, replication, number)
            yield self._plan(source, f"{self.name}-{number}", start_s)

    def _plan(self, source: np.random.Generator, name: str, start_s: float) -> Plan:
        steps = self.turns * (self.rounds + 1)
        answers = _parts(source, steps, self.answers, self.answer_median, self.answer_p99)
        results = _parts(source, steps, self.results, self.result_median, self.result_p99)
        tools_s = _lognormal(source, steps, self.tool_median_s, self.tool_p99_s).tolist()
        thinks_s = _lognormal(source, steps, self.think_median_s, self.think_p99_s).tolist()
        needs = source.random(steps) < self.look_back_share
        back = np.where(needs, source.geometric(1 / self.look_back_mean, steps), 0).tolist()
        patience = float(source.uniform(self.patience_low, 1.0))
        written = next(iter(self.answers))
        question = WRITINGS[written].part_of(self.user_tokens)
        plan = []
        for place, answer in enumerate(answers):
            ends_turn = (place + 1) % (self.rounds + 1) == 0
            if place + 1 == steps:
                plan.append(Step(answer, answer.tokens))
            elif ends_turn:
                plan.append(Step(answer, answer.tokens, question, True, thinks_s[place]))
            else:
                plan.append(Step(answer, answer.tokens, results[place], False, tools_s[place], back[place]))
        return Plan(
            name,
            "+".join(self.results),
            self.name,
            WRITINGS["english"].part_of(self.head_tokens),
            WRITINGS[written].part_of(self.first_tokens),
            plan,
            start_s,
            patience,
        )


def _lognormal(source: np.random.Generator, n: int, median: float, p99: float) -> Floats:
    return median * np.exp(source.standard_normal(n) * (math.log(p99 / median) / P99))


def _parts(source: np.random.Generator, n: int, mix: Mapping[str, float], median: float, p99: float) -> list[Part]:
    tokens = np.ceil(_lognormal(source, n, median, p99)).astype(np.int64).tolist()
    levels = np.cumsum(list(mix.values()))
    which = np.searchsorted(levels / levels[-1], source.random(n), side="right").tolist()
    writings = [WRITINGS[name] for name in mix]
    return [writings[kind].part_of(size) for kind, size in zip(which, tokens, strict=True)]
