"""A calibration as a TOML file, and as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from sim.calibrate.fit import Calibration, Errors


def to_toml(calibration: Calibration, provenance: Mapping[str, str], weights: str | None = None) -> str:
    """Return the file that the step-time model ``calibrated`` reads."""
    return "\n".join(_lines(calibration, provenance, weights)) + "\n"


def _lines(calibration: Calibration, provenance: Mapping[str, str], weights: str | None) -> Iterator[str]:
    yield '# Written by slotsim calibrate. A study uses it with server.step_time = { kind = "calibrated", path = ... }.'
    yield "schema = 1"
    yield f'kind = "{calibration.kind}"'
    if weights is not None:
        yield f'weights = "{weights}"'
    if calibration.notes:
        yield f"notes = {json.dumps(list(calibration.notes), ensure_ascii=False)}"
    yield from ("", "[constants]")
    for name, (value, _, _) in calibration.constants.items():
        yield f"{name} = {_number(value)}"
    yield from ("", "[interval] # 95 %")
    for name, (_, low, high) in calibration.constants.items():
        yield f"{name} = [{_number(low)}, {_number(high)}]"
    yield from ("", "[provenance]")
    for name, text in provenance.items():
        yield f"{name} = {json.dumps(text, ensure_ascii=False)}"
    yield from ("", "[covers] # smallest and largest value measured")
    for name, (low, high) in calibration.covers.items():
        yield f"{name} = [{_number(low)}, {_number(high)}]"
    for group, tables in (("fitted", calibration.fitted), ("held_out", calibration.held_out)):
        for metric, errors in tables.items():
            yield from ("", f"[errors.{group}.{metric}] # absolute relative errors; bias is the median signed one")
            yield from _errors(errors)
    if calibration.kv_tokens is not None:
        yield from ("", "[kv]", f"tokens = {calibration.kv_tokens}")
        yield f"at_least = {'true' if calibration.kv_is_at_least else 'false'}"
    if calibration.clients:
        yield from ("", "[clients] # how the load generator saw the server; no part of the model")
        for name, value in calibration.clients.items():
            yield f"{name} = {_number(value)}"


def _errors(errors: Errors) -> Iterator[str]:
    yield f"points = {errors.points}"
    for name in ("median", "p90", "bias"):
        yield f"{name} = {getattr(errors, name):.4f}"


def _number(value: float) -> str:
    text = f"{value:.6g}"
    return text if any(mark in text for mark in ".en") or value != int(value) else str(int(value))


def to_json(calibration: Calibration) -> dict[str, object]:
    """Return everything a calibration holds, as JSON has it."""

    def table(errors: Mapping[str, Errors]) -> dict[str, object]:
        return {
            metric: {name: getattr(found, name) for name in ("points", "median", "p90", "bias")}
            for metric, found in errors.items()
        }

    return {
        "kind": calibration.kind,
        "constants": {
            name: {"value": value, "low": low, "high": high}
            for name, (value, low, high) in calibration.constants.items()
        },
        "fitted": table(calibration.fitted),
        "held_out": table(calibration.held_out),
        "covers": {name: list(ends) for name, ends in calibration.covers.items()},
        "kv_tokens": calibration.kv_tokens,
        "kv_is_at_least": calibration.kv_is_at_least,
        "clients": dict(calibration.clients),
        "notes": list(calibration.notes),
    }
