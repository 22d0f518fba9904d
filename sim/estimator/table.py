"""Evaluations as tables on a terminal, as plain columns elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from sim.estimator.evaluate import MAX, Evaluation, Row
from sim.estimator.learn import Factors
from sim.estimator.price import Priced
from sim.estimator.prices import HEADINGS, cells, everything

UNDER_ALLOWED: Final = 0.01
MEAN_ALLOWED: Final = 0.25
WORST_ALLOWED: Final = -0.15
"""The promise of docs/estimators.md: what breaks it is red."""


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 200
    return console


def _cell(text: str, broken: bool) -> str:
    return f"[bold red]{text}[/]" if broken else text


def _interval(bounds: Sequence[float], form: str) -> str:
    return " to ".join(format(100 * bound, form) for bound in bounds)


def _cells(row: Row) -> tuple[str, ...]:
    low, high = row.under_interval
    return (
        str(row.chunks),
        f"{row.chars_per_token:.2f}",
        _cell(f"{100 * row.under_share:.1f}", row.under_share > UNDER_ALLOWED),
        f"{100 * low:.1f}-{100 * high:.1f}",
        _cell(f"{100 * row.mean_error:+.1f}", row.mean_error > MEAN_ALLOWED or row.mean_error < 0),
        f"{100 * row.p1_error:+.1f}",
        f"{100 * row.p99_error:+.1f}",
        _cell(f"{100 * row.worst_error:+.1f}", row.worst_error < WORST_ALLOWED),
    )


def print_evaluation(evaluation: Evaluation) -> None:
    """Print the rows against the largest count, then the overall line and the speeds."""
    table = Table(title=f"{evaluation.estimator} against {', '.join(evaluation.tokenizers)} (%)", title_justify="left")
    for name in ("class", "tokenizer"):
        table.add_column(name, no_wrap=True)
    for name in ("chunks", "chars/token", "under", "95 %", "mean", "p1", "p99", "worst"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in evaluation.rows:
        if row.tokenizer == MAX or len(evaluation.tokenizers) > 1:
            table.add_row(row.class_, row.tokenizer, *_cells(row), end_section=row.tokenizer == MAX)
    table.add_row("all", MAX, *_cells(evaluation.overall))
    console = _console()
    console.print(table)
    low, high = evaluation.mean_interval
    console.print(
        f"overall: under-estimated {100 * evaluation.overall.under_share:.2f} % of {evaluation.overall.chunks} chunks, "
        f"mean {100 * evaluation.overall.mean_error:+.1f} % (95 %: {100 * low:+.1f} to {100 * high:+.1f}, resampling "
        f"classes), worst {100 * evaluation.overall.worst_error:+.1f} %"
    )
    speeds = ", ".join(f"{name} {value:.3g}" for name, value in evaluation.speed.items())
    console.print(f"MB of UTF-8 a second, this run: {speeds}")


def print_validation(report: Mapping[str, Any]) -> None:
    """Print what cross-validation found, one line a profile and way."""
    table = Table(title="two-way cross-validation, ordinary classes (%)", title_justify="left")
    for name in ("profile", "folds"):
        table.add_column(name, no_wrap=True)
    for name in ("margins", "chunks", "under", "95 %", "mean", "95 %", "worst", "worst class"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in report["validation"]:
        table.add_row(
            line["profile"],
            line["folds"],
            line["margins"],
            str(line["chunks"]),
            _cell(f"{100 * line['under_share']:.2f}", line["under_share"] > UNDER_ALLOWED),
            _interval(line["under_interval"], ".1f"),
            _cell(f"{100 * line['mean_error']:+.1f}", line["mean_error"] > MEAN_ALLOWED),
            _interval(line["mean_interval"], "+.1f"),
            _cell(f"{100 * line['worst_error']:+.1f}", line["worst_error"] < WORST_ALLOWED),
            f"{100 * line['worst_class_under']:.0f} {line['worst_class']}",
        )
    _console().print(table)


def print_factors(report: Factors) -> None:
    """Print the factor of each content class with its interval."""
    table = Table(title=f"{report.table}: tokens against estimate, by content class", title_justify="left")
    table.add_column("class", no_wrap=True)
    for name in ("requests", "factor", "95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    for factor in report.factors:
        table.add_row(
            factor.class_, str(factor.requests), f"{factor.factor:.3f}", f"{factor.low:.3f}-{factor.high:.3f}"
        )
    _console().print(table)


def print_prices(prices: Sequence[Priced]) -> None:
    """Print what the estimators cost on all texts together, one line a server and estimator."""
    table = Table(
        title=f"{everything(prices)[0].sessions:,} sessions an estimator, 95 % intervals", title_justify="left"
    )
    table.add_column("server", no_wrap=True)
    table.add_column("estimator", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for row in everything(prices):
        table.add_row(row.tokenizer, row.estimator, *cells(row))
    _console().print(table)
