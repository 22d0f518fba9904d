"""Step times as published regressions give them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from types import MappingProxyType

from sim.steptime.base import FOREVER, Chunk, Provenance, Segment
from workloads.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Decoding:
    """What a decode costs: a step, each request, each stored token; milliseconds."""

    decode_ms: float
    request_ms: float
    context_token_ms: float


@dataclass(frozen=True, slots=True)
class Fit:
    """One published regression.

    Attributes
    ----------
    prefill_ms, prompt_token_ms, prompt_square_ms
        ``a + b sum(l) + c sum(l^2)`` over prompts of `l` tokens; a piece after `past` others counts ``l^2 + 2 l past``,
        so that a prompt costs the same in one piece or several, but for the constant.
    small, large, large_from
        Decoding below `large_from` requests, and from there on.
    engine, hardware, date, source
        Where it is from.
    """

    prefill_ms: float
    prompt_token_ms: float
    prompt_square_ms: float
    small: Decoding
    large: Decoding
    large_from: int
    engine: str
    hardware: str
    date: str
    source: str


def _fits() -> Mapping[str, Fit]:
    rows = tomllib.loads((files("sim.steptime") / "regressions.toml").read_text(encoding="utf-8"))
    fits = {}
    for name, row in rows.items():
        small = Decoding(row.pop("decode_ms"), row.pop("request_ms"), row.pop("context_token_ms"))
        large = row.pop("large", None)
        border = large.pop("from") if large else FOREVER
        zeros = {"prefill_ms": 0.0, "prompt_square_ms": 0.0}
        fits[name] = Fit(**(zeros | row), small=small, large=Decoding(**large) if large else small, large_from=border)
    return MappingProxyType(fits)


REGRESSIONS: Mapping[str, Fit] = _fits()
"""Published regressions by name: source / model / hardware."""


@dataclass(frozen=True, slots=True)
class Regression:
    """A published regression, by name.

    Attributes
    ----------
    fit
        Name of the regression: source / model / hardware.
    """

    fit: str
    _fit: Fit = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look the regression up.

        Raises
        ------
        ValueError
            There is none of that name.
        """
        if self.fit not in REGRESSIONS:
            allowed = ", ".join(REGRESSIONS)
            raise ValueError(f"fit: unknown {self.fit!r}, one of {allowed}{did_you_mean(self.fit, REGRESSIONS)}")
        object.__setattr__(self, "_fit", REGRESSIONS[self.fit])

    @property
    def provenance(self) -> Provenance:
        """Where the constants are from."""
        fit = self._fit
        prefill = {word: getattr(fit, word) / 1e3 for word in ("prefill_ms", "prompt_token_ms", "prompt_square_ms")}
        decode = {word: getattr(fit.small, word) / 1e3 for word in ("decode_ms", "request_ms", "context_token_ms")}
        constants = {word.replace("_ms", "_s"): value for word, value in (prefill | decode).items()}
        return Provenance("regression", fit.source, fit.engine, "", fit.hardware, fit.date, constants)

    def segment(self, decodes: int, context: int, chunks: Sequence[Chunk] = ()) -> Segment:
        """Return ``(base, slope, steps)`` as `StepTime` says; the line never breaks."""
        fit = self._fit
        base = slope = 0.0
        if decodes:
            costs = fit.small if decodes < fit.large_from else fit.large
            base = costs.decode_ms + costs.request_ms * decodes + costs.context_token_ms * context
            slope = costs.context_token_ms * decodes
        if chunks:
            base += fit.prefill_ms
            for tokens, past in chunks:
                base += tokens * (fit.prompt_token_ms + fit.prompt_square_ms * (tokens + 2 * past))
                slope += 2 * fit.prompt_square_ms * tokens * tokens
        return base / 1e3, slope / 1e3, FOREVER
