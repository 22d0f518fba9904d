"""Admission rules: how much of the KV pool a server charges for a request, whether that grows, who gets in when.

A rule sees the prompt, ``max_tokens`` and what has been generated so far. How long the answer is going to be it cannot
see: the engine keeps that to itself and uses it only to end the response. Rules that are told are marked as such: they
are bounds that no server reaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sim.replica.outlook import Estimate, Outlook


class AdmissionRule:
    """What the scheduler asks of a rule. All sizes are in blocks of ``block_tokens`` tokens."""

    __slots__ = ()
    name: ClassVar[str]
    grows: ClassVar[bool] = False
    """Whether a request's share grows with its context; if not, it is charged once, until it leaves the batch."""
    closed: ClassVar[bool] = False
    """Whether nobody enters while anybody is in the batch."""
    piecewise: ClassVar[bool] = False
    """Whether a prompt that is computed in pieces is charged piece by piece."""
    stay: ClassVar[int | None] = None
    """Tokens after which a request that goes on leaves the batch and queues again at the tail; None: it stays."""
    knows: ClassVar[bool] = False
    """Whether the rule is told how long the answer is going to be."""
    victim: ClassVar[str] = "last"
    """Whom a rule that grows preempts, unless the server says otherwise: one of :data:`sim.replica.victims.VICTIMS`."""
    to_tail: ClassVar[bool] = False
    """Whether a preempted request queues again at the tail, not at the head."""

    def outlook(self) -> Outlook | None:
        """Return a guess of what the running requests will still need, which an admission leaves room for, or None."""
        return None

    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        """Return the blocks charged on admission to a request that has ``generated`` tokens from an earlier stay."""
        raise NotImplementedError

    def spare(self, pool_blocks: int) -> int:
        """Return the blocks that must stay free after an admission while others run; 0 unless a rule says more."""
        return 0

    def told(self, true_tokens: int, max_tokens: int) -> int:
        """Return what a rule that knows takes for ``max_tokens``; never called on others."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Full(AdmissionRule):
    """Charge prompt + ``max_tokens`` until the request leaves: it can never be evicted.

    TensorRT-LLM's ``GUARANTEED_NO_EVICT`` (its default): ``ceil((P + M) / b)`` blocks; also Orca and TGI up to 3.0.
    """

    name: ClassVar[str] = "full"

    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        """Return ``ceil((prompt + max_tokens) / block_tokens)``."""
        return -(-(prompt + max_tokens) // block_tokens)


@dataclass(frozen=True, slots=True)
class Batch(Full):
    """Charge as ``full``, and let nobody in until the whole batch has left.

    TensorRT-LLM's ``STATIC_BATCH`` (capacityScheduler.cpp): pending requests are looked at only when nothing runs.
    """

    name: ClassVar[str] = "batch"
    closed: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Chunked(AdmissionRule):
    """Charge prompt + at most 1,024 tokens of answer; who wants more queues again at the tail, all of it recomputed.

    TGI since December 2024 (pull request 2803): ``ceil((P + min(M, 1024)) / b)``, ``DEFAULT_GENERATION_LENGTH`` in
    router/src/validation.rs; a request cut by it re-enters the queue with its text so far (router/src/infer/mod.rs).
    """

    name: ClassVar[str] = "chunked"
    stay: ClassVar[int] = 1_024

    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        """Return ``ceil((prompt + generated + min(max_tokens - generated, 1024)) / block_tokens)``."""
        return -(-(prompt + min(max_tokens, generated + self.stay)) // block_tokens)


@dataclass(frozen=True, slots=True)
class Slots(AdmissionRule):
    """Charge one slot of the whole window, whatever is asked for: the pool holds so many requests and no more.

    llama.cpp's and Ollama's ``n_ctx / n_parallel`` (not the unified cache), FasterTransformer's ``session_len``.

    Attributes
    ----------
    window
        Tokens of a slot.
    """

    name: ClassVar[str] = "slots"
    window: int

    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        """Return ``ceil(window / block_tokens)``."""
        return -(-self.window // block_tokens)


@dataclass(frozen=True, slots=True)
class Growing(AdmissionRule):
    """Charge what is to be computed, and let it grow: who generated before computes that again with the prompt."""

    grows: ClassVar[bool] = True

    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        """Return ``ceil((prompt + generated) / block_tokens)``, of the tokens that are to be stored."""
        return -(-(prompt + generated) // block_tokens)


@dataclass(frozen=True, slots=True)
class Prompt(Growing):
    """Charge what is to be computed now; grow block by block; preempt the last one in when the pool runs out.

    vLLM V1 with ``scheduler_reserve_full_isl`` (its default); ``max_tokens`` is only a stop condition there.

    Attributes
    ----------
    watermark
        Share of the pool that an admission leaves free while others run; vLLM 0.33's default is 0.
    """

    name: ClassVar[str] = "prompt"
    watermark: float = 0.0

    def spare(self, pool_blocks: int) -> int:
        """Return ``int(watermark * pool_blocks)``."""
        return int(self.watermark * pool_blocks)


@dataclass(frozen=True, slots=True)
class OneStep(Growing):
    """Charge what the next step stores, a prompt piece by piece; pause the last one in when the pool runs out.

    TensorRT-LLM's ``MAX_UTILIZATION`` (capacityScheduler.cpp): blocks for one step; the request that started last is
    paused, its blocks freed, and it is recomputed later.
    """

    name: ClassVar[str] = "onestep"
    piecewise: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Oracle(Full):
    """Charge prompt + what the answer is going to take: the bound that nobody can beat without growing.

    Orca (Oracle) of the vLLM paper (SOSP 2023, section 6.1).
    """

    name: ClassVar[str] = "oracle"
    knows: ClassVar[bool] = True

    def told(self, true_tokens: int, max_tokens: int) -> int:
        """Return the tokens that the answer is going to have."""
        return min(true_tokens, max_tokens)


@dataclass(frozen=True, slots=True)
class PowerOfTwo(Full):
    """Charge prompt + the answer's length rounded up to a power of two: a guess that is never off by more than twice.

    Orca (Pow2) of the vLLM paper (SOSP 2023, section 6.1).
    """

    name: ClassVar[str] = "power-of-two"
    knows: ClassVar[bool] = True

    def told(self, true_tokens: int, max_tokens: int) -> int:
        """Return the least power of two that holds the answer, at most ``max_tokens``."""
        return min(1 << (true_tokens - 1).bit_length(), max_tokens)


@dataclass(frozen=True, slots=True)
class Estimated(Growing):
    """Charge what is to be computed; leave room for a share of what all may still generate; retract when it was less.

    SGLang 0.5.23: a request enters if its prompt, what it may generate (at most 4,096) and a page are less than what
    is free beyond what the running ones are expected to need (:mod:`sim.replica.outlook`). When the pool runs out,
    requests with the shortest answers are retracted until the others have 20 tokens each; they queue at the tail.
    """

    name: ClassVar[str] = "estimated"
    victim: ClassVar[str] = "shortest-answer"
    to_tail: ClassVar[bool] = True
    estimate: ClassVar[Estimate] = Estimate()

    def outlook(self) -> Outlook:
        """Return the guess at the start."""
        return Outlook(self.estimate)


RULES: Mapping[str, type[AdmissionRule]] = {
    rule.name: rule for rule in (Full, Prompt, Chunked, OneStep, Slots, Batch, Estimated, Oracle, PowerOfTwo)
}
"""Every rule by the name that studies use."""
