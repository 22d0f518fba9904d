"""GPUs and models by name, from a table in a study, or from a Hugging Face ``config.json``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from sim.hardware.gpu import BYTES, Gpu
from sim.hardware.model import Model
from workloads.errors import BadInput, Fault, did_you_mean, unreadable

T = TypeVar("T", bound=Gpu | Model)


def _catalogue(kind: type[T], file: str) -> Mapping[str, T]:
    rows = tomllib.loads((files("sim.hardware") / file).read_text(encoding="utf-8"))
    return MappingProxyType(
        {name: kind(name=name, **(row | {"aliases": tuple(row["aliases"])})) for name, row in rows.items()}
    )


GPUS: Mapping[str, Gpu] = _catalogue(Gpu, "gpus.toml")
"""The catalogue of GPUs, by the name studies write."""

MODELS: Mapping[str, Model] = _catalogue(Model, "models.toml")
"""The catalogue of models, by the name studies write."""


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _names(catalogue: Mapping[str, T]) -> Mapping[str, T]:
    names: dict[str, T] = {}
    for name, entry in catalogue.items():
        names |= {_plain(known): entry for known in (name, *entry.aliases)}
    return names


def find_gpu(name: str | Mapping[str, object], *, file: str | Path | None = None, key: str = "server.gpu") -> Gpu:
    """Return the GPU of that name or alias, or the one a table describes with the fields of `Gpu`.

    Raises
    ------
    BadInput
        The name is unknown, or the table has unknown, missing or impossible values (all of them at once).
    """
    return _find(name, GPUS, "GPU", file, key) if isinstance(name, str) else _from_table(Gpu, name, file, key)


def find_model(name: str | Mapping[str, object], *, file: str | Path | None = None, key: str = "server.model") -> Model:
    """Return the model of that name or alias, or the one a table describes.

    A table holds the fields of `Model`, or ``path`` (of a Hugging Face ``config.json``) and fields that override what
    is read there.

    Raises
    ------
    BadInput
        The name is unknown, the file cannot be used, or the table has unknown, missing or impossible values (all of
        them at once).
    """
    if isinstance(name, str):
        return _find(name, MODELS, "model", file, key)
    table = dict(name)
    path = table.pop("path", None)
    return _from_table(Model, table if path is None else read_config(str(path)) | table, file, key)


def _find(name: str, catalogue: Mapping[str, T], noun: str, file: str | Path | None, key: str) -> T:
    names = _names(catalogue)
    if found := names.get(_plain(name)):
        return found
    hint = did_you_mean(_plain(name), names)
    raise BadInput(Fault(f"unknown {noun} {name!r}: one of {', '.join(catalogue)}, or a table{hint}", file, None, key))


_NON_NEGATIVE = frozenset(
    {
        "ffn",
        "experts",
        "experts_per_token",
        "expert_ffn",
        "shared_experts",
        "dense_layers",
        "kv_rank",
        "q_rank",
        "rope_dim",
        "attention_layers",
    }
)


def _from_table(kind: type[T], table: Mapping[str, object], file: str | Path | None, key: str) -> T:
    hints = get_type_hints(kind)
    values: dict[str, Any] = {"source": f"table in {file}" if file is not None else "table", "name": "custom"}
    if kind is Gpu:
        values["title"] = table.get("name", "custom")
    faults: list[Fault] = []
    for word, value in table.items():
        problem = _problem(hints.get(word), word, value)
        if word not in hints:
            problem = f"unknown key: one of {', '.join(hints)}{did_you_mean(word, hints)}"
        if problem:
            faults.append(Fault(problem, file, None, f"{key}.{word}"))
        else:
            values[word] = tuple(value) if isinstance(value, list) else value
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.name not in values and f.name not in table]
    faults += [Fault("is missing", file, None, f"{key}.{word}") for word in needed]
    faults += [Fault(problem, file, None, key) for problem in _contradictions(values) if not faults]
    if faults:
        raise BadInput(*faults)
    return kind(**values)


def _problem(hint: object, word: str, value: object) -> str | None:
    """Return what is wrong with one value of a table, or None."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if word == "weights":
        return None if value in BYTES else f"is {value!r}: one of {', '.join(BYTES)}"
    if word == "flops":
        fine = (
            isinstance(value, Mapping)
            and "bf16" in value
            and all(t in BYTES and _positive(v) for t, v in value.items())
        )
        return None if fine else f"is {value!r}: a table of FLOP/s by number type ({', '.join(BYTES)}), bf16 among them"
    if word == "tied":
        return None if isinstance(value, bool) else f"is {value!r}: true or false"
    if word == "aliases":
        return (
            None
            if isinstance(value, list) and all(isinstance(v, str) for v in value)
            else f"is {value!r}: a list of names"
        )
    if hint is str:
        return None if isinstance(value, str) else f"is {value!r}: a text"
    low = 0 if word in _NON_NEGATIVE else 1
    if hint in (int, int | None):
        return None if isinstance(value, int) and number and value >= low else f"is {value!r}: a whole number >= {low}"
    return None if _positive(value) else f"is {value!r}: a number above 0"


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _contradictions(values: Mapping[str, Any]) -> list[str]:
    """Return what single values allow and their combination does not."""
    if "layers" not in values:
        return []
    get = values.get
    found = []
    if get("heads", 1) % get("kv_heads", 1):
        found.append(f"heads = {get('heads')} is no multiple of kv_heads = {get('kv_heads')}")
    if get("experts", 0) and not 1 <= get("experts_per_token", 0) <= get("experts", 0):
        found.append(f"experts_per_token = {get('experts_per_token', 0)}: 1 to experts = {get('experts')}")
    if get("experts", 0) and not get("expert_ffn", 0):
        found.append("experts need expert_ffn, the width of one")
    if not get("experts", 0) and not get("ffn", 0):
        found.append("ffn (dense) or experts and expert_ffn (mixture of experts) must be given")
    if get("dense_layers", 0) > get("layers", 0):
        found.append(f"dense_layers = {get('dense_layers')}: at most layers = {get('layers')}")
    if (get("attention_layers") or 0) > get("layers", 0):
        found.append(f"attention_layers = {get('attention_layers')}: at most layers = {get('layers')}")
    return found


def read_config(path: str | Path) -> dict[str, object]:
    """Read a model's shape from a Hugging Face ``config.json``, as a table of `Model` fields.

    Raises
    ------
    BadInput
        The file is absent, is no JSON object, or lacks what every transformer has (all missing keys at once).
    """
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(unreadable(error, path)) from None
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise BadInput(Fault(f"is no JSON: {error}", path, line)) from None
    if not isinstance(raw, dict):
        raise BadInput(Fault("is no JSON object", path))
    config: dict[str, Any] = raw.get("text_config", raw)  # multimodal models keep the language model one level down
    if not isinstance(config, dict):
        raise BadInput(Fault("text_config is no JSON object", path))

    faults: list[Fault] = []

    def whole(*keys: str, default: int | None = None) -> int:
        """Return the first of `keys` that is there; a fault if none is and there is no default."""
        key = next((k for k in keys if config.get(k) is not None), None)
        if key is None and default is not None:
            return default
        value = config.get(key or keys[0])
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        faults.append(
            Fault("is missing" if value is None else f"is {value!r}: a whole number", path, None, key or keys[0])
        )
        return 1

    layers = whole("num_hidden_layers", "n_layer")
    heads = whole("num_attention_heads", "n_head")
    hidden = whole("hidden_size", "n_embd")
    experts = whole("num_experts", "n_routed_experts", "num_local_experts", default=0)
    rank = whole("kv_lora_rank", default=0)
    kinds = config.get("layer_types")
    table: dict[str, object] = {
        "name": str(raw.get("_name_or_path") or Path(path).parent.name or "config"),
        "source": str(path),
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": whole("num_key_value_heads", default=heads),
        "head_dim": whole("v_head_dim", "qk_nope_head_dim")
        if rank
        else whole("head_dim", default=hidden // max(1, heads)),
        "vocabulary": whole("vocab_size"),
        "window": whole("max_position_embeddings", "n_positions"),
        "ffn": whole("intermediate_size", "ffn_dim", default=0),
        "ffn_matrices": 2 if config.get("model_type") in {"opt", "gpt2", "gpt_neox", "falcon", "bloom"} else 3,
        "tied": bool(config.get("tie_word_embeddings", False)),
        "kv_rank": rank,
        "q_rank": whole("q_lora_rank", default=0),
        "rope_dim": whole("qk_rope_head_dim", default=0) if rank else 0,
    }
    if experts:
        table |= {
            "experts": experts,
            "experts_per_token": whole("num_experts_per_tok", "moe_topk"),
            "expert_ffn": whole("moe_intermediate_size", "intermediate_size"),
            "shared_experts": whole("n_shared_experts", default=0),
            "dense_layers": whole("first_k_dense_replace", default=0),
        }
    if isinstance(kinds, list) and "linear_attention" in kinds:
        table["attention_layers"] = kinds.count("full_attention")
    method = config.get("quantization_config", raw.get("quantization_config"))
    if isinstance(method, dict) and method.get("quant_method") in {"fp8", "compressed-tensors"}:
        table["weights"] = "fp8"
    elif isinstance(method, dict) and method.get("quant_method") in {"awq", "gptq"}:
        table["weights"] = "int4"
    if faults:
        raise BadInput(*faults)
    return table
