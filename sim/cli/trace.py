"""Recorded and synthetic traffic: look at it, convert it, make it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import trace_cache

if TYPE_CHECKING:
    from rich.table import Table

    from workloads.readers import Recording

trace_app = typer.Typer(name="trace", no_args_is_help=True, help="Look at recorded traffic, convert it, make some.")
trace_app.command("cache")(trace_cache.cache)

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


@trace_app.command("describe")
def describe(
    file: File, format: Format = "auto", skip_bad: SkipBad = False, output: Folder = None, as_json: AsJson = False
) -> None:
    """Print rates, burstiness, lengths, truncation and reuse of a trace, and whether an 8K default fits it."""
    from workloads.describe import describe as described
    from workloads.readers import read_recording

    recording = read_recording(file, format, skip_bad)
    summary = described(recording)
    if output is not None:
        from sim.trace_plots import plot_recording

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
    from workloads.readers import read_recording

    recording = read_recording(file, format, skip_bad)
    trace = recording.timed()
    trace.write(output)
    _print_notes(recording)
    print(f"{output}: {len(trace):,} calls over {trace.span_s:,.1f} s")


def _print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _print_notes(recording: Recording) -> None:
    for note in recording.notes:
        print(f"note: {note}", file=sys.stderr)


def _print(*tables: Table) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True)
    for table in tables:
        console.print(table)


def _table(title: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    table = RichTable(title=title, title_justify="left", box=SIMPLE_HEAD, show_header=any(columns), pad_edge=False)
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
                    "-" if group[key] is None else f"{group[key][level]:,}"
                    for key in ("prompt_tokens", "output_tokens")
                    for level in ("p50", "p99")
                ]
                table.add_row(name, f"{group['share']:.1%}", *cells)
            tables.append(table)
    return tables
