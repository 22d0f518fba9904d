"""The verbs that simulate: compare the arms of a study, or run one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli.study import JsonOption, ReplicationsOption, SeedOption, SetOption, StudyArgument
from workloads.errors import BadInput, Fault

if TYPE_CHECKING:
    from sim.study import Study

JobsOption = Annotated[int | None, typer.Option("-j", "--jobs", help="Processes; all cores unless given.", min=1)]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print a CSV table and nothing else.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Folder of results; results/runs/STUDY unless given."),
]


def compare(
    study: StudyArgument,
    overrides: SetOption = None,
    replications: ReplicationsOption = None,
    seed: SeedOption = None,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    output: OutputOption = None,
) -> None:
    """Simulate every arm of a study and compare each with the first.

    Exit code 3 if a threshold fails, 4 if one is undecided, 2 if the input is wrong.
    """
    from sim.study import load_study

    loaded = load_study(study, overrides or (), seed, replications)
    _simulate(loaded, jobs, as_json, as_csv, output)


def run(
    study: StudyArgument,
    arm: Annotated[
        str | None, typer.Option("--arm", help="The arm to run; the study without its arms if not given.")
    ] = None,
    overrides: SetOption = None,
    replications: ReplicationsOption = None,
    seed: SeedOption = None,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    output: OutputOption = None,
) -> None:
    """Simulate one arm of a study, or the study without its arms; exit codes as those of compare."""
    from sim.study import load_study

    loaded = load_study(study, overrides or (), seed, replications)
    _simulate(loaded.only(arm), jobs, as_json, as_csv, output)


def _simulate(study: Study, jobs: int | None, as_json: bool, as_csv: bool, output: Path | None) -> None:
    if as_json and as_csv:
        raise BadInput(Fault("prints one thing and nothing else: not together with --json", key="--csv"))
    if study.has_agents:
        from sim.cli.sessions import compare_sessions

        compare_sessions(study, as_json, as_csv, output)
        return
    import os
    import shlex
    import sys

    from rich.console import Console

    from sim.experiment import conduct_cases
    from sim.report import plots, tables
    from sim.report.folder import Folder
    from sim.report.summary import dumps, sensitivity, summarise, summarise_cases
    from sim.speed import Meter

    meter = Meter()
    jobs = jobs or len(os.sched_getaffinity(0))
    with Folder(output or Path("results") / "runs" / study.name) as folder:
        sketch = plots.Sketch()
        drawn = next(iter(study.by_case().values())).arms

        def keep(arm: str, number: int, happened: Replication) -> None:
            with meter.writing():
                folder.take(arm, number, happened)
                if arm in drawn:
                    sketch.take(arm, happened)

        with tables.progress(study) as advance:
            found = conduct_cases(study, jobs, advance, keep)
        results = list(found.values())
        simulated_s = sum(one.cpu_s for one in results) - meter.write_cpu_s
        with meter.writing():
            if study.cases:
                plots.draw_cases(study, found, folder.file("cases.png"))
            else:
                plots.draw(sketch, found[""], {name: folder.file(f"{name}.png") for name in plots.NAMES})
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        speed = meter.block(sum(one.requests for one in results), simulated_s)
        summary = (
            summarise_cases(study, found, command, speed)
            if study.cases
            else summarise(study, found[""], command, speed)
        )
        if study.sensitivity:
            summary["sensitivity"] = sensitivity(study, found)
        folder.text("study.toml", study.resolved())
        folder.text("summary.json", dumps(summary) + "\n")
    if as_json:
        print(dumps(summary))
    elif as_csv:
        print(tables.csv(*results), end="")
    elif study.cases:
        tables.show_cases(study, found, folder.path, Console())
    else:
        tables.show(study, found, folder.path, Console())
    raise typer.Exit(tables.exit_code(study, *(results if study.cases else results[:1])))


if TYPE_CHECKING:
    from sim.replication import Replication
