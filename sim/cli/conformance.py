"""Whether the policies decide as a recorded client did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def conformance(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Holds recorded/*.json and model_limits.json.")],
    version: Annotated[str | None, typer.Option("--version", help="Replay only this version of the client.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Replay recordings of a real client through the output policies, without a network.

    Exit code 3 if a case fails or a model's limits differ.
    """
    from sim.conformance import run

    report = run(folder, version)
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        for case in report.cases:
            if case.reason:
                print(f"{case.status:8}{case.case}: {case.reason}")
        for difference in report.mismatched:
            print(f"differs {difference}")
        print(
            f"{report.count('passed')} passed, {report.count('failed')} failed, {report.count('skipped')} skipped; "
            f"model names: {report.matched} matched, {len(report.mismatched)} not"
        )
    if not report.conforms:
        raise typer.Exit(3)
