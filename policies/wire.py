"""How a request's ``max_tokens`` is named and clipped by the APIs that clients speak.

Every dialect turns a ``Send`` and the sampling parameters that a user configured into the parameters of a request. A
model's own limit has been applied to ``Send.max_tokens`` already; ``Send.requested`` is what was asked for before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies.output.values import Send

Sampling = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Dialect:
    """An API's way of naming the output limit.

    Attributes
    ----------
    name
        What a study or a driver calls it.
    field
        The parameter that holds the limit.
    aliases
        Further parameters by which a user may state the limit.
    """

    name: str
    field: str = "max_tokens"
    aliases: tuple[str, ...] = ("max_completion_tokens", "max_new_tokens")

    def user_limit(self, sampling: Sampling | None) -> int | float | str | None:
        """Return the limit that the user's sampling parameters state, as it stands there; None without one."""
        given = (sampling.get(name) for name in (self.field, *self.aliases)) if sampling else ()
        stated = next((value for value in given if value is not None), None)
        return stated if stated is None or isinstance(stated, int | float | str) else str(stated)

    def parameters(self, send: Send, sampling: Sampling | None = None) -> dict[str, object]:
        """Return the sampling parameters of a request, the limit among them under its one name."""
        stated = (self.field, *self.aliases)
        others = {name: value for name, value in (sampling or {}).items() if name not in stated}
        return {**others, self.field: send.max_tokens}


@dataclass(frozen=True, slots=True)
class Verbatim(Dialect):
    """The client's version 0.15 on OpenAI-compatible APIs: a user's sampling parameters are all that is sent."""

    aliases: tuple[str, ...] = ()

    def parameters(self, send: Send, sampling: Sampling | None = None) -> dict[str, object]:
        """Return the user's parameters as they stand, or without any the limit alone."""
        return {self.field: send.max_tokens} if sampling is None else dict(sampling)


@dataclass(frozen=True, slots=True)
class Unclipped(Dialect):
    """The client's version 0.24 on OpenAI-compatible APIs.

    With sampling parameters of the user the model's limit clips nothing, and a limit under another name takes the
    place of ``max_tokens``, though no escalation is spared by it.
    """

    other_names: tuple[str, ...] = ("max_completion_tokens", "max_new_tokens")
    aliases: tuple[str, ...] = ()

    def parameters(self, send: Send, sampling: Sampling | None = None) -> dict[str, object]:
        """Return the user's parameters with the limit added, or lowered where it has another name."""
        if sampling is None:
            return {self.field: send.max_tokens}
        renamed = {
            name: min(value, send.requested)
            for name in self.other_names
            if isinstance(value := sampling.get(name), int)
        }
        return {**sampling, **(renamed or {self.field: send.requested})}


OPENAI = Dialect("openai")
DASHSCOPE = Dialect("dashscope")
"""Inherits the OpenAI-compatible way whole (documents, the list of content generators)."""
ANTHROPIC = Dialect("anthropic", aliases=())

DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (OPENAI, DASHSCOPE, ANTHROPIC)}
