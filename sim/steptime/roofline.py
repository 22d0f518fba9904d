"""Step time from what a step computes and moves on given hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.hardware import BYTES, Gpu, Model
from sim.steptime.base import FOREVER, Chunk, Provenance, Segment, upper


@dataclass(frozen=True, slots=True)
class Roofline:
    """Two roofs, because two kinds of kernels run one after the other, and the overheads between them.

    The matrix products of a step with `n` tokens take the longer of computing ``2 * parameters * n`` FLOPs and reading
    the weights once (of a mixture of experts, those its tokens visit). Attention takes the longer of computing each
    token's pairs with its context and reading the stored keys and values. Tensor parallelism divides both and adds two
    all-reduces a layer.

    Attributes
    ----------
    gpu, model, tensor_parallel
        What runs on what.
    weights, kv
        Number types of weights (None: as published) and of keys and values.
    mfu
        Share of the peak FLOP/s that matrix products reach. 0.6: GEMM medians of public kernel profiles at 500 to
        2,000 tokens (vidur data/profiling: .44-.62 on H100, .54-.67 on A100).
    attention_mfu
        The same for attention over prompts. 0.45: whole prefills on H100 (BLIS hardware_config, inference-sim f90a1e3).
    bandwidth_efficiency
        Share of the memory bandwidth reached. 0.8: the same profiles at 8 tokens (.84 on H100); aiconfigurator
        (095f58a) uses 0.8 too.
    link_efficiency, allreduce_s
        Share of the link's bandwidth that an all-reduce of ``2 (G - 1) / G`` messages reaches, and what the smallest
        one takes.
        0.35 and 5 us: vLLM 0.14's all-reduce on 2 to 8 A100 and H100 (aiconfigurator op tables, 095f58a).
    layer_s, request_s, step_s
        Overheads a layer (launching kernels), a request and a step: 32.1 us, 4.42 us, 126 us, BLIS's regression over
        vLLM runs (inference-sim f90a1e3, defaults.yaml, beta 5 to 7).
    draft_tokens, acceptance, draft_share
        Speculative decoding: tokens that a draft proposes in each step (0: none), the chance that one is accepted if
        those before it were, and what proposing one costs, as a share of the step that checks them. A step that checks
        `d` tokens yields ``(1 - a^(d + 1)) / (1 - a)`` on average (Leviathan et al. 2023); a request's token costs that
        share of it. Nobody's constants: measure them.
    """

    gpu: Gpu
    model: Model
    tensor_parallel: int = 1
    weights: str | None = None
    kv: str = "bf16"
    mfu: float = 0.6
    attention_mfu: float = 0.45
    bandwidth_efficiency: float = 0.8
    link_efficiency: float = 0.35
    allreduce_s: float = 5e-6
    layer_s: float = 32.1e-6
    request_s: float = 4.42e-6
    step_s: float = 126e-6
    draft_tokens: int = 0
    acceptance: float = 0.0
    draft_share: float = 0.0

    _alone_s: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)  # by tokens
    _fixed_s: float = field(init=False, repr=False, compare=False)  # every step
    _token_s: float = field(init=False, repr=False, compare=False)  # all-reduces, a token
    _matmul_s: float = field(init=False, repr=False, compare=False)  # computing, a token
    _head_s: float = field(init=False, repr=False, compare=False)  # computing the output head, a request
    _weights_s: float = field(init=False, repr=False, compare=False)  # reading what every step reads
    _experts_s: float = field(init=False, repr=False, compare=False)  # reading all routed experts
    _missed: float = field(init=False, repr=False, compare=False)  # share of the experts that one token does not visit
    _decode_pair_s: float = field(init=False, repr=False, compare=False)  # computing, a decode's pair
    _prompt_pair_s: float = field(init=False, repr=False, compare=False)  # computing, a prompt token's pair
    _kv_s: float = field(init=False, repr=False, compare=False)  # reading or writing one token's keys and values
    _token_share: float = field(init=False, repr=False, compare=False)  # of a checking step, that one token costs

    def __post_init__(self) -> None:
        """Compute what a step costs a token, once.

        Raises
        ------
        ValueError
            A constant is out of its range.
        """
        shares = ("mfu", "attention_mfu", "bandwidth_efficiency", "link_efficiency")
        overheads = ("allreduce_s", "layer_s", "request_s", "step_s")
        number = {word: getattr(self, word) for word in (*shares, *overheads)}
        wrong = [f"{w}: must be above 0 and at most 1, got {number[w]!r}" for w in shares if not 0.0 < number[w] <= 1.0]
        wrong += [f"{w}: must be seconds >= 0, got {number[w]!r}" for w in overheads if not 0.0 <= number[w] < 10.0]
        types = [("weights", self.weights or self.model.weights), ("kv", self.kv)]
        wrong += [f"{w}: must be one of {', '.join(BYTES)}, got {kind!r}" for w, kind in types if kind not in BYTES]
        if not (0.0 <= self.acceptance < 1.0):
            wrong.append(f"acceptance: must be at least 0 and below 1, got {self.acceptance!r}")
        if not (0.0 <= self.draft_share <= 1.0):
            wrong.append(f"draft_share: must be from 0 to 1, got {self.draft_share!r}")
        if self.draft_tokens < 0:
            wrong.append(f"draft_tokens: must be a whole number >= 0, got {self.draft_tokens}")
        if self.tensor_parallel < 1:
            wrong.append(f"tensor_parallel: must be a whole number >= 1, got {self.tensor_parallel}")
        if wrong:
            raise ValueError("; ".join(wrong))
        gpu, model, gpus = self.gpu, self.model, self.tensor_parallel
        dtype = self.weights or model.weights
        peak = gpus * gpu.peak_flops(dtype) * self.mfu
        attention = gpus * gpu.peak_flops("bf16") * self.attention_mfu
        bandwidth = gpu.memory_bandwidth * self.bandwidth_efficiency
        visited = model.experts_per_token / model.experts if model.experts else 0.0
        hops = 2 * (gpus - 1) / gpus
        reduces = 2 * model.layers if gpus > 1 else 0
        values = {
            "fixed": self.step_s + self.layer_s * model.layers + self.allreduce_s * reduces,
            "token": reduces * hops * model.hidden * 2 / (gpu.link_bandwidth * self.link_efficiency),
            "matmul": 2 * (model.common_parameters + visited * model.routed_parameters) / peak,
            "head": 2 * model.head_parameters / peak,
            "weights": (model.common_parameters + model.head_parameters) * BYTES[dtype] / gpus / bandwidth,
            "experts": model.routed_parameters * BYTES[dtype] / gpus / bandwidth,
            "decode_pair": model.attention_flops_per_pair(absorbed=True) / attention,
            "prompt_pair": model.attention_flops_per_pair(absorbed=False) / attention,
            "kv": model.kv_bytes_per_token(self.kv, gpus) / bandwidth,
        }
        for word, value in values.items():
            object.__setattr__(self, f"_{word}_s", value)
        object.__setattr__(self, "_missed", 1.0 - visited)
        drafts = self.draft_tokens
        made = (1.0 - self.acceptance ** (drafts + 1)) / (1.0 - self.acceptance)
        object.__setattr__(self, "_token_share", (1.0 + drafts * self.draft_share) / made)

    @property
    def provenance(self) -> Provenance:
        """Where the constants are from."""
        words = (
            "mfu",
            "attention_mfu",
            "bandwidth_efficiency",
            "link_efficiency",
            "allreduce_s",
            "layer_s",
            "request_s",
            "step_s",
            *(("draft_tokens", "acceptance", "draft_share") if self.draft_tokens else ()),
        )
        return Provenance(
            kind="roofline",
            source=f"GPU: {self.gpu.source}; model: {self.model.source}; efficiencies and overheads: docs/steptime.md",
            engine="vLLM",
            version="0.14 (all-reduce)",
            hardware=f"{self.tensor_parallel} x {self.gpu.title}",
            date="2026-11",
            constants={word: getattr(self, word) for word in words},
        )

    def segment(self, decodes: int, context: int, chunks: Sequence[Chunk] = ()) -> Segment:
        """Return ``(base, slope, steps)`` as `StepTime` says; it breaks where attention changes its roof."""
        if not chunks and not self.draft_tokens and self._kv_s >= self._decode_pair_s:  # most steps: memory-bound
            alone = self._alone_s.get(decodes)
            if alone is None:
                alone = self._remembered_s(decodes, decodes)
            return alone + self._kv_s * (context + decodes), self._kv_s * decodes, FOREVER
        if not (self.draft_tokens and decodes):
            return self._step(decodes, context, chunks, 1)
        each = 1 + self.draft_tokens
        alone, alone_slope, steps = self._step(decodes, context, (), each)
        if not chunks:
            return self._token_share * alone, self._token_share * alone_slope, steps
        base, slope, valid = self._step(decodes, context, chunks, each)
        saved = 1.0 - self._token_share
        return base - saved * alone, slope - saved * alone_slope, min(steps, valid)

    def _step(self, decodes: int, context: int, chunks: Sequence[Chunk], each: int) -> Segment:
        """Return the segment of steps that compute `each` tokens of every decoding request."""
        tokens = rows = decodes * each
        requests = decodes
        compute, compute_slope = self._decode_pair_s * context * each, self._decode_pair_s * tokens
        stored, stored_slope = context, decodes
        if chunks:
            rows += len(chunks)
            requests += len(chunks)
            for size, past in chunks:
                tokens += size
                rise = self._prompt_pair_s * size
                compute += rise * (past + size / 2)
                compute_slope += rise * size
                stored += past
                stored_slope += size
            base = self._products_s(tokens, rows, requests)
        else:
            alone = self._alone_s.get(tokens)
            base = alone if alone is not None else self._remembered_s(tokens, requests)
        memory, memory_slope = self._kv_s * (stored + tokens), self._kv_s * stored_slope
        if memory >= compute and memory_slope >= compute_slope:
            return base + memory, memory_slope, FOREVER
        if compute >= memory and compute_slope >= memory_slope:
            return base + compute, compute_slope, FOREVER
        attention, slope, steps = upper((memory, memory_slope), (compute, compute_slope))
        return base + attention, slope, steps

    def _products_s(self, tokens: int, rows: int, requests: int) -> float:
        """Return what a step takes beside attention: matrix products, all-reduces, overheads."""
        weights = self._weights_s
        if self._experts_s:
            weights += self._experts_s * (1.0 - self._missed**tokens)
        matmul = self._matmul_s * tokens + self._head_s * rows
        products = matmul if matmul > weights else weights
        return self._fixed_s + self._token_s * tokens + self.request_s * requests + products

    def _remembered_s(self, tokens: int, requests: int) -> float:
        """Return the same for a step of decoding requests alone, and remember it: most steps are such."""
        value = self._alone_s[tokens] = self._products_s(tokens, tokens, requests)
        return value
