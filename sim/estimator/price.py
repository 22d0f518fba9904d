"""What an estimator's error costs: agents fit their context with it, the server counts true tokens.

A session's sizes are drawn in true tokens and are the same under every estimator; its messages are cut from the texts
of a class, and an estimator makes of them what it makes of those. An estimate that is too low sends a request that does
not fit, and the server refuses it; one that is too high clears results that would have fitted, which costs the tokens
behind them a second time.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from policies.context import Document001
from policies.messages import Blend, Sample
from policies.prompts import CLEARED_RESULT, DROPPED_MESSAGES
from policies.tokens import Counts, count_classes, estimator_names
from policies.tokens.weights import PREFIX
from sim.estimator.evaluate import Estimates, load_estimator, script_of
from sim.replication import uncollected
from sim.sessions.agent import End
from sim.sessions.conclude import Estimate, Metric, conclude
from sim.sessions.hosted_cache import HOSTED_CACHES
from sim.sessions.run import Row, solo_row
from sim.sessions.solo import SoloServer, run_alone
from sim.study.server import ServerTable
from workloads.agents import AgentMix, Part, Plan
from workloads.substreams import generator
from workloads.tokenizers import Tokenizer
from workloads.tokens.corpora import Chunk, own_corpus, read_corpus

EVERY: Final = "*"
"""Stands for all classes of a script, and all scripts, together."""
EXACT: Final = "exact"
"""The server's own tokenizer as the estimator: what every other one is compared with."""
ESTIMATORS: Final = ("chars-per-four", "by-script", "table:open", "table:envelope", "guaranteed")
"""Priced unless others are named, with the table of the server's own tokenizer where there is one."""
BUDGET: Final = 122_880
"""Prompt tokens that fit: the window of 131,072 that many open models have, less 8,192 for the answer."""
AGENTS: Final = AgentMix(rounds=80, result_median=1_500, result_p99=10_000, look_back_share=0.05, look_back_mean=20.0)
"""The sessions: one instruction and 80 tool rounds, which fill the window nearly twice. Tools cut long results, so that
every round fits; answers have recorded sizes. That a step in twenty needs an older result again is an assumption, the
one of ``results/context``."""
SESSIONS: Final = 20
SEED: Final = 20261130
Arms = Mapping[str, Sequence[Row]]
PROVIDERS: Final[Mapping[str, str]] = MappingProxyType(
    {"o200k": "openai", "qwen": "model-studio-implicit", "deepseek": "deepseek"}
)
"""At whose cache prices a tokenizer's sessions are billed; others pay every prompt token in full."""
SIGNS: Final = 0.08
"""Share of ASCII digits and signs up to which a class is prose, which agents answer in; in other classes they answer in
English. Of our classes prose has at most 0.05, all else but a chat of emoji at least 0.10."""

METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        "refused": Metric("refused_by_server", "sessions", True, "share of the sessions that the server refused"),
        "given_up": Metric("refused_by_policy", "sessions", True, "share that the policy refused: nothing would fit"),
        "cleared_early": Metric("early", "sessions", True, "share that cleared tokens which would have fitted"),
        "early_tokens": Metric("early_tokens", "started", True, "such tokens, a session"),
        "overestimate": Metric("excess_tokens", "prompt_tokens", True, "(estimate - true) / true, all requests sent"),
        "lost_tokens": Metric("lost_tokens", "started", True, "prompt tokens computed in vain, before a refusal"),
        "prefill_tokens": Metric("prefill_tokens", "started", False, "prompt tokens computed, a finished session"),
        "cost": Metric("cost", "started", False, "input cost of a finished session, uncached tokens"),
    }
)
"""What is reported of an estimator on a class; the last two also as a ratio to `EXACT`, session by session."""


@dataclass(frozen=True, slots=True, eq=False)
class Recalled:
    """An estimator, or a tokenizer, whose answers for all texts of a study were worked out before.

    Attributes
    ----------
    name
        What it stands for.
    known
        Tokens by a text's class counts, which is how the simulator knows texts.
    """

    name: str
    known: Mapping[Counts, int]

    def estimate(self, text: str) -> int:
        """Return the tokens of one of the texts."""
        return self.known[count_classes(text)]

    def estimate_counts(self, counts: Counts) -> int:
        """Return the tokens of one of the texts, by its counts."""
        return self.known[counts]


@dataclass(frozen=True, slots=True)
class Priced:
    """What one estimator costs on one kind of text before one server.

    Attributes
    ----------
    class_, script
        The class (file) and the script it is in; `EVERY` for all classes of a script together.
    tokenizer, estimator
        What the server counts with, what the client estimates with.
    sessions
        How many were acted out.
    values
        By name of `METRICS`, with 95 % intervals over sessions.
    ratios
        Prefill tokens and cost as factors on `EXACT`, over the sessions that finish under both.
    """

    class_: str
    script: str
    tokenizer: str
    estimator: str
    sessions: int
    values: Mapping[str, Estimate]
    ratios: Mapping[str, Estimate]

    def content(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        return {
            **{"class": self.class_, "script": self.script, "tokenizer": self.tokenizer},
            **{"estimator": self.estimator, "sessions": self.sessions},
            **{name: dataclasses.asdict(value) for name, value in self.values.items()},
            **{f"{name}_ratio": dataclasses.asdict(value) for name, value in self.ratios.items()},
        }


@dataclass(frozen=True, slots=True)
class Wording:
    """What the messages of a session are cut from: texts of a class, texts that are answered in, the system prompt's.

    Each message is as much of one text as makes its true tokens, so estimates err from message to message as they do
    from text to text.
    """

    results: Sequence[Blend]
    prose: Sequence[Blend]
    head: Sequence[Blend]

    def worded(self, plan: Plan, exact: Recalled, source: np.random.Generator) -> Plan:
        """Return a plan with its messages cut from these texts, its true sizes kept to a token.

        Parameters
        ----------
        plan
            What is said, in tokens.
        exact
            The server's tokenizer.
        source
            Chooses the texts.
        """

        def said(part: Part, texts: Sequence[Blend]) -> Part:
            text = texts[int(source.integers(len(texts)))]
            whole = exact.estimate_counts(text.counts)
            content = Sample(text, max(1, round(part.tokens * text.counts.characters / whole)))
            return Part(content, content.tokens(exact))

        head, first = said(plan.head, self.head), said(plan.first, self.prose)
        steps = []
        for step in plan.steps:
            answer = said(step.answer, self.prose)
            incoming = step.incoming and said(step.incoming, self.prose if step.user else self.results)
            steps.append(dataclasses.replace(step, answer=answer, output_tokens=answer.tokens, incoming=incoming))
        return dataclasses.replace(plan, head=head, first=first, steps=steps)


def price(
    chunks: Sequence[Chunk],
    estimators: Sequence[str],
    tokenizers: Sequence[Tokenizer],
    *,
    budget: int = BUDGET,
    sessions: int = SESSIONS,
    seed: int = SEED,
    progress: Callable[[], None] = lambda: None,
) -> list[Priced]:
    """Return what each estimator costs on each class of text, and on each script of several, before each server.

    Parameters
    ----------
    chunks
        The texts.
    estimators
        Names; none means `ESTIMATORS` and the table of the server's tokenizer.
    tokenizers
        What the servers count with.
    budget
        Prompt tokens that fit: for the client in estimated tokens, for the server in true ones.
    sessions
        How many a class are acted out, the same ones under every estimator.
    seed
        Of their sizes, and of what text each message is cut from.
    progress
        Called after every class before every server.

    Raises
    ------
    BadInput
        If there is no such estimator, or one fails on a text.
    """
    english = read_corpus([own_corpus() / "lat_en.txt"])
    texts = [*(chunk.text for chunk in (*chunks, *english)), CLEARED_RESULT, DROPPED_MESSAGES]
    counts = [count_classes(text) for text in texts]
    blends = [Blend("", each) for each in counts[: len(chunks) + len(english)]]
    spoken, labels = blends[len(chunks) :], [chunk.label for chunk in chunks]
    measured: dict[str, Recalled] = {}

    def recalled(name: str) -> Recalled:
        if name not in measured:
            measured[name] = Recalled(name, _known(load_estimator(name), texts, counts))
        return measured[name]

    found: list[Priced] = []
    chosen = [[recalled(name) for name in estimators or default_estimators(each)] for each in tokenizers]
    for tokenizer, others in zip(tokenizers, chosen, strict=True):
        exact = Recalled(EXACT, dict(zip(counts, tokenizer.count_many(texts), strict=True)))
        provider = PROVIDERS.get(tokenizer.name, "none")
        rows: dict[str, dict[str, Arms]] = {}
        for label in dict.fromkeys(labels):
            members = [number for number, each in enumerate(labels) if each == label]
            material = [blends[number] for number in members]
            prose = is_prose("".join(chunks[number].text for number in members))
            wording = Wording(material, material if prose else spoken, spoken)
            plans = [
                wording.worded(plan, exact, generator(seed, "texts", label, number))
                for number, plan in enumerate(dataclasses.replace(AGENTS, name=label, count=sessions).plans(seed, 0))
            ]
            script = Counter(script_of(chunks[number]) for number in members).most_common(1)[0][0]
            rows.setdefault(script, {})[label] = {
                each.name: _act_out(plans, each, budget, provider) for each in (exact, *others)
            }
            progress()
        for place, arms in _pooled(rows):
            found += [_priced((*place, tokenizer.name), arms[EXACT], name, arms[name], seed) for name in arms]
    return found


def _pooled(rows: Mapping[str, Mapping[str, Arms]]) -> Iterator[tuple[tuple[str, str], Arms]]:
    """Yield class, script and sessions: of each class, of each script that has several, of everything."""
    for script, of in rows.items():
        for label, arms in of.items():
            yield (label, script), arms
        if len(of) > 1:
            yield (EVERY, script), _together(of.values())
    yield (EVERY, EVERY), _together(arms for of in rows.values() for arms in of.values())


def _together(several: Iterable[Arms]) -> Arms:
    together: dict[str, list[Row]] = {}
    for arms in several:
        for name, rows in arms.items():
            together.setdefault(name, []).extend(rows)
    return together


def _priced(place: tuple[str, str, str], exact: Sequence[Row], name: str, rows: Sequence[Row], seed: int) -> Priced:
    said = conclude({EXACT: exact, name: rows}, seed, METRICS)
    ratios = {metric: said.ratios[name][metric] for metric in ("prefill_tokens", "cost")}
    return Priced(*place, name, len(rows), said.metrics[name], ratios)


def is_prose(text: str) -> bool:
    """Return whether a text is mostly words."""
    signs = sum(c.isascii() and not c.isalpha() and not c.isspace() for c in text)
    return signs <= SIGNS * len(text)


def default_estimators(tokenizer: Tokenizer) -> list[str]:
    """Return what is priced before a server unless other estimators are named."""
    own = PREFIX + tokenizer.name
    return [*ESTIMATORS, own] if own in estimator_names() else [*ESTIMATORS]


def _known(estimator: Estimates, texts: Sequence[str], counts: Sequence[Counts]) -> dict[Counts, int]:
    return {each: estimator.estimate(text) for each, text in zip(counts, texts, strict=True)}


def _act_out(plans: Sequence[Plan], estimator: Recalled, budget: int, provider: str) -> list[Row]:
    policy = Document001(estimator, budget)
    settled = ServerTable(engine="vllm-0.33", model="qwen3-32b", gpu="h200", tensor_parallel=2).settle()
    server = SoloServer(settled.step_time, settled.max_num_batched_tokens, settled.block_tokens, window=budget + 1)
    rows = []
    with uncollected():
        for plan in plans:
            result = run_alone(plan, policy, server, [HOSTED_CACHES[provider]])
            row, tally = solo_row(result), result.tally
            prefill = tally.prompt_tokens - result.hit_tokens
            more = {
                "started": 1,
                "early": tally.early_tokens > 0,
                "early_tokens": tally.early_tokens,
                "excess_tokens": tally.estimated_tokens - tally.prompt_tokens,
                "prefill_tokens": prefill,
                "lost_tokens": 0 if result.end is End.FINISHED else prefill,
                "cost": result.accounts[0].cost,
            }
            rows.append(dataclasses.replace(row, values={**row.values, **more}))
    return rows
