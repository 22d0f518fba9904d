"""Measured runs of a real server: replayed through the simulated one, and compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sim.hardware import Gpu, Model, find_gpu, find_model, kv_capacity_tokens
from sim.hardware.capacity import activation_bytes
from sim.loadtest import Load, Passage, open_loop
from sim.replica.admission import Prompt
from sim.replica.server import Server
from sim.steptime import StepTime
from workloads.errors import BadInput, Fault, expect_folder, unreadable

STAMPS = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
"""A request's way through the server, seconds on one clock, in this order."""

UTILISATION = 0.9
"""Share of the memory that vLLM takes where a run does not say: its ``gpu_memory_utilization`` up to version 0.19."""


@dataclass(frozen=True, slots=True)
class Run:
    """A measured run: what was asked of which server, and when it answered.

    Attributes
    ----------
    folder
        Where it was read.
    passage
        The requests, in the order of their arrival.
    model
        What was served.
    version
        Of the engine.
    tensor_parallel, max_num_seqs, max_num_batched_tokens
        How it was started; None where the run does not say.
    kv_tokens, block_tokens
        The pool, where the server's own block count was recorded.
    utilisation
        Share of the memory it took.
    date
        When it ran.
    kv, weights
        Number types of keys and values, and of the weights (None: as published).
    chunked_prefill
        Whether prompts were computed in pieces.
    """

    folder: Path
    passage: Passage
    model: Model
    version: str
    tensor_parallel: int
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    kv_tokens: int | None
    block_tokens: int
    utilisation: float
    date: str
    kv: str
    weights: str | None
    chunked_prefill: bool


def read_passage(path: Path) -> Passage:
    """Read a request log: JSON lines with ``input_toks``, ``output_toks`` and the time stamps `STAMPS`.

    Raises
    ------
    BadInput
        The file cannot be read or is empty, a value is missing or no number, or time runs backwards: all faults with
        their lines.
    """
    faults: list[Fault] = []
    rows: list[list[float]] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(unreadable(error, path)) from None
    for number, text in enumerate(lines, 1):
        if text.strip():
            row = _row(text, path, number, faults)
            if row is not None:
                rows.append(row)
    if not rows and not faults:
        faults.append(Fault("has no requests", path))
    if faults:
        raise BadInput(*faults)
    table = np.array(rows)
    table = table[np.argsort(table[:, 2], kind="stable")]
    tokens, stamps = table[:, :2].astype(np.int64), table[:, 2:] - table[0, 2]
    return Passage(*tokens.T, *stamps.T)


def _row(text: str, path: Path, number: int, faults: list[Fault]) -> list[float] | None:
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        faults.append(Fault("is no JSON object", path, number))
        return None
    before = len(faults)
    for key in ("input_toks", "output_toks"):
        value = record.get(key)
        if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            faults.append(Fault(_said(value, "a whole number >= 1"), path, number, key))
    for key in STAMPS:
        value = record.get(key)
        if not (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)):
            faults.append(Fault(_said(value, "seconds"), path, number, key))
    if len(faults) > before:
        return None
    for earlier, later in pairwise(STAMPS):
        if record[later] < record[earlier]:
            message = f"is {record[earlier] - record[later]:.6g} s before {earlier}: time runs backwards"
            faults.append(Fault(message, path, number, later))
            return None
    return [float(record[key]) for key in ("input_toks", "output_toks", *STAMPS)]


def _said(value: object, allowed: str) -> str:
    return f"is missing: {allowed}" if value is None else f"is {value!r}: {allowed}"


def read_run(folder: str | Path, model: Model | None = None) -> Run:
    """Read a measured run: ``requests.jsonl`` and ``meta.json`` with the engine's arguments (``engine_kwargs``).

    Parameters
    ----------
    folder
        Where it is.
    model
        What was served; None: what the run names, from the catalogue.

    Raises
    ------
    BadInput
        A file is missing or cannot be used, or the run is of several replicas or pipeline stages: all faults of both.
    """
    folder = Path(folder)
    faults: list[Fault] = []
    expect_folder(folder, "meta.json and requests.jsonl")
    meta = _meta(folder / "meta.json", faults)
    passage = None
    try:
        passage = read_passage(folder / "requests.jsonl")
    except BadInput as error:
        faults += error.faults
    arguments, cache = meta.table("engine_kwargs"), meta.table("kv_cache")
    name = arguments.values.get("model") or meta.values.get("model")
    if meta.values and model is None and not isinstance(name, str):
        faults.append(Fault("is missing: the model that was served", meta.path, None, "engine_kwargs.model"))
    elif meta.values and model is None:
        try:
            model = find_model(str(name), file=meta.path, key="engine_kwargs.model")
        except BadInput as error:
            faults += [replace(fault, message=f"{fault.message}; or give --model") for fault in error.faults]
    for key in ("data_parallel_size", "pipeline_parallel_size"):
        if (several := arguments.whole(key)) and several > 1:
            message = f"is {several}: only runs of one replica in one pipeline stage are replayed"
            faults.append(Fault(message, meta.path, None, f"engine_kwargs.{key}"))
    kv_cache_dtype = str(arguments.values.get("kv_cache_dtype") or "auto")
    if kv_cache_dtype not in ("auto", "bfloat16", "float16") and not kv_cache_dtype.startswith("fp8"):
        message = f"is {kv_cache_dtype!r}: auto, bfloat16, float16 or a kind of fp8"
        faults.append(Fault(message, meta.path, None, "engine_kwargs.kv_cache_dtype"))
    block = cache.whole("block_size") or 16
    blocks, kv_tokens = cache.whole("num_gpu_blocks"), cache.whole("num_kv_tokens")
    tensor_parallel = arguments.whole("tensor_parallel_size") or 1
    seqs, budget = arguments.whole("max_num_seqs"), arguments.whole("max_num_batched_tokens")
    utilisation = arguments.share("gpu_memory_utilization") or cache.share("gpu_memory_utilization") or UTILISATION
    if faults or passage is None or model is None:
        raise BadInput(*faults)
    return Run(
        folder=folder,
        passage=passage,
        model=model,
        version=str(meta.values.get("vllm_version") or ""),
        tensor_parallel=tensor_parallel,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        kv_tokens=kv_tokens if blocks is None else blocks * block,
        block_tokens=block,
        utilisation=utilisation,
        date=str(meta.values.get("started_at") or "")[:10],
        kv="fp8" if kv_cache_dtype.startswith("fp8") else "bf16",
        weights="fp8" if "fp8" in str(arguments.values.get("quantization")) else None,
        chunked_prefill=arguments.values.get("enable_chunked_prefill") is not False,
    )


@dataclass(frozen=True, slots=True)
class _Meta:
    """A JSON object of ``meta.json``; what is wrong with a value goes to the faults."""

    values: Mapping[str, Any]
    path: Path
    faults: list[Fault]
    place: str = ""

    def table(self, key: str) -> _Meta:
        value = self.values.get(key) or {}
        if not isinstance(value, dict):
            self.faults.append(Fault(f"is {value!r}: an object", self.path, None, key))
            value = {}
        return _Meta(value, self.path, self.faults, f"{key}.")

    def whole(self, key: str) -> int | None:
        value = self.values.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        self.faults.append(Fault(f"is {value!r}: a whole number >= 1", self.path, None, f"{self.place}{key}"))
        return None

    def share(self, key: str) -> float | None:
        value = self.values.get(key)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1):
            return value
        self.faults.append(Fault(f"is {value!r}: a share above 0, at most 1", self.path, None, f"{self.place}{key}"))
        return None


def _meta(path: Path, faults: list[Fault]) -> _Meta:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
        if isinstance(found, dict) and found:
            return _Meta(found, path, faults)
        faults.append(Fault("is no JSON object with the run's engine_kwargs", path))
    except OSError as error:
        faults.append(unreadable(error, path))
    except ValueError as error:
        faults.append(Fault(f"is no JSON: {error}", path))
    return _Meta({}, path, faults)


def gpu_of(*paths: str | Path) -> Gpu | None:
    """Return the GPU that a folder on the way to one of the paths is named after, None if there is none."""
    for path in paths:
        for part in reversed(Path(path).resolve().parts):
            try:
                return find_gpu(part)
            except BadInput:
                continue
    return None


def model_of(profile: str | Path) -> Model | None:
    """Return the model that a folder on the way to a profile is named after, None if there is none."""
    for part in reversed(Path(profile).resolve().parts):
        try:
            return find_model(part)
        except BadInput:
            continue
    return None


def degree_of(profile: str | Path) -> int | None:
    """Return the tensor parallelism that a profile's folder is named after (``tp2``), None if it is not."""
    match = re.fullmatch(r"tp(\d+)", Path(profile).resolve().name)
    return int(match[1]) if match else None


def server_of(
    run: Run,
    step_time: StepTime,
    gpu: Gpu | None,
    *,
    kv_tokens: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
) -> Server:
    """Return the server on which a run is replayed; what is not given is the run's own.

    The pool is `kv_tokens`, else the server's recorded block count, else what the GPU's memory leaves.

    Raises
    ------
    BadInput
        Something is said nowhere, or a request of the run does not fit into the pool.
    """
    path = run.folder / "meta.json"
    seqs = max_num_seqs or run.max_num_seqs
    budget = max_num_batched_tokens or run.max_num_batched_tokens
    given = {"max_num_seqs": seqs, "max_num_batched_tokens": budget}
    faults = [
        Fault(f"is missing: say it with --{key.replace('_', '-')}", path, None, f"engine_kwargs.{key}")
        for key, value in given.items()
        if value is None
    ]
    pool = kv_tokens or run.kv_tokens
    if pool is None and gpu is None:
        faults.append(Fault("the size of the KV pool is unknown: give --kv-tokens, or --gpu to compute it", path))
    elif pool is None and gpu is not None:
        try:
            activations = activation_bytes(run.model, run.tensor_parallel, budget or 2_048, seqs or 256)
            pool = kv_capacity_tokens(
                gpu,
                run.model,
                run.tensor_parallel,
                utilisation=run.utilisation,
                weights=run.weights,
                kv=run.kv,
                activations=activations,
            )
        except BadInput as error:
            faults += error.faults
    window = int((run.passage.prompt_tokens + run.passage.output_tokens).max())
    if pool is not None and pool < window:
        faults.append(
            Fault(f"a request of {window:,} tokens does not fit into a KV pool of {pool:,}: see --kv-tokens", path)
        )
    if seqs is not None and budget is not None and budget < seqs:
        faults.append(Fault(f"max_num_batched_tokens = {budget} must be at least max_num_seqs = {seqs}", path))
    if faults or pool is None or seqs is None or budget is None:
        raise BadInput(*faults)
    return Server(
        rule=Prompt(),
        step_time=step_time,
        kv_tokens=pool,
        window=window,
        block_tokens=run.block_tokens,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        chunked_prefill=run.chunked_prefill,
    )


def replay(passage: Passage, server: Server) -> tuple[Passage, int]:
    """Return how the same requests, arriving as they did, pass through the simulated server; and its preemptions."""
    load = Load(passage.prompt_tokens, passage.output_tokens, passage.output_tokens)
    outcome = open_loop(server, load, passage.queued_s)
    return outcome.passage, outcome.preemptions


def compare(measured: Passage, simulated: Passage) -> dict[str, dict[str, float]]:
    """Return each metric measured and simulated, and the relative error ``simulated / measured - 1``."""
    ours = simulated.metrics()
    return {
        name: {"measured": value, "simulated": ours[name], "error": ours[name] / value - 1.0}
        for name, value in measured.metrics().items()
    }
