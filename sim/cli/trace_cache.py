"""``slotsim trace cache``: what a prefix cache would have found in a recorded trace."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from workloads.errors import BadInput, Fault


class Scope(StrEnum):
    """Who shares a cache."""

    shared = "shared"
    session = "session"


def cache(
    file: Annotated[Path, typer.Argument(help="A Mooncake or WEKA trace, or another that tells its prompts' blocks.")],
    capacity: Annotated[
        str, typer.Option(help="Blocks a cache holds: one number or several, 'inf' for no limit.", metavar="N,...")
    ] = "inf",
    ttl: Annotated[
        str, typer.Option(help="Life of a block after its last use: one or several, 'inf' for ever.", metavar="T,...")
    ] = "inf",
    scope: Annotated[
        Scope | None,
        typer.Option(help="One cache for all, or one a session. [default: session for WEKA, else shared]"),
    ] = None,
    stagger: Annotated[str, typer.Option(help="Time between the starts of two WEKA sessions.", metavar="T")] = "0s",
    first: Annotated[
        int | None, typer.Option(min=1, help="Only the first N sessions (WEKA) or requests (others) of the file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Count how many of the blocks that a recorded trace looks up a prefix cache would have held.

    Every prompt is looked up block by block from its start, then kept whole; what was used longest ago makes room.
    Several capacities and lives are all combined.
    """
    from sim.trace_cache import count_hits, read_blocks

    faults: list[Fault] = []
    capacities = _limits("--capacity", capacity, whole=True, faults=faults)
    lives_s = _limits("--ttl", ttl, whole=False, faults=faults)
    staggers = _limits("--stagger", stagger, whole=False, faults=faults)
    if len(staggers) > 1 or None in staggers:
        faults.append(Fault(f"must be one finite time, got {stagger!r}", key="--stagger"))
    if faults:
        raise BadInput(*faults)
    trace = read_blocks(file, first, staggers[0] or 0.0)
    chosen = scope.value if scope else trace.scope
    if chosen == "session" and not trace.has_sessions:
        raise BadInput(Fault("does not tell sessions, so a cache a session is not possible", file))
    lookups = trace.blocks
    settings = []
    for blocks in capacities:
        for ttl_s in lives_s:
            hits = count_hits(trace.lookups, None if blocks is None else int(blocks), ttl_s, chosen == "shared")
            ratio = hits / lookups if lookups else 0.0
            settings.append({"capacity": blocks, "ttl_s": ttl_s, "hits": hits, "ratio": ratio})
    if as_json:
        print(json.dumps({"unit": "block", "lookups": lookups, "settings": settings}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "capacity (blocks)", "life (s)", "hits", "ratio", title=f"{lookups:,} blocks looked up, {chosen} cache"
    )
    for column in table.columns:
        column.justify = "right"
    for row in settings:
        table.add_row(_shown(row["capacity"]), _shown(row["ttl_s"]), f"{row['hits']:,}", f"{row['ratio']:.4f}")
    Console().print(table)


def _limits(option: str, text: str, whole: bool, faults: list[Fault]) -> list[float | None]:
    """Return the numbers of a comma-separated list, None for ``inf``."""
    from sim.quantities import DURATIONS, SIZES, parse

    limits: list[float | None] = []
    for part in text.split(","):
        if part.strip() == "inf":
            limits.append(None)
            continue
        try:
            number = parse(part, SIZES if whole else DURATIONS)
            if number < 0 or (whole and number != int(number)):
                raise ValueError(
                    f"must be a {'whole ' if whole else ''}number of at least 0, or inf, got {part.strip()!r}"
                )
            limits.append(number)
        except ValueError as error:
            faults.append(Fault(str(error), key=option))
    return limits


def _shown(limit: float | None) -> str:
    return "unlimited" if limit is None else f"{limit:,}"
