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
    activations: float | None = None,
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
    activations
        Bytes that a step's intermediate results take on each GPU, where the server's limits are known
        (`activation_bytes`).

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
    if activations is None:
        activations = (8.0 if model.experts else 5.5) * GIB / tensor_parallel
    reserved = activations + (0.15 if tensor_parallel == 1 else 0.6) * GIB
    free = gpu.memory * utilisation - model.weight_bytes(weights) / tensor_parallel - reserved
    tokens = int(free / model.kv_bytes_per_token(kv, tensor_parallel))
    if tokens < 1:
        need, have = (model.weight_bytes(weights) / tensor_parallel + reserved) / GIB, gpu.memory * utilisation / GIB
        where = f"{tensor_parallel} x {gpu.name}: needs {need:.1f} of {have:.1f} GiB a GPU"
        raise BadInput(Fault(f"{model.name} leaves no room for keys and values on {where}", key="server.model"))
    return tokens


def activation_bytes(model: Model, tensor_parallel: int, max_num_batched_tokens: int, max_num_seqs: int) -> float:
    """Return the bytes of a step's intermediate results on one GPU, at a server's limits.

    The widest moment of a layer in bf16 - four rows of the hidden width (residual, norm, attention in and out), the two
    halves of the gated block and their product - for every token; and for every request its logits in bf16, in fp32 and
    once more while sampling.
    """
    visited = model.experts_per_token * model.expert_ffn + model.shared_experts * model.expert_ffn
    width = 4 * model.hidden + 3 * max(model.ffn, visited) / tensor_parallel
    return max_num_batched_tokens * width * 2 + max_num_seqs * model.vocabulary * (2 + 4 + 4)
