"""Verbs that only read: check a study, print its schema, start a new one, list what studies may name."""

from __future__ import annotations

import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="A TOML file, or the name of a bundled study.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change a key of the base; arms.NAME.KEY reaches an arm."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Root of all random numbers.")]
ReplicationsOption = Annotated[int | None, typer.Option("--replications", help="Number of replications.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def validate(
    study: StudyArgument,
    overrides: SetOption = None,
    seed: SeedOption = None,
    replications: ReplicationsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a study and the trace it names; say every fault with its line, else what the study is."""
    import json

    from sim.study import load_study
    from sim.study.about import about, describe

    loaded = load_study(study, overrides or (), seed, replications)
    loaded.sources()  # reads the traces
    if loaded.has_agents:
        from sim.sessions.check import warnings

        for warning in warnings(loaded):
            print(f"warning: {warning}", file=sys.stderr)
    print(json.dumps(about(loaded), indent=2, ensure_ascii=False) if as_json else describe(loaded))


def schema() -> None:
    """Print the JSON Schema of a study, for editors that complete and check keys."""
    import json

    from sim.study.schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def init(
    template: Annotated[str | None, typer.Option("--template", help="Name of a bundled study.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; it must not exist.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the bundled studies.")] = False,
) -> None:
    """Start a study from a bundled one."""
    from sim.study import templates
    from workloads.errors import BadInput, Fault, did_you_mean

    bundled = templates()
    if show:
        width = max(map(len, bundled))
        for name, text in bundled.items():
            print(f"{name:{width}}  {_first_sentence(text)}")
        return
    if template not in bundled:
        listed = f"{', '.join(bundled)}{did_you_mean(template or '', bundled)}"
        wrong = "missing" if template is None else f"no bundled study {template!r}"
        raise BadInput(Fault(f"{wrong}, there are {listed}", key="--template"))
    if output is None:
        print(bundled[template], end="")
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(bundled[template])
    except OSError as error:
        raise BadInput(Fault(f"cannot be written: {error.strerror}", output)) from None
    print(output)


def _first_sentence(study: str) -> str:
    """Return the first sentence of the comment that a study begins with."""
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), study.splitlines()))
    return re.split(r"(?<=[.?]) ", comment, maxsplit=1)[0]


def list_known(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="gpus, models, engines, policies or metrics.")],
    as_json: JsonOption = False,
) -> None:
    """List what studies may name: gpus, models, engines, policies, metrics."""
    import json

    from sim.study.about import LISTS
    from workloads.errors import BadInput, Fault, did_you_mean

    if what not in LISTS:
        raise BadInput(Fault(f"nothing to list, there are {', '.join(LISTS)}{did_you_mean(what, LISTS)}", key=what))
    rows = LISTS[what]()
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*rows[0], box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    Console(width=None if Console().is_terminal else 200, markup=False).print(table)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
