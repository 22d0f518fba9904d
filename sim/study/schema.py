"""The JSON Schema of a study file, and its reference as Markdown: both made from the tables."""

from __future__ import annotations

from typing import Any

from sim.study.tables import Arm, CaseRunTable, Head

Schema = dict[str, Any]


def json_schema() -> Schema:
    """Return the JSON Schema of a study file; an arm's tables are the base's with nothing required."""
    head, arm = Head.model_json_schema(), Arm.model_json_schema()
    definitions: Schema = {**head.pop("$defs"), **arm.pop("$defs")}
    partial = {f"partial.{name}": _partial(schema) for name, schema in definitions.items()}
    properties: Schema = head["properties"]
    properties |= arm["properties"]
    span = CaseRunTable.model_json_schema()
    case = {**arm, "properties": {**arm["properties"], "run": span}}
    for key, title, table in (("arms", "Arm", arm), ("cases", "Case", case), ("sensitivity", "Assumption", arm)):
        properties[key]["additionalProperties"] = {**_partial(table), "title": title}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **head,
        "title": "slotsim study",
        "$defs": {**definitions, **partial},
    }


def _partial(schema: Any) -> Any:  # noqa: ANN401 - any node of a JSON document
    """Return a schema without required keys: what an arm writes is laid over the base."""
    if isinstance(schema, list):
        return [_partial(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    loose = {}
    for key, value in schema.items():
        if key == "$ref":
            loose[key] = value.replace("#/$defs/", "#/$defs/partial.")
        elif key != "required" or not isinstance(value, list):
            loose["anyOf" if key == "oneOf" else key] = _partial(value)
    return loose
