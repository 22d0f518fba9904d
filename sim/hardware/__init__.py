"""GPUs and models as data: what they hold, move and compute, and how many tokens of KV fit beside the weights."""

from __future__ import annotations

from sim.hardware.capacity import kv_capacity_tokens
from sim.hardware.catalogue import GPUS, MODELS, find_gpu, find_model, read_config
from sim.hardware.gpu import BYTES, Gpu
from sim.hardware.model import Model

__all__ = ["BYTES", "GPUS", "MODELS", "Gpu", "Model", "find_gpu", "find_model", "kv_capacity_tokens", "read_config"]
