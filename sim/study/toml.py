"""Tables as TOML text: tomllib only reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.study.tree import key_text, string


def dumps(document: Mapping[str, Any]) -> str:
    """Return a document as TOML. Values that are None are left out: TOML has no null."""
    lines: list[str] = []
    _table(document, (), lines)
    return "\n".join(lines).strip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    known = {key: value for key, value in table.items() if value is not None}
    inner = {key: value for key, value in known.items() if isinstance(value, Mapping)}
    lists = {key: value for key, value in known.items() if _is_tables(value)}
    plain = {key: value for key, value in known.items() if key not in inner and key not in lists}
    if path and (plain or not known):
        lines += ["", f"[{_path(path)}]"]
    lines += [f"{key_text(key)} = {inline(value)}" for key, value in plain.items()]
    for key, value in inner.items():
        _table(value, (*path, key), lines)
    for key, values in lists.items():
        for value in values:
            lines += ["", f"[[{_path((*path, key))}]]"]
            lines += [f"{key_text(name)} = {inline(item)}" for name, item in value.items() if item is not None]


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _path(path: tuple[str, ...]) -> str:
    return ".".join(map(key_text, path))


def inline(value: object) -> str:
    """Return a value in one line."""
    if isinstance(value, Mapping):
        pairs = (f"{key_text(key)} = {inline(item)}" for key, item in value.items() if item is not None)
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
