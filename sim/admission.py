"""Admission rules: how much of the KV pool a server charges for a request, and whether that grows.

A rule sees the prompt, ``max_tokens`` and what has been generated so far. How long the answer is going to be it cannot
see: the engine keeps that to itself and uses it only to end the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol


class AdmissionRule(Protocol):
    """What the scheduler asks of a rule. All sizes are in blocks of ``block_tokens`` tokens."""

    name: ClassVar[str]
    grows: ClassVar[bool]
    """Whether a request's share grows with its context; if not, it is charged once, until it leaves."""

    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        """Return the blocks charged on admission to a request that has ``generated`` tokens from an earlier stay."""

    def spare(self, pool_blocks: int) -> int:
        """Return the blocks that must stay free after an admission while others run."""


@dataclass(frozen=True, slots=True)
class Full:
    """Charge prompt + ``max_tokens`` until the request leaves: it can never be evicted.

    TensorRT-LLM's ``GUARANTEED_NO_EVICT`` (its default): ``ceil((P + M) / b)`` blocks; also Orca and TGI up to 3.0.
    """

    name: ClassVar[str] = "full"
    grows: ClassVar[bool] = False

    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        """Return ``ceil((prompt + max_tokens) / block_tokens)``."""
        return -(-(prompt + max_tokens) // block_tokens)

    def spare(self, pool_blocks: int) -> int:
        """Return 0: what is charged is all that will ever be needed."""
        return 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """Charge what is to be computed now; grow block by block; preempt the last one in when the pool runs out.

    vLLM V1 with ``scheduler_reserve_full_isl`` (its default); ``max_tokens`` is only a stop condition there.

    Attributes
    ----------
    watermark
        Share of the pool that an admission leaves free while others run; vLLM 0.33's default is 0.
    """

    name: ClassVar[str] = "prompt"
    grows: ClassVar[bool] = True
    watermark: float = 0.0

    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        """Return ``ceil((prompt + generated) / block_tokens)``; what was generated is recomputed with the prompt."""
        return -(-(prompt + generated) // block_tokens)

    def spare(self, pool_blocks: int) -> int:
        """Return ``int(watermark * pool_blocks)``."""
        return int(self.watermark * pool_blocks)


RULES: Mapping[str, type[AdmissionRule]] = {rule.name: rule for rule in (Full, Prompt)}
"""Every rule by the name that studies use."""
