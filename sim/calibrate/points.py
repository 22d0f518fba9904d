"""Load-test results as points: a concurrency, lengths, and the TTFT and TPOT measured there."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.hardware import BYTES, Gpu, Model, find_gpu, find_model
from workloads.errors import BadInput, Fault, did_you_mean, unreadable


@dataclass(frozen=True, slots=True)
class Point:
    """One load test.

    Attributes
    ----------
    concurrency
        Requests in flight.
    prompt_tokens, output_tokens
        Mean lengths.
    ttft_s, tpot_s
        Mean latencies; `ttft_s` is None where it was not measured.
    gpu, model, tensor_parallel, weights
        What served it; None where nobody said.
    place
        Where it was read: file, and line or test.
    """

    concurrency: int
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None
    tpot_s: float
    gpu: Gpu | None = None
    model: Model | None = None
    tensor_parallel: int = 1
    weights: str | None = None
    place: str = ""


COLUMNS: Mapping[str, tuple[str, ...]] = {
    "concurrency": ("concurrency", "max_concurrency", "batch_size"),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "isl", "input_len"),
    "output_tokens": ("output_tokens", "osl", "output_len"),
    "ttft": ("ttft", "ttft_mean", "mean_ttft", "silicon_ttft"),
    "tpot": ("tpot", "tpot_mean", "mean_tpot", "silicon_tpot", "itl", "mean_itl"),
    "gpu": ("gpu", "system", "hardware"),
    "model": ("model", "model_path"),
    "tensor_parallel": ("tensor_parallel", "tp", "tp_size", "tensor_parallel_size"),
    "weights": ("weights", "precision", "gemm_quant_mode"),
}
"""Names under which a table may hold each quantity; times end in ``_s`` or ``_ms``."""

UNITS = {"_s": 1.0, "_ms": 1e-3}

NUMBER_TYPES: Mapping[str, str] = {"bfloat16": "bf16", "float16": "bf16", "fp16": "bf16", "fp8_block": "fp8"}
"""Other names of number types."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller says of all points; a table's own columns go before it."""

    gpu: Gpu | None = None
    model: Model | None = None
    tensor_parallel: int = 1
    weights: str | None = None


def read_points(
    paths: Sequence[str | Path], given: Given = Given(), where: Mapping[str, str] | None = None
) -> list[Point]:
    """Read load tests: tables (CSV) and result files (JSON) of ``vllm bench serve``, AIPerf and GuideLLM.

    Parameters
    ----------
    paths
        Files, and folders of such files.
    given
        What is said of all points.
    where
        Rows of tables to take: the values of some columns. An empty text is an empty cell.

    Raises
    ------
    BadInput
        A file is of none of these kinds, or a value is missing or impossible: all faults with their places.
    """
    faults: list[Fault] = []
    points: list[Point] = []
    for path in _files(paths, faults):
        read = _table if path.name.endswith((".csv", ".csv.gz")) else _result
        try:
            points += read(path, given, where or {})
        except BadInput as error:
            faults += error.faults
    if not points and not faults:
        faults.append(Fault("no load test is left" if where else "no load tests found", paths[0] if paths else None))
    if faults:
        raise BadInput(*faults)
    return points


def _files(paths: Iterable[str | Path], faults: list[Fault]) -> list[Path]:
    files = []
    for path in map(Path, paths):
        if path.is_dir():
            files += sorted(file for file in path.iterdir() if file.suffix in {".csv", ".json"})
        elif path.exists():
            files.append(path)
        else:
            faults.append(Fault("cannot be read: no such file or folder", path))
    return files


def _text(path: Path) -> str:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return raw.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(unreadable(error, path)) from None


def _table(path: Path, given: Given, where: Mapping[str, str]) -> list[Point]:
    rows = csv.DictReader(_text(path).splitlines())
    header = [name.strip() for name in rows.fieldnames or []]
    rows.fieldnames = header
    places, faults = _places(header, path)
    faults += [
        Fault(f"column is missing{did_you_mean(column, header)}", path, 1, column)
        for column in where
        if column not in header
    ]
    if faults:
        raise BadInput(*faults)
    points = []
    for row in rows:
        if any((row.get(column) or "").strip() != value for column, value in where.items()):
            continue
        cells = {key: (row.get(column) or "").strip() for key, (column, _) in places.items()}
        units = {key: unit for key, (_, unit) in places.items()}
        columns = {key: column for key, (column, _) in places.items()}
        try:
            points.append(_point(cells, units, columns, given, path, rows.line_num))
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(*faults)
    return points


def _places(header: Sequence[str], path: Path) -> tuple[dict[str, tuple[str, float]], list[Fault]]:
    """Return the column that holds each quantity, and its unit."""
    places: dict[str, tuple[str, float]] = {}
    faults = []
    for key, names in COLUMNS.items():
        suffixes = UNITS if key in ("ttft", "tpot") else {"": 1.0}
        named = {name + suffix: unit for name in names for suffix, unit in suffixes.items()}
        found = [name for name in named if name in header]
        if found:
            places[key] = (found[0], named[found[0]])
        elif key in ("concurrency", "prompt_tokens", "output_tokens", "tpot"):
            faults.append(Fault(f"no column for {key}: one of {', '.join(named)}", path, 1))
    return places, faults


def _point(
    cells: Mapping[str, str],
    units: Mapping[str, float],
    columns: Mapping[str, str],
    given: Given,
    path: Path,
    line: int,
) -> Point:
    faults: list[Fault] = []

    def number(key: str, low: float, whole: bool) -> float:
        try:
            value = float(cells[key])
        except ValueError:
            value = math.nan
        if not (value >= low and value < math.inf and (value > 0) and (not whole or value == int(value))):
            kind = f"a whole number >= {low:g}" if whole else "a time above 0"
            faults.append(Fault(f"is {cells[key]!r}: {kind}", path, line, columns[key]))
            return 1.0
        return value * units.get(key, 1.0)

    def looked_up(key: str, find: Callable[..., Any], otherwise: object) -> Any:  # noqa: ANN401
        if not cells.get(key):
            return otherwise
        try:
            return find(cells[key], file=path, key=columns[key])
        except BadInput as error:
            faults.extend(Fault(fault.message, path, line, fault.key) for fault in error.faults)
            return None

    weights = cells.get("weights") or given.weights
    if weights is not None:
        weights = NUMBER_TYPES.get(weights, weights)
        if weights not in BYTES:
            faults.append(Fault(f"is {weights!r}: one of {', '.join(BYTES)}", path, line, columns.get("weights")))
    point = Point(
        concurrency=int(number("concurrency", 1, True)),
        prompt_tokens=int(number("prompt_tokens", 1, True)),
        output_tokens=int(number("output_tokens", 1, True)),
        ttft_s=number("ttft", 0, False) if cells.get("ttft") else None,
        tpot_s=number("tpot", 0, False),
        gpu=looked_up("gpu", find_gpu, given.gpu),
        model=looked_up("model", find_model, given.model),
        tensor_parallel=int(number("tensor_parallel", 1, True))
        if cells.get("tensor_parallel")
        else given.tensor_parallel,
        weights=weights,
        place=f"{path}:{line}",
    )
    if faults:
        raise BadInput(*faults)
    return point


def _result(path: Path, given: Given, _: Mapping[str, str]) -> list[Point]:
    try:
        document = json.loads(_text(path))
    except ValueError as error:
        raise BadInput(Fault(f"is no JSON: {error}", path)) from None
    if isinstance(document, dict):
        for kind, read in RESULTS.items():
            if kind in document:
                return read(document, path, given)
    kinds = "vllm bench serve (mean_ttft_ms), AIPerf (time_to_first_token), GuideLLM (benchmarks)"
    raise BadInput(Fault(f"is no result of a load generator that is known: {kinds}", path))


def _vllm(document: Mapping[str, Any], path: Path, given: Given) -> list[Point]:
    """Read one result of ``vllm bench serve --save-result``."""
    done = _number(document, path, "completed")
    return [
        _measured(
            path,
            "result",
            given,
            concurrency=_number(document, path, "max_concurrency"),
            prompt=_number(document, path, "total_input_tokens") / done,
            output=_number(document, path, "total_output_tokens") / done,
            ttft_ms=_number(document, path, "mean_ttft_ms"),
            tpot_ms=_number(document, path, "mean_tpot_ms"),
        )
    ]


def _aiperf(document: Mapping[str, Any], path: Path, given: Given) -> list[Point]:
    """Read one ``profile_export_aiperf.json``."""
    loadgen = (document.get("input_config") or {}).get("loadgen") or {}
    return [
        _measured(
            path,
            "result",
            given,
            concurrency=_number(loadgen, path, "concurrency"),
            prompt=_number(document, path, "input_sequence_length", "avg"),
            output=_number(document, path, "output_sequence_length", "avg"),
            ttft_ms=_number(document, path, "time_to_first_token", "avg"),
            tpot_ms=_number(document, path, "inter_token_latency", "avg"),
        )
    ]


def _guidellm(document: Mapping[str, Any], path: Path, given: Given) -> list[Point]:
    """Read the benchmarks of one GuideLLM report."""
    points = []
    for number, benchmark in enumerate(document["benchmarks"]):
        metrics = benchmark.get("metrics") if isinstance(benchmark, dict) else None
        if not isinstance(metrics, dict):
            raise BadInput(Fault("has no metrics", path, None, f"benchmarks.{number}"))

        def mean(key: str, metrics: Mapping[str, Any] = metrics) -> float:
            return _number(metrics, path, key, "successful", "mean")

        points.append(
            _measured(
                path,
                f"benchmark {number}",
                given,
                concurrency=mean("request_concurrency"),
                prompt=mean("prompt_token_count"),
                output=mean("output_token_count"),
                ttft_ms=mean("time_to_first_token_ms"),
                tpot_ms=mean("inter_token_latency_ms"),
            )
        )
    return points


RESULTS: Mapping[str, Callable[[Mapping[str, Any], Path, Given], list[Point]]] = {
    "mean_ttft_ms": _vllm,
    "time_to_first_token": _aiperf,
    "benchmarks": _guidellm,
}
"""Readers of result files, by the key that tells them apart."""


def _number(document: Mapping[str, Any], path: Path, *keys: str) -> float:
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        said = "is missing" if value is None else f"is {value!r}"
        raise BadInput(Fault(f"{said}: a number above 0", path, None, ".".join(keys)))
    return float(value)


def _measured(
    path: Path,
    test: str,
    given: Given,
    *,
    concurrency: float,
    prompt: float,
    output: float,
    ttft_ms: float,
    tpot_ms: float,
) -> Point:
    return Point(
        concurrency=max(1, round(concurrency)),
        prompt_tokens=max(1, round(prompt)),
        output_tokens=max(1, round(output)),
        ttft_s=ttft_ms / 1e3,
        tpot_s=tpot_ms / 1e3,
        gpu=given.gpu,
        model=given.model,
        tensor_parallel=given.tensor_parallel,
        weights=given.weights,
        place=f"{path}: {test}",
    )
