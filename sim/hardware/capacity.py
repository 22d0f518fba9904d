"""How many tokens of keys and values fit on the GPUs beside the weights."""

from __future__ import annotations

from sim.hardware.gpu import Gpu
from sim.hardware.model import Model
from workloads.errors import BadInput, Fault

GIB = 2**30


def kv_capacity_tokens(
    gpu: Gpu,
    model: Model,
    tensor_parallel: int = 1,
    *,
    utilisation: float = 0.92,
    weights: str | None = None,
    kv: str = "bf16",
) -> int:
    """Return the tokens whose keys and values fit beside the weights.

    ``(memory * utilisation - weights - activations - other) / bytes per token``, on each GPU.

    Parameters
    ----------
    gpu, model, tensor_parallel
        What the model runs on.
    utilisation
        Share of the memory that the server may take; 0.92 is vLLM 0.33's default.
    weights, kv
        Number types; None means the weights as published.

    Raises
    ------
    BadInput
        The weights leave no room.

    Notes
    -----
    Activations 5.5 GiB for a dense model and 8.0 GiB for a mixture of experts, shared by the GPUs, and 0.15 GiB (one
    GPU) or 0.6 GiB (each of several) outside the framework's allocator: the profile of the open simulator BLIS
    (inference-sim f90a1e3, sim/latency/kv_capacity.go). A server prints its own block count at start; where that is
    known, it goes before this estimate.
    """
    reserved = (8.0 if model.experts else 5.5) * GIB / tensor_parallel + (0.15 if tensor_parallel == 1 else 0.6) * GIB
    free = gpu.memory * utilisation - model.weight_bytes(weights) / tensor_parallel - reserved
    tokens = int(free / model.kv_bytes_per_token(kv, tensor_parallel))
    if tokens < 1:
        need, have = (model.weight_bytes(weights) / tensor_parallel + reserved) / GIB, gpu.memory * utilisation / GIB
        where = f"{tensor_parallel} x {gpu.name}: needs {need:.1f} of {have:.1f} GiB a GPU"
        raise BadInput(Fault(f"{model.name} leaves no room for keys and values on {where}", key="server.model"))
    return tokens
