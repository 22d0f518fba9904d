"""One model server: the values that an engine's preset and a study give it."""

from __future__ import annotations

from dataclasses import dataclass

from sim.replica.admission import AdmissionRule
from sim.steptime import StepTime


@dataclass(frozen=True, slots=True)
class Server:
    """What one replica is: the values that the engine's preset and the study give it.

    Attributes
    ----------
    rule
        Admission rule.
    step_time
        What an iteration costs.
    kv_tokens
        Size of the KV pool, tokens.
    window
        Most tokens of prompt and answer together.
    block_tokens
        Tokens in a block of the pool.
    max_num_seqs
        Most requests in the batch.
    max_num_batched_tokens
        Token budget of an iteration, at least ``max_num_seqs``, so that every decoding request advances in each one.
    chunked_prefill
        Whether a prompt may be computed in pieces. If not, one that exceeds what is left of the budget waits, unless
        it would be the iteration's only prompt.
    victim
        Whom a rule that grows preempts, one of :data:`sim.replica.victims.VICTIMS`; None: the rule's own choice.
    prefix_cache
        Whether requests share the blocks of equal beginnings, and blocks that nobody needs stay until they are needed.
    max_waiting
        Requests that may wait when the scheduler has looked; the newest beyond are refused. None: any number.
    """

    rule: AdmissionRule
    step_time: StepTime
    kv_tokens: int
    window: int
    block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    max_waiting: int | None = None
    prefix_cache: bool = False
    victim: str | None = None

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens = {self.max_num_batched_tokens} is below max_num_seqs = {self.max_num_seqs}: "
                "not every decoding request could advance in each iteration"
            )
