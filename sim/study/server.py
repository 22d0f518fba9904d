"""The server of a study: its table, and the server with every default filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool, StrictStr
from pydantic_core import InitErrorDetails

from sim.clients.faults import Faults
from sim.hardware import Gpu, Model, find_gpu, find_model, kv_capacity_tokens
from sim.quantities import Positive, Share, Size
from sim.replica.admission import RULES
from sim.replica.engines import ENGINES, Engine
from sim.replica.victims import VICTIMS
from sim.steptime import STEP_TIMES, StepTime
from sim.study.choices import Choice, Table, choice_of, complaint, complaints, one_of, table_of
from sim.study.tree import Value
from workloads.errors import BadInput, Fault

GIVEN = ("gpu", "model", "tensor_parallel")
"""What a step-time model takes from the server's own keys."""

_ROOFLINE = table_of(STEP_TIMES["roofline"], "kind", "roofline", GIVEN)

if TYPE_CHECKING:
    StepTimeTable = Choice
else:
    StepTimeTable = choice_of("step-time model", "kind", STEP_TIMES, given=GIVEN)


@dataclass(frozen=True, slots=True)
class Settled:
    """A server as simulated: the study's keys, the preset's defaults, and what follows from model and GPU.

    Attributes
    ----------
    engine, model, gpu, tensor_parallel
        What it is; model and GPU are None where nothing needs them.
    admission
        Name of the admission rule.
    kv_tokens, window
        Size of the KV pool; longest prompt + output. Tokens.
    max_num_seqs, max_num_batched_tokens, max_waiting
        Most requests running; tokens in a step; requests waiting, None for any number.
    block_tokens, chunked_prefill, watermark, prefix_cache
        As in the study.
    victim
        Whom the rule preempts, None for its own choice.
    step_time
        The model of a step's duration.
    """

    engine: Engine
    model: Model | None
    gpu: Gpu | None
    tensor_parallel: int
    admission: str
    kv_tokens: int
    window: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_waiting: int | None
    block_tokens: int
    chunked_prefill: bool
    watermark: float
    victim: str | None
    prefix_cache: bool
    step_time: StepTime

    def contradictions(self) -> Iterator[InitErrorDetails]:
        """Yield what single keys allow and their combination does not."""
        if self.kv_tokens < self.window:
            yield complaint(
                f"the pool of {self.kv_tokens:,} tokens does not hold one request of the window of {self.window:,}, so"
                " that a real server would refuse to start: set a smaller window or a larger pool",
                "kv_tokens",
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            yield complaint(
                f"must be at least max_num_seqs ({self.max_num_seqs:,}), got {self.max_num_batched_tokens:,}",
                "max_num_batched_tokens",
            )
        if self.victim is not None and not RULES[self.admission].grows:
            growing = ", ".join(name for name, rule in sorted(RULES.items()) if rule.grows)
            yield complaint(
                f"the rule {self.admission!r} never preempts; those that do are {growing}: leave the key out", "victim"
            )


def _found(find: Callable[..., object], root: str) -> BeforeValidator:
    """Look something up in a catalogue; it says itself what is wrong with a name or a table."""

    def check(value: object) -> object:
        if not isinstance(value, str | dict):
            raise ValueError(f"must be a name or a table, got {value!r}")
        try:
            find(value, key=root)
        except BadInput as error:
            raise complaints(*(_below(fault, root) for fault in error.faults)) from None
        return value

    return BeforeValidator(check)


def _below(fault: Fault, root: str) -> InitErrorDetails:
    key = (fault.key or root).removeprefix(root).strip(".")
    place = f"{fault.file}: " if fault.file else ""
    return complaint(f"{place}{fault.message}", *(key.split(".") if key else ()))


class FaultsTable(Table):
    """Shares of the requests that go wrong by chance: each is drawn by itself, and the same under every arm."""

    rate_limited: Share = 0.0
    """Answered 429 before the server looks at them."""
    server_error: Share = 0.0
    """Answered 5xx before the server looks at them."""
    cut: Share = 0.0
    """Whose stream breaks off, at any token before the last."""
    empty: Share = 0.0
    """Whose stream holds nothing."""

    def _check(self) -> None:
        together = sum(dict(self).values())
        if together > 1:
            raise complaints(complaint(f"the shares must add up to at most 1, got {together:g}"))

    def build(self) -> Faults:
        """Return the faults."""
        return Faults(**dict(self))


class ServerTable(Table):
    """One model server. Keys that are not set take the default of the engine's preset."""

    engine: Annotated[StrictStr, one_of("engine", ENGINES)]
    """Preset: the admission rule and the defaults of a real engine (``slotsim list engines``)."""
    model: Annotated[StrictStr | dict[str, Any], _found(find_model, "server.model")] | None = None
    """The model served (``slotsim list models``), or a table of its shape.
    Needed unless kv_tokens and step_time say what it decides."""
    gpu: Annotated[StrictStr | dict[str, Any], _found(find_gpu, "server.gpu")] | None = None
    """The GPU (``slotsim list gpus``), or a table of its figures; needed as the model is."""
    tensor_parallel: Positive = 1
    """GPUs that hold the model together."""
    admission: Annotated[StrictStr, one_of("admission rule", RULES)] | None = None
    """Admission rule: how much of the KV pool a request is charged."""
    kv_tokens: Positive | None = None
    """Size of the KV pool in tokens. When left out: what fits beside the weights."""
    memory_share: Annotated[Share, Field(gt=0)] | None = None
    """Share of the GPU's memory that the engine takes."""
    window: Positive | None = None
    """Longest prompt + output. When left out: the model's."""
    max_num_seqs: Positive | None = None
    """Most requests running at once."""
    max_num_batched_tokens: Positive | None = None
    """Token budget of a step; at least max_num_seqs, so that every running request advances in each step."""
    max_waiting: Annotated[Size, Field(ge=0)] | None = None
    """Most requests waiting; one more is refused; 0 refuses what cannot start at the next step.
    When left out: no limit."""
    block_tokens: Positive | None = None
    """Tokens in a block of the KV pool."""
    chunked_prefill: StrictBool | None = None
    """Whether a prompt may be computed in pieces."""
    watermark: Annotated[Share, Field(lt=1)] | None = None
    """Share of the pool that an admission leaves free (rules that know it)."""
    victim: Annotated[StrictStr, one_of("victim", VICTIMS)] | None = None
    """Whom a rule that lets requests grow preempts: last (who entered last), least-computed (who loses the fewest
    tokens), shortest-answer (who has generated least). When left out: the rule's own choice."""
    prefix_cache: StrictBool | None = None
    """Whether prompts share the KV of equal beginnings."""
    step_time: StepTimeTable | None = None
    """How long a step takes: the name of a model, or a table with its kind and constants."""
    faults: FaultsTable | None = None
    """What goes wrong by chance. When left out: nothing."""

    def _check(self) -> None:
        self.settle()

    def settle(self) -> Settled:
        """Return the server with the preset's defaults and everything computed filled in."""
        preset = ENGINES[self.engine]
        gpu = None if self.gpu is None else find_gpu(self.gpu)
        model = None if self.model is None else find_model(self.model)
        faults = [
            complaint(f"missing: needed for {need}", key, kind="missing")
            for key, value in (("model", model), ("gpu", gpu))
            if value is None and (need := self._needs(key))
        ]
        if faults:
            raise complaints(*faults)

        def own(key: str) -> Value:
            value = getattr(self, key)
            return getattr(preset, key) if value is None else value

        kv_tokens = self.kv_tokens or self._kv_tokens(gpu, model, own("memory_share"))
        settled = Settled(
            engine=preset,
            model=model,
            gpu=gpu,
            tensor_parallel=self.tensor_parallel,
            admission=own("admission"),
            kv_tokens=kv_tokens,
            window=self.window or (kv_tokens if model is None else model.window),
            max_num_seqs=own("max_num_seqs"),
            max_num_batched_tokens=own("max_num_batched_tokens"),
            max_waiting=self.max_waiting,
            block_tokens=own("block_tokens"),
            chunked_prefill=own("chunked_prefill"),
            watermark=own("watermark"),
            victim=self.victim,
            prefix_cache=bool(self.prefix_cache),
            step_time=self._step_time(gpu, model),
        )
        faults = list(settled.contradictions())
        if faults:
            raise complaints(*faults)
        return settled

    def _needs(self, key: str) -> str:
        """Return what the model or the GPU is needed for, an empty text if for nothing."""
        needs = {
            "kv_tokens, which is not set": self.kv_tokens is None,
            "step_time": key in self.step_table().given,
        }
        return " and ".join(need for need, holds in needs.items() if holds)

    def _kv_tokens(self, gpu: Gpu | None, model: Model | None, share: float) -> int:
        assert gpu is not None
        assert model is not None
        try:
            return kv_capacity_tokens(gpu, model, self.tensor_parallel, utilisation=share)
        except BadInput as error:
            raise complaints(*(complaint(fault.message, "model") for fault in error.faults)) from None

    def step_table(self) -> Choice:
        """Return the table of the step-time model; a server that names none has a roofline."""
        return self.step_time or _ROOFLINE.model_validate({"kind": "roofline"})

    def _step_time(self, gpu: Gpu | None, model: Model | None) -> StepTime:
        table = self.step_table()
        given = {"gpu": gpu, "model": model, "tensor_parallel": self.tensor_parallel}
        step_time: StepTime = table.build(**{key: given[key] for key in table.given})
        return step_time
