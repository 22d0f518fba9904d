"""The fitted tables, and every estimator by its name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from policies.tokens.classes import CLASSES
from policies.tokens.counts import BEFORE, KINDS, PAIRS
from policies.tokens.estimators import UNIT, ByScript, CharsPerFour, Estimator, Guaranteed, Table

SCHEMA: Final = 1
PREFIX: Final = "table:"


def read_table(profile: str, content: Mapping[str, Any]) -> Table:
    """Return one profile of a weights file as a table.

    Raises
    ------
    ValueError
        If the file is of another version, was fitted to other classes, or has no such profile.
    """
    if content.get("schema") != SCHEMA or content.get("unit") != UNIT:
        raise ValueError(
            f"weights of schema {content.get('schema')}, unit {content.get('unit')}: this is {SCHEMA}, {UNIT}"
        )
    profiles = content.get("profiles", {})
    if profile not in profiles:
        raise ValueError(f"no profile {profile!r} in these weights; there are {', '.join(profiles)}")
    found = profiles[profile]
    try:
        pairs = bytearray(PAIRS)
        for number, before in enumerate(BEFORE):
            for kind, weight in zip(KINDS, found["pairs"][before], strict=True):
                pairs[32 * number + KINDS.index(kind)] = weight
        classes = tuple(found["classes"].get(name, 0) for name in CLASSES)
        alone = tuple(found["alone"][kind] for kind in KINDS)
        unknown = found["classes"].keys() - set(CLASSES)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"profile {profile}: weights of other classes than these: {error}") from None
    if unknown:
        raise ValueError(f"profile {profile}: weights for classes that do not exist: {', '.join(sorted(unknown))}")
    return Table(PREFIX + profile, bytes(pairs), classes, alone, found["capped"])


def table_content(table: Table) -> dict[str, object]:
    """Return a table as the content of a weights file: what `read_table` reads."""
    return {
        "capped": table.capped,
        "pairs": {
            before: [table.pairs[32 * number + kind] for kind in range(len(KINDS))]
            for number, before in enumerate(BEFORE)
        },
        "classes": {name: weight for name, weight in zip(CLASSES, table.classes, strict=True) if weight},
        "alone": dict(zip(KINDS, table.alone, strict=True)),
    }


@cache
def weights() -> Mapping[str, Any]:
    """Return the content of the weights file that ships: profiles, and what they were fitted on."""
    content: Mapping[str, Any] = json.loads(files("policies.tokens").joinpath("weights.json").read_text("utf-8"))
    return content


def estimator_names() -> tuple[str, ...]:
    """Return the names of all estimators."""
    return (*_PLAIN, *(PREFIX + profile for profile in weights()["profiles"]))


_PLAIN: Final[dict[str, Callable[[], Estimator]]] = {
    "chars-per-four": CharsPerFour,
    "by-script": ByScript,
    "guaranteed": Guaranteed,
}


@cache
def estimator_named(name: str) -> Estimator:
    """Return an estimator by its name: ``by-script``, ``table:open``...

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if plain := _PLAIN.get(name):
        return plain()
    if name.startswith(PREFIX) and name.removeprefix(PREFIX) in weights()["profiles"]:
        return read_table(name.removeprefix(PREFIX), weights())
    near = difflib.get_close_matches(name, estimator_names(), n=1)
    meant = f" - did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"no estimator {name!r}; there are {', '.join(estimator_names())}{meant}")
