"""Tables of measured kernel times and the files they are read from."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sim.hardware import Model
from sim.steptime.attention import AXES, Attention, holes
from sim.steptime.curve import Curve, total
from workloads.errors import BadInput, Fault, did_you_mean, unreadable

ONCE: Mapping[str, int] = {"embedding": 1, "final_layernorm": 1}
"""How often an operator runs in a step, by the step's tokens."""

A_LAYER: Mapping[str, int] = {"layernorm": 2, "qkv_proj": 1, "rotary_emb": 1, "o_proj": 1}
"""How often it runs in each layer besides."""

FEED_FORWARD: Mapping[str, int] = {"gate_up_proj": 1, "act_fn": 1, "down_proj": 1}
"""The same in a layer with a dense feed-forward block."""

OPTIONAL: Mapping[str, int] = {"qk_norm": 1}
"""The same where the model has it."""

BY_REQUESTS: Mapping[str, int] = {"lm_head": 1, "sampler": 1}
"""How often an operator runs in a step, by the step's requests."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernel times of one model on one kind of GPU.

    Attributes
    ----------
    tokens
        Seconds of everything that depends on a step's tokens alone, all layers.
    requests
        Seconds of output head and sampler, by the step's requests.
    attention
        One layer's attention.
    """

    tokens: Curve
    requests: Curve
    attention: Attention


@lru_cache(maxsize=8)
def read_kernels(folder: str | Path, model: Model, tensor_parallel: int = 1) -> Kernels:
    """Read a kernel profile: ``dense``, ``per_sequence``, ``attention`` and, with experts, ``moe``, as CSV or CSV.gz.

    A step is embedding + layers x (2 layernorm + qkv_proj + [qk_norm] + rotary_emb + attention + o_proj + gate_up_proj
    + act_fn + down_proj, or the experts) + final_layernorm + lm_head and sampler. Experts are measured by tokens and
    experts visited; the visited ones are expected to be ``E (1 - (1 - k/E)^n)``. Where a folder for several GPUs has
    no ``moe`` table, that of the folder ``tp1`` beside it stands in, each GPU holding its share of the experts.

    Raises
    ------
    BadInput
        A table, a column or an operator is missing, a value is no time, or a point inside the covered range is missing
        so that nothing can be interpolated there. All faults at once, with file and line.
    """
    folder = Path(folder)
    faults: list[Fault] = []
    if not folder.is_dir():
        raise BadInput(Fault("is no folder: a kernel profile holds dense, per_sequence and attention tables", folder))
    dense = _curves(_file(folder, "dense"), "tokens", faults)
    heads = _curves(_file(folder, "per_sequence"), "sequences", faults)
    attention = _attention(_file(folder, "attention"), faults)
    feed_forward: Mapping[str, int] = {} if model.experts else FEED_FORWARD
    experts = _experts(folder, model, tensor_parallel, faults) if model.experts else None
    if dense:
        faults += _missing(dense, (*ONCE, *A_LAYER, *feed_forward), (*OPTIONAL, *FEED_FORWARD), _file(folder, "dense"))
    if heads:
        faults += _missing(heads, tuple(BY_REQUESTS), (), _file(folder, "per_sequence"))
    if faults:
        raise BadInput(*faults)
    a_layer = {**A_LAYER, **OPTIONAL, **feed_forward}
    layers = {name: times * model.layers for name, times in a_layer.items() if name in dense}
    terms: list[tuple[float, Curve]] = [(times, dense[name]) for name, times in {**ONCE, **layers}.items()]
    if experts is not None:
        terms.append((model.layers, experts))
    requests = total((times, heads[name]) for name, times in BY_REQUESTS.items())
    return Kernels(total(terms), requests, Attention(attention))


def _file(folder: Path, table: str) -> Path:
    plain = folder / f"{table}.csv"
    return plain if plain.exists() else folder / f"{table}.csv.gz"


def _rows(path: Path, columns: Sequence[str], faults: list[Fault]) -> list[tuple[int, list[str]]]:
    """Return the wanted columns of a table with line numbers; a fault where it cannot be read."""
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as lines:
            reader = csv.reader(lines)
            header = next(reader, [])
            absent = [column for column in columns if column not in header]
            faults += [Fault(f"column is missing{did_you_mean(column, header)}", path, 1, column) for column in absent]
            if absent:
                return []
            places = [header.index(column) for column in columns]
            rows: list[tuple[int, list[str]]] = []
            for cells in reader:
                if len(cells) == len(header):
                    rows.append((reader.line_num, [cells[place] for place in places]))
                elif cells:
                    faults.append(Fault(f"has {len(cells)} of {len(header)} columns", path, reader.line_num))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        faults.append(unreadable(error, path))
        return []
    if not rows and not faults:
        faults.append(Fault("has no rows", path))
    return rows


def _count(cell: str, path: Path, line: int, column: str, faults: list[Fault]) -> int | None:
    if cell.strip().isascii() and cell.strip().isdigit():
        return int(cell)
    faults.append(Fault(f"is {cell!r}: a whole number >= 0", path, line, column))
    return None


def _seconds(cell: str, path: Path, line: int, faults: list[Fault]) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if 0.0 <= value < float("inf"):
        return value * 1e-6
    faults.append(Fault(f"is {cell!r}: microseconds >= 0", path, line, "time_us"))
    return None


def _curves(path: Path, axis: str, faults: list[Fault]) -> dict[str, Curve]:
    points: dict[str, dict[int, float]] = {}
    for line, (name, x_cell, time_cell) in _rows(path, ("layer", axis, "time_us"), faults):
        x, seconds = _count(x_cell, path, line, axis, faults), _seconds(time_cell, path, line, faults)
        if x is not None and seconds is not None:
            points.setdefault(name, {})[x] = seconds
    return {name: Curve(sorted(curve.items())) for name, curve in points.items()}


def _missing(found: Mapping[str, Curve], needed: Sequence[str], allowed: Sequence[str], path: Path) -> list[Fault]:
    known = (*needed, *allowed)
    absent = [f"operator {name!r} is missing{did_you_mean(name, found)}" for name in needed if name not in found]
    odd = [f"unknown operator {name!r}: one of {', '.join(known)}" for name in found if name not in known]
    return [Fault(message, path, None, "layer") for message in absent + odd]


def _experts(folder: Path, model: Model, tensor_parallel: int, faults: list[Fault]) -> Curve | None:
    """Return the seconds of one layer's experts by a step's tokens."""
    path, shares = _file(folder, "moe"), 1
    if not path.exists() and tensor_parallel > 1 and _file(folder.parent / "tp1", "moe").exists():
        path, shares = _file(folder.parent / "tp1", "moe"), tensor_parallel
    table: dict[int, dict[int, float]] = {}
    for line, (tokens_cell, experts_cell, time_cell) in _rows(path, ("tokens", "activated_experts", "time_us"), faults):
        tokens = _count(tokens_cell, path, line, "tokens", faults)
        experts = _count(experts_cell, path, line, "activated_experts", faults)
        seconds = _seconds(time_cell, path, line, faults)
        if tokens is not None and experts is not None and seconds is not None:
            table.setdefault(tokens, {})[experts] = seconds
    if faults or not table:
        return None
    return Curve(
        (tokens, Curve(sorted(row.items()))(model.experts * model.experts_touched(tokens) / shares))
        for tokens, row in sorted(table.items())
    )


def _attention(path: Path, faults: list[Fault]) -> dict[tuple[int, int, int, int], float]:
    rows: dict[tuple[int, int, int, int], float] = {}
    before = len(faults)
    for line, cells in _rows(path, (*AXES, "time_us"), faults):
        point = [_count(cell, path, line, axis, faults) for axis, cell in zip(AXES, cells[:4], strict=True)]
        seconds = _seconds(cells[4], path, line, faults)
        match point:
            case [int(chunk), int(past), int(count), int(stored)] if seconds is not None:
                if chunk or count:
                    rows[chunk, past if chunk else 0, count, stored if count else 0] = seconds
    if len(faults) == before:
        faults += [Fault(hole, path) for hole in holes(rows)]
    return rows
