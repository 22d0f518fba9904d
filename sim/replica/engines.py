"""Presets: the admission rule and the defaults of real engines, each with its version and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Engine:
    """Defaults of one engine in one version; every one of them may be overridden in a study's ``[server]``.

    Attributes
    ----------
    name, version, source
        What it is and where its defaults were read.
    admission
        Name of the admission rule, a key of :data:`sim.replica.admission.RULES`.
    block_tokens
        Tokens in a block of the KV pool.
    max_num_seqs
        Most requests in the batch.
    max_num_batched_tokens
        Token budget of a step: decoding requests take one each, prompts the rest.
    chunked_prefill
        Whether a prompt may be computed in pieces; if not, one above the budget is computed as the step's only prompt.
    memory_share
        Share of the GPU memory that the engine takes for weights, activations and KV.
    watermark
        Share of the pool kept free at an admission (rules that know it).
    """

    name: str
    version: str
    source: str
    admission: str
    block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    memory_share: float
    watermark: float = 0.0


ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            name="trtllm-no-evict",
            version="1.x",
            source="TensorRT-LLM GUARANTEED_NO_EVICT, its default policy: capacityScheduler.cpp, LLM API defaults "
            "(tokens_per_block 32, max_batch_size 2048, max_num_tokens 8192, chunked prefill off, 0.9 of free memory)",
            admission="full",
            block_tokens=32,
            max_num_seqs=2048,
            max_num_batched_tokens=8192,
            chunked_prefill=False,
            memory_share=0.90,
        ),
        Engine(
            name="vllm-0.33",
            version="0.33.0",
            source="vLLM 0.33.0 V1: v1/core/sched/scheduler.py, engine/arg_utils.py (server on H100/H200: 8192 tokens, "
            "1024 sequences; block 16; watermark 0; gpu_memory_utilization 0.92)",
            admission="prompt",
            block_tokens=16,
            max_num_seqs=1024,
            max_num_batched_tokens=8192,
            chunked_prefill=True,
            memory_share=0.92,
        ),
        Engine(
            name="trtllm-max-utilization",
            version="1.x",
            source="TensorRT-LLM MAX_UTILIZATION: capacityScheduler.cpp; other defaults as trtllm-no-evict, with the "
            "chunked context that it is meant for",
            admission="onestep",
            block_tokens=32,
            max_num_seqs=2048,
            max_num_batched_tokens=8192,
            chunked_prefill=True,
            memory_share=0.90,
        ),
        Engine(
            name="trtllm-static-batch",
            version="1.x",
            source="TensorRT-LLM STATIC_BATCH: capacityScheduler.cpp; other defaults as trtllm-no-evict",
            admission="batch",
            block_tokens=32,
            max_num_seqs=2048,
            max_num_batched_tokens=8192,
            chunked_prefill=False,
            memory_share=0.90,
        ),
        Engine(
            name="tgi-3",
            version="3.x, since December 2024",
            source="text-generation-inference db931fc: router/src/validation.rs (1,024 tokens a stay), launcher "
            "defaults (128 concurrent requests, 4,096 prefill tokens), a block of one token with flashinfer, "
            "0.93 of the memory",
            admission="chunked",
            block_tokens=1,
            max_num_seqs=128,
            max_num_batched_tokens=4096,
            chunked_prefill=True,
            memory_share=0.93,
        ),
        Engine(
            name="tgi-2",
            version="2.x",
            source="text-generation-inference before pull request 2803: prompt + max_new_tokens, blocks of 16, "
            "launcher defaults as in tgi-3, no chunks",
            admission="full",
            block_tokens=16,
            max_num_seqs=128,
            max_num_batched_tokens=4096,
            chunked_prefill=False,
            memory_share=0.93,
        ),
        Engine(
            name="sglang-0.5",
            version="0.5.23",
            source="SGLang 0.5.23: managers/schedule_policy.py, new_token_ratio_tracker.py, schedule_batch.py; on H100 "
            "and H200 chunks of 8,192 tokens and a decode graph of 256 requests, page size 1; memory fraction 0.88",
            admission="estimated",
            block_tokens=1,
            max_num_seqs=256,
            max_num_batched_tokens=8192,
            chunked_prefill=True,
            memory_share=0.88,
        ),
        Engine(
            name="llama.cpp",
            version="0.4",
            source="llama-server: four slots of the whole context each (-np), logical batches of 2,048 tokens (-b)",
            admission="slots",
            block_tokens=1,
            max_num_seqs=4,
            max_num_batched_tokens=2048,
            chunked_prefill=True,
            memory_share=0.90,
        ),
        Engine(
            name="ollama",
            version="fb30760",
            source="ollama docs/faq.mdx, llm/llama_server.go: OLLAMA_NUM_PARALLEL 1, batches of 512 tokens; set "
            "max_waiting = 512 for its queue",
            admission="slots",
            block_tokens=1,
            max_num_seqs=1,
            max_num_batched_tokens=512,
            chunked_prefill=True,
            memory_share=0.90,
        ),
        Engine(
            name="orca",
            version="OSDI 2022",
            source="Orca, algorithm 1: a slot a token, prompt + max_tokens reserved until the request ends; pool and "
            "batch as the vLLM paper (SOSP 2023) sets it up",
            admission="full",
            block_tokens=1,
            max_num_seqs=256,
            max_num_batched_tokens=2560,
            chunked_prefill=False,
            memory_share=0.90,
        ),
    )
}
"""Every preset by the name that studies use."""
