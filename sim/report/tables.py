"""What a person sees of an experiment: a progress bar, a table that answers, an exit code."""

from __future__ import annotations

import csv as csv_format
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from sim.experiment import ArmResult, Results
from sim.metrics import METRICS
from sim.ranking import Places, Ranking, Standing, order, rankings, standing
from sim.report.summary import warnings
from sim.sensitivity import survivals
from sim.stats import Interval
from sim.study import Study
from sim.study.about import origins
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
    "call.reserved_token_s.mean",
    "kv.reserved_share.mean",
    "kv.used_share.mean",
    "kv.overreservation",
    "preemptions_per_request",
    "refused_share",
    "prefix.hit_rate",
    "slo.attainment",
)
"""The metrics that the table on screen shows, in its order; the summary holds them all."""

ANSWERS = {
    "call.e2e_s.mean": "mean call time",
    "call.e2e_s.p99": "p99 call time",
    "request.ttft_s.p99": "p99 time to first token",
    "truncated.final_share": "calls left truncated",
    "tokens.wasted_share": "tokens wasted",
    "slo.attainment": "calls within the SLO",
}
"""What the answer below the table speaks of, in words."""

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


def show(study: Study, found: Mapping[str, Results], folder: Path, console: Console) -> None:
    """Print the answer: metric by metric the arms, each with its difference from the first, and how sure it is.

    What was found is that of a study without cases: as written under ``""``, and under each of its assumptions.
    """
    results = found[""]
    lines = [*_table(study, results), *_answers(results), *_sensitivity(study, found), *_outcomes(study, results)]
    elsewhere = (
        f"{name}: {text.removeprefix(f'{name}/')}"
        for name in study.sensitivity
        for text in found[name].warnings
        if text not in results.warnings
    )
    _print(console, lines, [*results.warnings, *elsewhere], origins(study), folder)


def show_cases(study: Study, found: Mapping[str, Results], folder: Path, console: Console) -> None:
    """Print a table for each case: its arms in the order of their places; then the places over all cases."""
    ranked = rankings(study, found)
    lines = [line for case, results in found.items() for line in _case(study, case, results, ranked[case])]
    lines += _over_cases(study, ranked)
    lines += [line for results in found.values() for line in _outcomes(study, results)]
    _print(console, lines, warnings(found), origins(study), folder)


def _outcomes(study: Study, results: Results) -> Iterator[Text]:
    for name, metric, outcome in thresholds(study, results):
        verdict = f"threshold {metric} {study.thresholds[metric]}: {outcome} for {name}"
        yield Text(verdict, style=OUTCOME_COLOUR[outcome])


def _print(
    console: Console, lines: Iterable[Text], warnings: Iterable[str], origins: Iterable[str], folder: Path
) -> None:
    notes = (Text(f"note: {warning}", style="yellow") for warning in warnings)
    for line in (*lines, *notes, *(Text(origin, style="dim") for origin in origins)):
        console.print(line, soft_wrap=True, highlight=False)
    console.print(f"results: {folder}", soft_wrap=True, highlight=False)


def _case(study: Study, case: str, results: Results, ranking: Mapping[str, Ranking]) -> Iterator[Text]:
    """Yield the table of a case: a row an arm, its value and its places under each metric."""
    yield Text(_title(case, results), style="bold")
    decisive = ranking[study.run.rank_by[0]]
    order = sorted(decisive, key=lambda arm: (_middle(decisive[arm]), list(decisive).index(arm)))
    rows = [
        [
            arm,
            *(
                cell
                for metric, places in ranking.items()
                for cell in (
                    _value(results.arms[f"{case}/{arm}"], metric),
                    _place(places[arm]),
                )
            ),
        ]
        for arm in order
    ]
    yield from _grid([cell for metric in ranking for cell in (_headed(metric), "place")], rows)


def _over_cases(study: Study, ranked: Mapping[str, Mapping[str, Ranking]]) -> Iterator[Text]:
    """Yield the table of all cases: under each metric how often an arm is the best, and how bad it gets."""
    title = f"{study.name}: in how many of {len(ranked)} cases an arm is the best for sure, and in how many it may be;"
    yield Text(f"{title} the best and the worst place left open to it (95 % for all places of a case)", "bold")
    arms = next(iter(next(iter(ranked.values())).values()))
    rows = []
    for arm in arms:
        standings = [standing(ranked[case][metric][arm] for case in ranked) for metric in study.run.rank_by]
        cells = [cell for of in standings for cell in (_span(of.surely_first, of.maybe_first), _open(of))]
        rows.append([arm, *cells])
    yield from _grid([cell for metric in study.run.rank_by for cell in (f"{metric}  best", "places")], rows)


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    widths = [max(map(len, column)) for column in zip(["", *header], *rows, strict=True)]
    yield Text(f"  {_aligned(['', *header], widths)}".rstrip(), style="dim")
    for row in rows:
        yield Text(f"  {_aligned(row, widths)}".rstrip())
    yield Text()


def _headed(metric: str) -> str:
    unit = _scale(metric)[1]
    return f"{metric}  {unit}" if unit else metric


def _middle(places: Places | None) -> float:
    return math.inf if places is None else places.first + places.last


def _place(places: Places | None) -> str:
    return "-" if places is None else _span(places.first, places.last)


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}..{high}"


def _open(of: Standing) -> str:
    return f"{_place(of.places)}{f', none in {of.unplaced}' if of.unplaced else ''}"


def _table(study: Study, results: Results) -> Iterator[Text]:
    """Yield the lines of the table, a block of them for each metric; metrics that are 0 under every arm share one."""
    yield Text(_title(study.name, results), style="bold")
    stable = [arm for arm in results.arms.values() if arm.status != "unstable"]
    blocks, zero = {}, []
    for metric in HEADLINE:
        means = [arm.metrics[metric].mean for arm in stable]
        if any(means):
            blocks[metric] = [_row(results, name, metric) for name in results.arms]
        elif means and None not in means:
            zero.append(metric)
    header = ("", "mean", *(("difference", "ratio", "verdict") if len(results.arms) > 1 else ()))
    columns = zip(header, *(row for block in blocks.values() for row in block), strict=True)
    widths = [max(map(len, column)) for column in columns]
    yield Text(_aligned(header, widths).rstrip(), style="dim")
    for metric, block in blocks.items():
        about = ", ".join(filter(None, (_scale(metric)[1], _direction(metric))))
        yield Text(metric, style="bold").append(f"  {about}", style="not bold dim")
        for row in block:
            *cells, verdict = row if len(row) > 2 else (*row, "")
            line = Text(_aligned(cells, widths))
            line.append(verdict, style=COLOUR.get(verdict, ""))
            line.rstrip()
            yield line
    if zero:
        which = "" if len(stable) == len(results.arms) else "stable "
        yield Text(f"0 under every {which}arm: {', '.join(zero)}", style="dim")
    yield Text()


def _direction(metric: str) -> str:
    better = METRICS[metric].better
    return f"{better} is better" if better else ""


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=False))


def _row(results: Results, name: str, metric: str) -> tuple[str, ...]:
    """Return the cells of an arm: its name, its mean; with several arms difference, ratio and verdict."""
    arm, comparison = results.arms[name], results.comparisons.get((name, metric))
    scale, _ = _scale(metric)
    cells = (f"  {name}", _value(arm, metric))
    if len(results.arms) == 1:
        return cells
    if comparison is None or comparison.difference.mean is None:
        return (*cells, "", "", "")
    undirected = METRICS[metric].better is None and comparison.verdict == "undecided"
    verdict = "" if undirected else comparison.verdict
    return (*cells, _estimate(comparison.difference, scale, "+"), _ratio(comparison.ratio), verdict)


def _value(arm: ArmResult, metric: str) -> str:
    return "unstable" if arm.status == "unstable" else _estimate(arm.metrics[metric], _scale(metric)[0])


def csv(*found: Results) -> str:
    """Return every metric of every arm as CSV, with its difference from the first arm."""
    text = io.StringIO()
    writer = csv_format.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for results in found:
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


def exit_code(study: Study, *found: Results) -> int:
    """Return 3 if a threshold failed, else 4 if one is undecided, else 0."""
    outcomes = {outcome for results in found for _, _, outcome in thresholds(study, results)}
    return FAILED if "fail" in outcomes else UNDECIDED if "undecided" in outcomes else 0


def _ends(interval: Interval) -> list[float | None]:
    return [interval.mean, interval.low, interval.high]


def _title(name: str, results: Results) -> str:
    begin, end = results.window_s
    span = "the whole trace" if end == float("inf") and begin == 0 else f"calls from {begin:,.0f} s"
    span += "" if end == float("inf") else f" to {end:,.0f} s"
    if results.replications == 1:
        return f"{name}: {span}, one replication: no intervals"
    return f"{name}: {span}, {results.replications} replications with common random numbers; 95 % intervals"


def _answers(results: Results) -> Iterator[Text]:
    """Yield, for each arm, in what it is better and in what worse than the first, by how much, and what is open."""
    baseline, *others = results.arms
    width, most = max(map(len, COLOUR)), max(map(len, ANSWERS.values()))
    for name in others:
        yield Text(f"{name} against {baseline}", style="bold")
        if "unstable" in (results.arms[name].status, results.arms[baseline].status):
            unstable = name if results.arms[name].status == "unstable" else baseline
            yield Text(f"  no verdict: {unstable} is unstable", style="red")
            continue
        found = [(words, metric, results.comparisons[name, metric]) for metric, words in ANSWERS.items()]
        for verdict, colour in COLOUR.items():
            label = verdict
            for words, metric, comparison in found:
                if comparison.verdict == verdict and comparison.difference.mean is not None:
                    scale, unit = _scale(metric)
                    amount = f"{_estimate(comparison.difference, scale, '+')} {'points' if unit == '%' else unit}"
                    yield Text(f"  {label:<{width}}", style=colour).append(f"  {words:<{most}}  {amount}", "default")
                    label = ""


def _sensitivity(study: Study, found: Mapping[str, Results]) -> Iterator[Text]:
    """Yield what each assumption leaves of the orders, and of the answers that do not survive all of them."""
    left = survivals(study, found)
    if not left:
        return
    results = found[""]
    rows = []
    for metric in study.run.rank_by:
        sure = len(order("", results, metric, study.run.same_within))
        pairs = math.comb(len(results.arms), 2)
        cells = [survival.orders[metric] or "-" for survival in left.values()]
        rows.append([f"order by {metric}", f"{sure} of {pairs} pairs sure", *cells])
    decided = [
        (arm, metric)
        for arm in results.arms
        for metric in ANSWERS
        if (arm, metric) in results.comparisons and results.comparisons[arm, metric].verdict != "undecided"
    ]
    firm = 0
    for arm, metric in decided:
        fates = {name: survival.verdicts[arm, metric] for name, survival in left.items()}
        if set(fates.values()) == {"survives"}:
            firm += 1
        else:
            shown = [f if (f"{n}/{arm}", metric) in found[n].comparisons else "unstable" for n, f in fates.items()]
            rows.append([f"{arm}: {ANSWERS[metric]}", results.comparisons[arm, metric].verdict, *shown])
    title = f"what other assumptions leave of it: {firm} of {len(decided)} decided answers survive them all"
    yield Text(title, style="bold")
    yield from _grid(["as written", *left], rows)


def _scale(metric: str) -> tuple[float, str]:
    """Return by what a metric is multiplied for reading, and the unit it then has."""
    unit = METRICS[metric].unit
    if metric.startswith(("request.tpot_s", "request.itl_s")):
        return 1e3, "ms"
    if unit == "token s":
        return 1e-3, "thousand token s"
    if "share" in metric or metric in ("slo.attainment", "prefix.hit_rate"):
        return 100.0, "%"
    return 1.0, "" if unit == "1" else unit


def _estimate(interval: Interval, scale: float, sign: str = "") -> str:
    """Return mean and half-width, no more digits than the interval has: ``28.4 ± 5.5``."""
    if interval.mean is None:
        return "-"
    mean, half = scale * interval.mean, interval.half_width
    if half is None:
        return _number(mean, sign if mean else "")
    half *= scale
    if half == 0:
        return f"{_number(mean, sign if mean else '')} ± 0"
    digits = 1 - math.floor(math.log10(half))
    return f"{round(mean, digits) + 0.0:{sign},.{max(digits, 0)}f} ± {round(half, digits):,.{max(digits, 0)}f}"


def _ratio(ratio: Interval) -> str:
    if ratio.mean is None:
        return ""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.mean:.3g}"
    gap = ratio.high - ratio.low
    digits = 2 if gap <= 0 else min(max(2, 1 - math.floor(math.log10(gap))), 4)
    return f"{ratio.mean:.{digits}f} [{ratio.low:.{digits}f}, {ratio.high:.{digits}f}]"


def _number(value: float, sign: str = "") -> str:
    size = abs(value)
    return f"{value:{sign},.0f}" if size >= 1000 or size == 0 else f"{value:{sign}.3g}"
