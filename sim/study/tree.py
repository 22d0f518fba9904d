"""A study as read: nested tables in which every value knows where it was written, so that every fault can name it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sim.study import positions
from workloads.errors import BadInput, Fault, did_you_mean, unreadable

ARM_TAGS = ("name", "kind", "engine")
"""A table of an arm that gives one of these another value replaces the base's table instead of merging with it."""

OVERRIDE_TAGS = ("name", "kind")
"""The same for ``--set``, which changes one key: another engine keeps the model and the GPU it runs on."""

_EXCLUDES = {
    "path": ("streams", "agents", "together"),
    "streams": ("path", "format", "time_scale", "agents", "together"),
    "agents": ("path", "format", "time_scale", "streams"),
}
"""A recorded workload replaces a drawn one and the other way round, and agents replace single calls."""


Value: TypeAlias = Any
"""What TOML holds: tables, lists, texts, numbers, truth values, dates."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: file and line, or neither for the command line; and the key as written there."""

    file: Path | None
    line: int | None
    key: str

    def fault(self, message: str, *below: str | int) -> Fault:
        """Return a fault at this place, or at a key below it that is not there."""
        key = ".".join([*([self.key] if self.key else []), *map(key_text, below)])
        return Fault(message, self.file, self.line, key or None)


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its origin. ``value`` is a dict of nodes, a list of nodes, or a plain TOML value."""

    value: Any
    origin: Origin

    def get(self, *path: str | int) -> Node | None:
        """Return the node at a path of keys and indices, None if there is none."""
        node, rest = self.nearest(path)
        return None if rest else node

    def nearest(self, path: Sequence[str | int]) -> tuple[Node, Sequence[str | int]]:
        """Return the deepest node on a path, and the part of the path that lies below it."""
        node = self
        for depth, part in enumerate(path):
            inside = (
                part in node.value
                if isinstance(node.value, dict)
                else isinstance(node.value, list) and isinstance(part, int) and part < len(node.value)
            )
            if not inside:
                return node, path[depth:]
            node = node.value[part]
        return node, ()

    def plain(self) -> Value:
        """Return the value without origins."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def key_text(part: str | int) -> str:
    """Return a key as TOML writes it."""
    text = str(part)
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else string(text)


def string(text: str) -> str:
    """Return a text as a TOML string: JSON's escapes, and one that JSON does not ask for."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def read(path: Path, label: Path) -> Node:
    """Return the tree of a TOML file; ``label`` is how faults name it.

    Raises
    ------
    BadInput
        If it cannot be read or is no TOML.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadInput(unreadable(error, label)) from None
    except UnicodeDecodeError as error:
        raise BadInput(Fault(f"is not UTF-8 text (byte {error.start})", label)) from None
    return parse(text, label, path.parent)


def parse(text: str, label: Path, folder: Path) -> Node:
    """Return the tree of a TOML text; paths in it are relative to a folder.

    Raises
    ------
    BadInput
        If it is no TOML.
    """
    text = text.replace("\r\n", "\n")
    try:
        document = tomllib.loads(text)
        lines = positions.key_lines(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rpartition(" (at ")
        line = re.match(r"line (\d+)", place)
        number = int(line[1]) if line else text.count("\n") + 1
        raise BadInput(Fault(f"is not TOML: {message or error}", label, number)) from None
    except RecursionError:
        raise BadInput(Fault("is nested too deeply", label)) from None

    def grow(value: object, at: positions.Path) -> Node:
        origin = Origin(label, lines.get(at), ".".join(map(key_text, at)))
        if isinstance(value, dict):
            return Node({key: grow(inner, (*at, key)) for key, inner in value.items()}, origin)
        if isinstance(value, list):
            return Node([grow(inner, (*at, index)) for index, inner in enumerate(value)], origin)
        if at[-1] == "path" and isinstance(value, str) and value:
            value = str(folder / value)
        return Node(value, origin)

    return grow(document, ())


def read_overrides(overrides: Iterable[str]) -> Node:
    """Return the tree of ``KEY=VALUE`` texts: values are TOML, else text; of two that say the same key the last holds.

    Raises
    ------
    BadInput
        Naming every text that is no ``KEY=VALUE``.
    """
    tree, faults = Node({}, Origin(None, None, "")), []
    for override in overrides:
        key, equals, text = override.partition("=")
        try:
            if not equals:
                raise ValueError("must be KEY=VALUE")
            parts = positions.split_key(key.strip())
        except (ValueError, RecursionError):
            allowed = "must be KEY=VALUE, with a dotted TOML key such as server.kv_tokens=100_000"
            faults.append(Fault(allowed, key=f"--set {override}"))
            continue
        origin = Origin(None, None, f"--set {key.strip()}")
        node = _grow_value(_toml_value(text), origin)
        for part in reversed(parts):
            node = Node({part: node}, origin)
        tree = merge(tree, node, ())
    if faults:
        raise BadInput(*faults)
    return tree


def _toml_value(text: str) -> object:
    try:
        document = tomllib.loads(f"x = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text.strip()
    return document["x"] if len(document) == 1 else text.strip()


def _grow_value(value: object, origin: Origin) -> Node:
    if isinstance(value, dict):
        inner = {key: _grow_value(item, replace(origin, key=f"{origin.key}.{key}")) for key, item in value.items()}
        return Node(inner, origin)
    if isinstance(value, list):
        return Node([_grow_value(item, origin) for item in value], origin)
    return Node(value, origin)


def merge(base: Node, patch: Node, tags: tuple[str, ...]) -> Node:
    """Return a table with another table's keys over it, at every depth.

    A table below the top that gives one of ``tags`` another value replaces the base's. A table over a list of tables
    changes the elements that its keys name, by their ``name`` or by their index.

    Raises
    ------
    BadInput
        Naming every key that no element of a list answers to.
    """
    merged = dict(base.value)
    for key in patch.value:
        for gone in _EXCLUDES.get(key, ()):
            merged.pop(gone, None)
    faults: list[Fault] = []
    for key, node in patch.value.items():
        below = merged.get(key)
        try:
            merged[key] = node if below is None else _over(below, node, tags)
        except BadInput as error:
            faults += error.faults
    if faults:
        raise BadInput(*faults)
    return Node(merged, base.origin)


def _over(base: Node, patch: Node, tags: tuple[str, ...]) -> Node:
    if isinstance(base.value, dict) and isinstance(patch.value, dict):
        for tag in tags:
            ours, theirs = base.value.get(tag), patch.value.get(tag)
            if ours is not None and theirs is not None and ours.plain() != theirs.plain():
                return patch
        return merge(base, patch, tags)
    if isinstance(base.value, list) and isinstance(patch.value, dict):
        return _over_elements(base, patch, tags)
    return patch


def _over_elements(base: Node, patch: Node, tags: tuple[str, ...]) -> Node:
    elements = list(base.value)
    names = list(_element_names(elements))
    faults: list[Fault] = []
    for key, node in patch.value.items():
        index = names.index(key) if key in names else int(key) if key.isdecimal() else len(elements)
        if index >= len(elements) or not (isinstance(elements[index].value, dict) and isinstance(node.value, dict)):
            known = f"there are {', '.join(names)}" if names else "there are none"
            faults.append(node.origin.fault(f"no element {key!r}: {known}{did_you_mean(key, names)}"))
        else:
            try:
                elements[index] = merge(elements[index], node, tags)
            except BadInput as error:
                faults += error.faults
    if faults:
        raise BadInput(*faults)
    return Node(elements, base.origin)


def _element_names(elements: Sequence[Node]) -> Iterator[str]:
    for index, element in enumerate(elements):
        name = element.get("name")
        yield str(index if name is None else name.value)


def flatten(node: Node) -> Node:
    """Return a table of tables as one table with dotted keys: ``request.ttft_s = 2`` is ``"request.ttft_s" = 2``."""
    if not isinstance(node.value, dict):
        return node
    flat: dict[str, Node] = {}
    for key, inner in node.value.items():
        below = flatten(inner)
        if isinstance(below.value, dict):
            flat |= {f"{key}.{rest}": leaf for rest, leaf in below.value.items()}
        else:
            flat[key] = inner
    return Node(flat, node.origin)
