"""Step time composed from measured kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Literal

from sim.hardware import Model
from sim.steptime.base import Chunk, Provenance, Segment
from sim.steptime.kernels import Kernels, read_kernels


@dataclass(frozen=True, slots=True)
class Profile:
    """A step as the sum of its kernels, a constant, and the all-reduces that a kernel profile does not hold.

    Several prompt pieces in one step are read from the table as one piece with as many pairs of tokens: of length
    ``sqrt(sum(tokens^2))`` after ``sum(tokens * past) / length`` others.

    Attributes
    ----------
    path
        Folder of the profile (`read_kernels`).
    model
        Whose layers and width they are.
    tensor_parallel
        GPUs that share a layer.
    step_s
        What a step costs beside its kernels (the host), seconds. Nobody's constant: calibrate it.
    allreduce_gbps
        Effective speed of an all-reduce, GB/s: two a layer, of tokens x hidden x 2 bytes. Needed with more than one
        GPU.
    allreduce_s
        What an all-reduce takes however short it is, seconds. NCCL expects 8.4 + 2 (G - 1) 5.7 us of a ring of G GPUs
        on PCIe, protocol Simple: 19.8 us between two (NVIDIA/nccl 01afd20, src/graph/tuning.cc).
    mixed
        Attention of a step with prompts and decodes: ``"sum"`` of both alone, or ``"measured"`` together. The second
        holds for one step at a time, because the table is no straight line where both contexts grow.
    hardware, engine, version, date
        Of the measurement, for reports.
    """

    path: str
    model: Model
    tensor_parallel: int = 1
    step_s: float = 0.0
    allreduce_gbps: float | None = None
    allreduce_s: float = 0.0
    mixed: Literal["sum", "measured"] = "sum"
    hardware: str = ""
    engine: str = ""
    version: str = ""
    date: str = ""

    kernels: Kernels = field(init=False, repr=False, compare=False)
    _token_s: float = field(init=False, repr=False, compare=False)
    _step_s: float = field(init=False, repr=False, compare=False)
    _fixed: dict[tuple[int, int], float] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Read the tables and compute what the all-reduces cost a token and a step.

        Raises
        ------
        ValueError
            A constant is out of its range, or the link's speed is missing.
        BadInput
            The profile cannot be used.
        """
        speed = self.allreduce_gbps
        wrong = {
            f"step_s: must be seconds >= 0, got {self.step_s!r}": not 0.0 <= self.step_s < float("inf"),
            f"allreduce_gbps: must be GB/s above 0, got {speed!r}": speed is not None
            and not 0.0 < speed < float("inf"),
            f"allreduce_gbps: needed with {self.tensor_parallel} GPUs": speed is None and self.tensor_parallel > 1,
            f"allreduce_s: must be seconds >= 0, got {self.allreduce_s!r}": not 0.0 <= self.allreduce_s < float("inf"),
            f"mixed: must be 'sum' or 'measured', got {self.mixed!r}": self.mixed not in ("sum", "measured"),
        }
        if any(wrong.values()):
            raise ValueError("; ".join(message for message, holds in wrong.items() if holds))
        reduces = 2 * self.model.layers if self.tensor_parallel > 1 else 0
        object.__setattr__(self, "_token_s", reduces * self.model.hidden * 2 / (speed * 1e9) if speed else 0.0)
        object.__setattr__(self, "_step_s", self.step_s + reduces * self.allreduce_s)
        object.__setattr__(self, "kernels", read_kernels(self.path, self.model, self.tensor_parallel))

    @property
    def provenance(self) -> Provenance:
        """Where the constants are from."""
        constants = {"step_s": self.step_s}
        if self.allreduce_gbps:
            constants |= {"allreduce_gbps": self.allreduce_gbps, "allreduce_s": self.allreduce_s}
        source = f"kernel profile {self.path}"
        return Provenance("profile", source, self.engine, self.version, self.hardware, self.date, constants)

    def segment(self, decodes: int, context: int, chunks: Sequence[Chunk] = ()) -> Segment:
        """Return ``(base, slope, steps)`` as `StepTime` says; it breaks at the points of the grid."""
        layers, attention = self.model.kv_layers, self.kernels.attention
        stored = context / decodes if decodes else 0.0
        if not chunks:
            seconds, rise, steps = attention.decodes(decodes).line(stored)
            return self._other(decodes, decodes) + layers * seconds, layers * rise, steps
        tokens, squares, pasts = decodes, 0, 0
        for size, past in chunks:
            tokens += size
            squares += size * size
            pasts += size * past
        length = sqrt(squares)
        other = self._other(tokens, decodes + len(chunks))
        if decodes and self.mixed == "measured":
            return other + layers * attention.both(length, pasts / length, decodes, stored), 0.0, 1
        seconds, rise, steps = attention.prompt(length, pasts / length)
        if decodes:
            more, faster, valid = attention.decodes(decodes).line(stored)
            seconds, rise, steps = seconds + more, rise + faster, min(steps, valid)
        return other + layers * seconds, layers * rise, steps

    def _other(self, tokens: int, requests: int) -> float:
        """Return the seconds of everything but attention."""
        seconds = self._fixed.get((tokens, requests))
        if seconds is None:
            own = self._step_s + self._token_s * tokens
            seconds = own + self.kernels.tokens(tokens) + self.kernels.requests(requests)
            self._fixed[tokens, requests] = seconds
        return seconds
