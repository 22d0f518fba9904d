"""What a GPU holds, moves and computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

BYTES: Mapping[str, float] = MappingProxyType({"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5})
"""Bytes of a number, by its type."""

_COMPUTED_AS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    # a GPU without units for a type computes in the next one: an A100 runs fp8 weights in bf16, an H100 fp4 ones in fp8
    {
        "bf16": ("bf16",),
        "fp8": ("fp8", "bf16"),
        "int8": ("int8", "bf16"),
        "fp4": ("fp4", "fp8", "bf16"),
        "int4": ("bf16",),
    }
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU.

    Attributes
    ----------
    name, title
        As studies and as people write it.
    flops
        Dense peak of the matrix units by number type, FLOP/s.
    memory_bandwidth, memory
        bytes/s and bytes.
    link_bandwidth
        To another GPU of the same server, one direction, bytes/s.
    source
        Where the figures are from.
    aliases
        Other names it is known by.
    """

    name: str
    title: str
    flops: Mapping[str, float]
    memory_bandwidth: float
    memory: float
    link_bandwidth: float
    source: str
    aliases: tuple[str, ...] = ()

    def peak_flops(self, dtype: str) -> float:
        """Return the peak at which numbers of this type are computed: in a wider type, if it has no units for them."""
        return next(self.flops[t] for t in _COMPUTED_AS[dtype] if t in self.flops)
