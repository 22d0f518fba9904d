"""Model name to output limit and context window.

A table holds what one version of a public client knew about models: how it spells a name the one way (*normalises*
it) and which patterns it then tries, the first match winning. Facts: the client's published builds 0.15.10 and 0.24.4
(Qwen Code), whose limit functions were run on the names of the conformance cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

_K = 1024

Row = tuple[str, int]
Step = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What is known of a model.

    Attributes
    ----------
    output
        Largest number of output tokens of one response; None for a model without an entry.
    window
        Context window, prompt and output together, in tokens; None for a model without an entry.
    uncapped
        Whether the client's ceiling for automatic requests leaves the model its whole output limit.
    """

    output: int | None
    window: int | None
    uncapped: bool = False

    @property
    def known(self) -> bool:
        """Whether the model has an output limit of its own: only then are values clipped to it."""
        return self.output is not None


@dataclass(frozen=True, slots=True)
class Table:
    """The limits that one version of the client knew.

    Attributes
    ----------
    name
        The version.
    steps
        What normalises a model's name, in order.
    output_rows, window_rows
        Pairs of regular expression (matched at the start of the normalised name) and tokens; the first match wins.
    default_output, default_window
        What a model without an entry is taken to have, in tokens.
    uncapped
        Regular expression of the models that get their whole output limit without being asked.
    """

    name: str
    steps: tuple[Step, ...]
    output_rows: tuple[Row, ...]
    window_rows: tuple[Row, ...]
    default_output: int
    default_window: int
    uncapped: str = r"(?!)"

    def normalise(self, model: str) -> str:
        """Return the one spelling under which the table looks a model up."""
        for step in self.steps:
            model = step(model)
        return model

    def lookup(self, model: str) -> ModelLimits:
        """Return the limits of a model's name, in any of the spellings that providers use."""
        name = self.normalise(model)
        return ModelLimits(
            output=_first(self.output_rows, name),
            window=_first(self.window_rows, name),
            uncapped=re.match(self.uncapped, name) is not None,
        )


def _first(rows: tuple[Row, ...], name: str) -> int | None:
    return next((tokens for pattern, tokens in rows if re.match(pattern, name)), None)


def _after_last(separator: str) -> Step:
    return lambda name: name.rpartition(separator)[2]


def _substitute(pattern: str, replacement: str, keep: str = r"(?!)") -> Step:
    """Return a step that replaces a pattern, except in names that match ``keep`` as a whole."""
    compiled, kept = re.compile(pattern), re.compile(keep)
    return lambda name: name if kept.fullmatch(name) else compiled.sub(replacement, name)


_TAG = r":(?:free|beta|extended|thinking|online|nitro|floor|latest|\d+(?:\.\d+)?b[^:]*)$"
_DATED = r"qwen-(?:plus|flash|vl-max)-latest|kimi-k2-\d{4}"
_SUFFIX = r"(?:-\d{4,}|-\d+x\d+b|-v\d+(?:\.\d+)*|-latest|-exp)$|(-[^-]+)-\d+(?:\.\d+)+$"
_WEIGHTS = r"-(?:\d+bit|int[48]|bf16|fp16|q[45]|quantized)$"


def _steps(*, tags: bool, claude_dots: bool, undated: str) -> tuple[Step, ...]:
    steps: list[Step] = [lambda name: name.strip().lower(), _after_last("/"), _after_last("|")]
    if tags:
        steps.append(_substitute(_TAG, ""))
    steps += [_after_last(":"), _substitute(r"\s+", "-")]
    if claude_dots:
        steps.append(_substitute(r"^(claude-[a-z]+-\d+)\.(\d+)(?:\.\d+)*", r"\1-\2"))
    steps += [_substitute("-preview", ""), _substitute(_SUFFIX, r"\1", keep=undated), _substitute(_WEIGHTS, "")]
    return tuple(steps)


V015 = Table(
    name="0.15",
    steps=_steps(tags=False, claude_dots=False, undated=_DATED),
    output_rows=(
        (r"gemini-3", 64 * _K),
        (r"gemini-", 8 * _K),
        (r"gpt-5", 128 * _K),
        (r"gpt-", 16 * _K),
        (r"o\d", 128 * _K),
        (r"claude-opus-4-6", 128 * _K),
        (r"claude-", 64 * _K),
        (r"qwen3\.\d", 64 * _K),
        (r"coder-model$", 64 * _K),
        (r"qwen", 32 * _K),
        (r"deepseek-v4", 384_000),
        (r"deepseek-(?:reasoner|r1)", 64 * _K),
        (r"deepseek-chat", 8 * _K),
        (r"glm-(?:5|4\.7)", 16 * _K),
        (r"minimax-m2\.5", 64 * _K),
        (r"kimi-k2\.5", 32 * _K),
    ),
    window_rows=(
        (r"gemini", 1_000_000),
        (r"gpt-5", 272_000),
        (r"gpt-", 128 * _K),
        (r"o\d", 200_000),
        (r"claude", 200_000),
        (r"qwen3-coder-(?:plus|flash)|qwen3\.\d|qwen-(?:plus|flash)-latest|coder-model$", 1_000_000),
        (r"qwen", 256 * _K),
        (r"deepseek-v4", 1_000_000),
        (r"deepseek", 128 * _K),
        (r"glm", 202_752),
        (r"minimax-m2\.5", 192 * _K),
        (r"minimax", 200_000),
        (r"kimi", 256 * _K),
        (r"seed-oss", 512 * _K),
    ),
    default_output=32_000,
    default_window=128 * _K,
)

_OPUS = r"claude-opus-(?:4-[678]|5)"

V024 = Table(
    name="0.24",
    steps=_steps(tags=True, claude_dots=True, undated=rf"{_DATED}|deepseek-v4.*"),
    output_rows=(
        (_OPUS, 128_000),
        (r"deepseek-flash", 384_000),
        (r"glm-5(?:\.\d+)?(?:-|$)", 128 * _K),
        (r"kimi-k3", 128 * _K),
        *(
            (pattern, tokens)
            for pattern, tokens in V015.output_rows
            if pattern not in ("claude-opus-4-6", r"glm-(?:5|4\.7)")
        ),
        (r"glm-4\.7", 16 * _K),
    ),
    window_rows=(
        (r"claude-opus-(?:4-[6-9]|[5-9])", 1_000_000),
        (r"deepseek-flash", 1_000_000),
        (r"glm-(?:5\.(?:[2-9]|\d\d)|[6-9]|\d\d)", 1_000_000),
        (r"minimax-m3", 1_000_000),
        (r"kimi-k3", 1_000_000),
        *V015.window_rows,
    ),
    default_output=32_000,
    default_window=200_000,
    uncapped=_OPUS,
)

TABLES: Mapping[str, Table] = {table.name: table for table in (V015, V024)}


@lru_cache(maxsize=4096)
def lookup(table: str, model: str) -> ModelLimits:
    """Return the limits of a model by a table's name; remembered, since a simulation asks for the same few names.

    Raises
    ------
    KeyError
        For a table that does not exist.
    """
    return TABLES[table].lookup(model)
