"""What a person sees of an experiment: a progress bar, a table that answers, an exit code."""

from __future__ import annotations

import csv as csv_format
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sim.experiment import ArmResult, Results
from sim.metrics import METRICS
from sim.stats import Comparison, Interval
from sim.study import Study
from sim.thresholds import Outcome

HEADLINE = (
    "call.e2e_s.mean",
    "call.e2e_s.p99",
    "request.ttft_s.p50",
    "request.ttft_s.p99",
    "request.tpot_s.mean",
    "running.mean",
    "waiting.mean",
    "tokens.output_per_s",
    "truncated.first_share",
    "truncated.final_share",
    "tokens.wasted_share",
    "call.attempts.mean",
    "call.reserved_token_s.mean",
    "kv.reserved_share.mean",
    "kv.used_share.mean",
    "kv.overreservation",
    "preemptions_per_request",
    "refused_share",
    "prefix.hit_rate",
    "slo.attainment",
    "slo.goodput_per_s",
    "makespan_s",
)
"""The metrics that the table on screen shows, in its order; the summary holds them all."""

COLUMNS = (
    *("arm", "status", "metric", "unit", "mean", "low", "high", "n"),
    *("difference", "difference_low", "difference_high", "ratio", "ratio_low", "ratio_high", "verdict"),
)
"""The columns of the CSV table."""

COLOUR = {"better": "green", "worse": "red", "same": "dim", "undecided": "yellow"}
OUTCOME_COLOUR = {"pass": "green", "fail": "red", "undecided": "yellow"}
FAILED, UNDECIDED = 3, 4


@contextmanager
def progress(study: Study) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal's standard error; yield what to call after each replication."""
    rule = study.run.replications
    total = len(study.arms) * rule if isinstance(rule, int) else None
    console = Console(stderr=True)
    columns = (
        TextColumn(study.name),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("replications"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def show(study: Study, results: Results, folder: Path, console: Console) -> None:
    """Print the answer: the arms side by side, each with its difference from the first, and how sure it is."""
    if not console.is_terminal:
        console = Console(width=max(120, 34 + 52 * len(results.arms)), no_color=True)
    baseline, *others = results.arms
    table = Table(box=box.SIMPLE_HEAD, title=_title(study, results), title_justify="left", title_style="bold")
    table.add_column("metric", no_wrap=True)
    table.add_column(baseline, justify="right", no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column(f"difference from {baseline}", no_wrap=True)
    for metric in HEADLINE:
        arms = [arm.metrics[metric] for arm in results.arms.values()]
        if all(interval.mean is None for interval in arms):
            continue
        row: list[str | Text] = [metric, _value(results.arms[baseline], metric)]
        for name in others:
            row += [_value(results.arms[name], metric), _difference(results.comparisons.get((name, metric)))]
        table.add_row(*row)
    console.print(table)
    for line in _answers(results):
        console.print(line, soft_wrap=True)
    for name, metric, outcome in thresholds(study, results):
        verdict = f"threshold {metric} {study.thresholds[metric]}: {outcome} for {name}"
        console.print(Text(verdict, style=OUTCOME_COLOUR[outcome]), soft_wrap=True)
    for warning in results.warnings:
        console.print(Text(f"note: {warning}", style="yellow"), soft_wrap=True)
    console.print(f"results: {folder}", soft_wrap=True, highlight=False)


def csv(results: Results) -> str:
    """Return every metric of every arm as CSV, with its difference from the first arm."""
    text = io.StringIO()
    writer = csv_format.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, arm in results.arms.items():
        for metric, interval in arm.metrics.items():
            row = [name, arm.status, metric, METRICS[metric].unit, *_ends(interval), interval.n]
            comparison = results.comparisons.get((name, metric))
            if comparison is not None:
                row += [*_ends(comparison.difference), *_ends(comparison.ratio), comparison.verdict]
            writer.writerow(row + [""] * (len(COLUMNS) - len(row)))
    return text.getvalue()


def thresholds(study: Study, results: Results) -> Iterator[tuple[str, str, Outcome]]:
    """Yield (arm, metric, outcome) for every threshold and arm. An unstable arm meets none."""
    for metric, threshold in study.thresholds.items():
        for name, arm in results.arms.items():
            interval = arm.metrics[metric]
            yield name, metric, "fail" if arm.status == "unstable" else threshold.decide(interval.low, interval.high)


def exit_code(study: Study, results: Results) -> int:
    """Return 3 if a threshold failed, else 4 if one is undecided, else 0."""
    outcomes = {outcome for _, _, outcome in thresholds(study, results)}
    return FAILED if "fail" in outcomes else UNDECIDED if "undecided" in outcomes else 0


def _ends(interval: Interval) -> list[float | None]:
    return [interval.mean, interval.low, interval.high]


def _title(study: Study, results: Results) -> str:
    begin, end = results.window_s
    span = "the whole trace" if end == float("inf") and begin == 0 else f"calls from {begin:,.0f} s"
    span += "" if end == float("inf") else f" to {end:,.0f} s"
    plural = "replication" if results.replications == 1 else "replications with common random numbers"
    return f"{study.name}: {span}, {results.replications} {plural}; 95 % intervals"


def _answers(results: Results) -> Iterator[Text]:
    """Yield one sentence an arm: which way it differs, by how much, how sure."""
    baseline = next(iter(results.arms))
    for name in list(results.arms)[1:]:
        line = Text(f"{name} against {baseline}: ", style="bold")
        if "unstable" in (results.arms[name].status, results.arms[baseline].status):
            unstable = name if results.arms[name].status == "unstable" else baseline
            yield line.append(f"no verdict, {unstable} is unstable", style="red not bold")
            continue
        parts = []
        for metric, words in (
            ("call.e2e_s.mean", "mean call time"),
            ("call.e2e_s.p99", "p99 call time"),
            ("truncated.final_share", "calls left truncated"),
            ("tokens.wasted_share", "tokens wasted"),
        ):
            comparison = results.comparisons[name, metric]
            if comparison.difference.mean is None:
                continue
            text = Text(f"{words} ", style="not bold").append(comparison.verdict, style=COLOUR[comparison.verdict])
            if comparison.verdict in ("better", "worse"):
                text.append(f" ({_signed(comparison.difference.mean)}{_percent(comparison)})", style="not bold")
            parts.append(text)
        yield line.append_text(Text(", ").join(parts))


def _value(arm: ArmResult, metric: str) -> str | Text:
    interval = arm.metrics[metric]
    if arm.status == "unstable":
        return Text("unstable", style="red")
    if interval.mean is None:
        return "-"
    half = interval.half_width
    return _number(interval.mean) if half is None else f"{_number(interval.mean)} ± {_number(half)}"


def _difference(comparison: Comparison | None) -> Text:
    if comparison is None or comparison.difference.mean is None:
        return Text("-")
    difference, verdict = comparison.difference, comparison.verdict
    if difference.low is None or difference.high is None:
        return Text(f"{_signed(difference.mean)}  no interval", style="dim")
    bounds = f"{_signed(difference.mean)} [{_signed(difference.low)}, {_signed(difference.high)}]"
    return Text(f"{bounds}{_percent(comparison)} ").append(verdict, style=COLOUR[verdict])


def _percent(comparison: Comparison) -> str:
    ratio = comparison.ratio.mean
    if ratio is None:
        return ""
    return f" x{ratio:.3g}" if ratio >= 2 else f" {100 * (ratio - 1):+.3g} %"


def _number(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2e}" if size < 1e-4 else f"{value:.3g}"


def _signed(value: float | None) -> str:
    if value is None:
        return "-"
    return _number(value) if value < 0 or value == 0 else f"+{_number(value)}"
