"""What ``slotsim compare`` does with a study of agents: sessions instead of single calls."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.errors import BadInput, Fault

if TYPE_CHECKING:
    from sim.study import Study


def compare_sessions(study: Study, as_json: bool, as_csv: bool, output: Path | None) -> None:
    """Act out the sessions of a study under every arm; print and keep what they say.

    Raises
    ------
    BadInput
        Faults of a recording, and bounds on calls, which a study of sessions does not measure.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from sim.report.folder import Folder
    from sim.sessions import conclude, conduct, show
    from sim.sessions.check import warnings
    from sim.sessions.records import write_rows
    from sim.study.about import origins

    bounds = [("slo", study.slo), ("thresholds", study.thresholds)]
    wrong = [
        Fault("a study of agents measures sessions; bounds on calls do not apply to it", study.path, key=key)
        for key, given in bounds
        if given
    ]
    if wrong:
        raise BadInput(*wrong)
    for warning in warnings(study):
        print(f"warning: {warning}", file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Folder(output or Path("results") / "runs" / study.name) as folder:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("arms", total=len(study.arms))
            rows = conduct(study, lambda: progress.advance(task))
        conclusion = conclude(rows, study.seed)
        document = show.document(study, conclusion, shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
        folder.text("study.toml", study.resolved())
        folder.text("summary.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
        write_rows(rows, folder.file("sessions.parquet"))
        show.plot(conclusion, folder.file("costs.png"))
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))
    elif as_csv:
        print(show.csv(conclusion), end="")
    else:
        terminal = Console()
        wide = terminal if terminal.is_terminal else Console(width=220, no_color=True)
        wide.print(show.table(study, conclusion))
        for line in origins(study):
            terminal.print(line, style="dim", soft_wrap=True, highlight=False, markup=False)
        terminal.print(f"results: {folder.path}", soft_wrap=True, highlight=False)
