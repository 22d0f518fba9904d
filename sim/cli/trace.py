"""Recorded and synthetic traffic: look at it, convert it, make it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import trace_cache
from sim.cli.study import SeedOption, SetOption, StudyArgument

if TYPE_CHECKING:
    from rich.table import Table

    from workloads.readers import Recording

WIDE = 120  # columns of a table that goes into a file or pipe

trace_app = typer.Typer(name="trace", no_args_is_help=True, help="Look at recorded traffic, convert it, make some.")
trace_app.command("cache", short_help="Count what a prefix cache would have found.")(trace_cache.cache)

File = Annotated[Path, typer.Argument(metavar="FILE", help="A log or trace, plain or compressed.")]
Format = Annotated[str, typer.Option(metavar="NAME", help="'auto', or a name that `slotsim trace formats` lists.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out and count them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Folder = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write plots here.", show_default=False)
]


@trace_app.command("formats")
def formats() -> None:
    """List the formats that are read."""
    from workloads.readers import FORMATS

    print("parquet       this project's columns\nservegen      ServeGen clients (tar)")
    for name, format in FORMATS.items():
        print(f"{name:<13} {format.about}")


@trace_app.command("describe", short_help="Print what recorded traffic is like.")
def describe(
    file: File, format: Format = "auto", skip_bad: SkipBad = False, output: Folder = None, as_json: AsJson = False
) -> None:
    """Print rates, burstiness, lengths, truncation and reuse of a trace, and whether an 8K default fits it."""
    from workloads.describe import describe as described
    from workloads.readers import read_recording

    recording = read_recording(file, format, skip_bad)
    summary = described(recording)
    if output is not None:
        _make(output)
        from sim.report.trace_plots import plot_recording

        summary["plots"] = [str(path) for path in plot_recording(recording, output)]
    if as_json:
        _print_json(summary)
        return
    _print_notes(recording)
    _print(_overview(summary), _lengths(summary), *_groups(summary))
    for claim, outcome in summary.get("premises", {}).items():
        print(f"{outcome:<9}  {claim}")
    for path in summary.get("plots", []):
        print(path)


@trace_app.command("import")
def import_(
    file: File,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Ends in .parquet or .csv.")],
    format: Format = "auto",
    skip_bad: SkipBad = False,
) -> None:
    """Convert a log to a trace that studies replay."""
    from workloads.readers import read_recording, write_trace

    recording = read_recording(file, format, skip_bad)
    trace = recording.timed()
    write_trace(trace, output)
    _print_notes(recording)
    print(f"{output}: {len(trace):,} calls over {trace.span_s:,.1f} s")


@trace_app.command("synth", short_help="Draw a study's calls and write them as a trace.")
def synth(
    study: StudyArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Ends in .parquet or .csv.")],
    arm: Annotated[str | None, typer.Option(help="Whose workload; else the first arm's.", show_default=False)] = None,
    replication: Annotated[int, typer.Option(min=0, help="Which draw.")] = 0,
    overrides: SetOption = None,
    seed: SeedOption = None,
) -> None:
    """Draw a study's calls up to its horizon and write them as a trace: what every arm of a replication meets."""
    from sim.study import load_study
    from workloads.errors import BadInput, Fault
    from workloads.readers import write_trace
    from workloads.source import until

    loaded = load_study(study, overrides or (), seed)
    if arm is not None:
        loaded = loaded.only(arm)
    source = next(iter(loaded.sources().values()), None)
    if source is None:
        raise BadInput(
            Fault("its workload are agents, whose calls depend on the answers; use a study of streams", study)
        )
    if source.users(loaded.seed, replication):
        raise BadInput(Fault("its users call when they have been answered; a trace needs arrivals of their own", study))
    trace = until(source.blocks(loaded.seed, replication), loaded.run.horizon_s)
    write_trace(trace, output)
    print(f"{output}: {len(trace):,} calls over {trace.span_s:,.1f} s")


@trace_app.command("download")
def download(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", show_default=False, help="Without: list them.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to.")] = Path("."),
) -> None:
    """Fetch a public trace, pinned to a commit and a checksum."""
    from workloads.public import DATASETS
    from workloads.public import download as fetch

    if name is None:
        for known, data in DATASETS.items():
            print(f"{known:<24} {data.about}; {data.licence}")
        return
    print(fetch(name, output))


@trace_app.command("fit", short_help="Fit length laws to answers.")
def fit(
    file: File,
    format: Format = "auto",
    cap: Annotated[
        int | None,
        typer.Option(
            min=1, help="Answers this long were cut (else as recorded, or seen in the data).", show_default=False
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="COLUMN", help="kind or script: fit each alone.")] = None,
    skip_bad: SkipBad = False,
    output: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Fit length laws to answers, some of which a limit cut, and say how far the tail is guessed."""
    from workloads.describe import CAPS
    from workloads.fitting import fit_recording
    from workloads.readers import read_recording

    recording = read_recording(file, format, skip_bad)
    reports, notes = fit_recording(recording, cap, by)
    summary: dict[str, Any] = {
        "file": str(file),
        "notes": [*recording.notes, *notes],
        "groups": {name: report.summary(CAPS) for name, report in reports.items()},
    }
    if output is not None:
        _make(output)
        from sim.report.trace_plots import plot_fit

        summary["plots"] = [str(plot_fit(name, report, output)) for name, report in reports.items()]
    if as_json:
        _print_json(summary)
        return
    for note in summary["notes"]:
        print(f"note: {note}", file=sys.stderr)
    _print(*(table for name, group in summary["groups"].items() for table in _fits(name, group)))
    for name, group in summary["groups"].items():
        print(f"output = {_toml(group['models'][group['best']]['law'])}  # {name}")
    for path in summary.get("plots", []):
        print(path)


@trace_app.command("fit-sessions", short_help="Fit a law of agent sessions.")
def fit_sessions(
    file: File,
    output: Folder = None,
    halves: Annotated[int, typer.Option(min=1, help="Random halves to fit on and judge by.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the halves and the drawn sessions.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Fit a law of agent sessions to recorded ones (WEKA's format), judged by the halves that it was not fitted to."""
    from workloads.readers.weka import read_sessions
    from workloads.sessions.study import judge

    sessions = list(read_sessions(file))
    outcome = judge(sessions, halves, seed, source=f"{len(sessions)} sessions of {file.name}")
    summary = outcome.summary()
    if output is not None:
        _make(output)
        from sim.report.trace_plots import plot_sessions

        law = output / "law.json"
        law.write_text(json.dumps(outcome.law.to_plain(), indent=1) + "\n")
        (output / "summary.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
        summary["files"] = [str(law), str(plot_sessions(outcome, output))]
    if as_json:
        _print_json(summary)
        return
    table = _table(
        "distance (Kolmogorov-Smirnov) to sessions not fitted to", "", "median", "worst", "real halves", "bar"
    )
    for name, row in summary["distances"].items():
        cells = (f"{row[key]:.3f}" for key in ("median", "worst", "real_median", "bar"))
        table.add_row(name, *cells)
    _print(table)
    reuse = summary["prefix_reuse"]
    print(f"prefix reuse: drawn {reuse['drawn']:.4f}, recorded {reuse['recorded']:.4f}")
    for path in summary.get("files", []):
        print(path)


def _make(folder: Path) -> None:
    from workloads.errors import BadInput, Fault

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(Fault(f"cannot be made: {error.strerror}", folder, key="--output")) from None


def _print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _print_notes(recording: Recording) -> None:
    for note in recording.notes:
        print(f"note: {note}", file=sys.stderr)


def _print(*tables: Table) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    for table in tables:
        if table.title:  # on a line of its own, because rich breaks a title at the width of its table
            console.print(table.title, style="italic", markup=False, highlight=False, soft_wrap=True)
            table.title = None
        console.print(table)


def _table(title: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    table = RichTable(title=title, box=SIMPLE_HEAD, show_header=any(columns), pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return table


_OVERVIEW = {
    "requests": ("requests", ",d"),
    "span_s": ("span, s", ",.1f"),
    "rate_per_s": ("requests per s", ",.3f"),
    "interarrival_cv": ("CV of the gaps (1 = Poisson)", ".3f"),
    "dispersion_60s": ("variance / mean of calls a minute (1 = Poisson)", ".2f"),
    "peak_to_mean_60s": ("busiest minute / mean minute", ".2f"),
    "prefix_reuse": ("prompt blocks seen before", ".1%"),
    "cached_share": ("prompt tokens read from the cache", ".1%"),
    "truncated_share": ("answers cut by a limit", ".3%"),
    "reasoning_share": ("answer tokens of hidden reasoning", ".1%"),
}


def _overview(summary: dict[str, Any]) -> Table:
    table = _table(f"{summary['file']} ({summary['format']})", "", "")
    for key, (name, shape) in _OVERVIEW.items():
        if summary.get(key) is not None:
            table.add_row(name, format(summary[key], shape))
    sessions = summary.get("sessions")
    if sessions:
        table.add_row("sessions", f"{sessions['count']:,}")
    return table


def _lengths(summary: dict[str, Any]) -> Table:
    table = _table("tokens", "", "mean", "p50", "p90", "p99", "max")
    for key in ("prompt_tokens", "output_tokens"):
        found = summary[key]
        if found is not None:
            table.add_row(
                key.partition("_")[0], *(f"{found[name]:,.0f}" for name in ("mean", "p50", "p90", "p99", "max"))
            )
    per_session = (summary.get("sessions") or {}).get("requests")
    if per_session:
        cells = (f"{per_session[name]:,.0f}" for name in ("mean", "p50", "p90", "p99", "max"))
        table.add_row("requests a session", *cells)
    return table


def _groups(summary: dict[str, Any]) -> list[Table]:
    tables = []
    output = summary["output_tokens"]
    if output is not None:
        table = _table("answers longer than", "tokens", "share", "95 % interval")
        for cap, share in output["share_above"].items():
            interval = output["share_above_interval"][cap]
            bounds = "unknown" if interval is None else f"{interval[0]:.3%} .. {interval[1]:.3%}"
            table.add_row(f"{int(cap):,}", f"{share:.3%}", bounds)
        tables.append(table)
    for column in ("kind", "script"):
        groups = summary.get(f"by_{column}")
        if groups and len(groups) > 1:
            table = _table(f"by {column}", column, "share", "prompt p50", "p99", "answer p50", "p99")
            for name, group in groups.items():
                cells = [
                    "-" if group[key] is None else f"{group[key][level]:,.0f}"
                    for key in ("prompt_tokens", "output_tokens")
                    for level in ("p50", "p99")
                ]
                table.add_row(name, f"{group['share']:.1%}", *cells)
            tables.append(table)
    return tables


def _fits(name: str, group: dict[str, Any]) -> list[Table]:
    caps = list(group["kaplan_meier"])
    title = f"{name}: {group['answers']:,.0f} answers, {group['censored_share']:.2%} cut by a limit; share longer than"
    table = _table(title, "law", "AIC", "distance", *(f"{int(cap):,}" for cap in caps))
    seen = (group["kaplan_meier"][cap] for cap in caps)
    table.add_row("as recorded", "", "", *("?" if share is None else f"{share:.3%}" for share in seen))
    for law, model in group["models"].items():
        cells = (f"{model['share_above'][cap]['mean']:.3%}" for cap in caps)
        table.add_row(law, f"+{model['delta_aic']:,.0f}", f"{model['distance']:.3f}", *cells)
    best = _table(f"95 % intervals of {group['best']}", "longer than", "share", "from", "to", "")
    for cap in caps:
        share = group["models"][group["best"]]["share_above"][cap]
        guessed = "guessed" if int(cap) in group["guessed"] else ""
        best.add_row(f"{int(cap):,}", *(f"{share[key]:.3%}" for key in ("mean", "low", "high")), guessed)
    return [table, best]


def _toml(value: Any) -> str:  # noqa: ANN401 - any TOML value
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)
