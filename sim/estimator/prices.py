"""What the prices of estimators look like: a CSV table, Markdown, a picture."""

from __future__ import annotations

import csv as csv_format
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from policies.context import Document001
from sim.estimator.price import AGENTS, EVERY, EXACT, METRICS, PROVIDERS, Priced
from sim.sessions.conclude import Estimate


def csv(prices: Sequence[Priced]) -> str:
    """Return every row with every metric and its interval as a CSV table."""
    text = io.StringIO()
    names = [*METRICS, *(f"{name}_ratio" for name in prices[0].ratios)]
    columns = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    writer = csv_format.writer(text, lineterminator="\n")
    writer.writerow(("class", "script", "tokenizer", "estimator", "sessions", *columns))
    for row in prices:
        cells = [
            "" if value is None else f"{value:.6g}"
            for estimate in (*row.values.values(), *row.ratios.values())
            for value in (estimate.mean, estimate.low, estimate.high)
        ]
        writer.writerow((row.class_, row.script, row.tokenizer, row.estimator, row.sessions, *cells))
    return text.getvalue()


def _with_interval(value: Estimate, form: Callable[[float], str]) -> str:
    if value.mean is None:
        return "-"
    if value.low is None or value.high is None:
        return form(value.mean)
    return f"{form(value.mean)} ({form(value.low)} to {form(value.high)})"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _signed(value: float) -> str:
    return f"{100 * value:+.0f} %"


def _thousands(value: float) -> str:
    return f"{value / 1000:.0f}k"


def _factor(value: float) -> str:
    return f"{value:.2f}"


_FORMS: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = {
    "refused": ("refused", _percent),
    "given_up": ("given up", _percent),
    "overestimate": ("estimate", _signed),
    "early_tokens": ("cleared early", _thousands),
    "lost_tokens": ("lost", _thousands),
    "prefill_tokens": ("prefill", _factor),
    "cost": ("cost", _factor),
}
HEADINGS: Final = tuple(heading for heading, _ in _FORMS.values())


def cells(row: Priced) -> list[str]:
    """Return what a table shows of a row, under `HEADINGS`: prefill and cost as factors on exact counting."""
    found = {**row.values, **row.ratios}
    return [_with_interval(found[name], form) for name, (_, form) in _FORMS.items()]


def everything(prices: Sequence[Priced]) -> list[Priced]:
    """Return the rows of all texts together, one a server and estimator."""
    return [row for row in prices if row.script == EVERY]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows))


def document(prices: Sequence[Priced], command: str) -> dict[str, Any]:
    """Return everything as plain values."""
    about = {name: metric.about for name, metric in METRICS.items()}
    return {"command": command, "metrics": about, "rows": [row.content() for row in prices]}


_PAGE: Final = """# What a wrong estimator costs

`{command}` makes this folder. `prices.csv` has every class of text and
every metric, `summary.json` all texts together and what each metric is.

Agents act out {sessions:,} sessions an estimator and server: one instruction and {rounds} tool rounds. They fit their
context by document 001 ({reading}) to {budget:,} tokens *as the estimator counts*; the server refuses a prompt of more
than {budget:,} tokens *as its tokenizer counts*. Sessions are the same under every estimator; each message is cut from
one of the texts.

- *refused*: share of the sessions that ended because the server refused a request;
- *given up*: share that the policy itself refused, since the estimates left no room;
- *estimate*: by how much the estimates of all requests that were sent exceed their true tokens;
- *cleared early*: tokens a session that were cleared from requests which would have fitted whole;
- *lost*: prompt tokens a session that were computed before it was refused or given up;
- *prefill*: prompt tokens computed, those found in the cache not counted; *cost*: of the input, at the cache prices of
  a provider ({providers}); both of the sessions that finish under both
  estimators, as a factor on exact counting.

Intervals are at 95 % over sessions: Wilson's for shares, else paired bootstrap. They say nothing about other texts.

![Sessions refused, and prefill, by script and estimator](prices.png)

Red: share of the sessions refused. Blue: prefill as a factor on exact counting. Grey: share given up, where most were.
"""


def page(prices: Sequence[Priced], command: str, budget: int) -> str:
    """Return a page in Markdown: what was done, and the tables."""
    together = everything(prices)
    parts = [
        _PAGE.format(
            command=command,
            sessions=together[0].sessions,
            rounds=AGENTS.rounds,
            reading=Document001().clear_to,
            budget=budget,
            providers=", ".join(f"{tokenizer}: {provider}" for tokenizer, provider in PROVIDERS.items()),
        ),
        "## All texts together\n",
        _table(("server counts with", "estimator", *HEADINGS), [(row.tokenizer, *_line(row)) for row in together]),
    ]
    for tokenizer in dict.fromkeys(row.tokenizer for row in prices):
        rows = [(name_of(row), *_line(row)) for row in _by_script(prices) if row.tokenizer == tokenizer]
        parts.append(f"\n## By script, server counts with {tokenizer}\n\nTexts in ASCII by class.\n")
        parts.append(_table(("script", "estimator", *HEADINGS), rows))
    return "\n".join(parts) + "\n"


def _line(row: Priced) -> tuple[str, ...]:
    return f"`{row.estimator}`", *cells(row)


def name_of(row: Priced) -> str:
    """Return what a row stands for in a table by script: the script; in ASCII the class."""
    return row.class_ if row.script == "ascii" else row.script


def _by_script(prices: Sequence[Priced]) -> list[Priced]:
    """Return the rows of estimators that stand for a script: all its classes or its only one; in ASCII every class."""
    several = {row.script for row in prices if row.class_ == EVERY} - {"ascii"}
    return [
        row
        for row in prices
        if row.estimator != EXACT and row.script != EVERY and (row.class_ == EVERY) is (row.script in several)
    ]


def picture(prices: Sequence[Priced], file: Path) -> None:
    """Draw every script and estimator, a panel a server: red the share refused, blue the prefill as a factor."""
    shown = _by_script(prices)
    servers = list(dict.fromkeys(row.tokenizer for row in shown))
    names = list(dict.fromkeys(map(name_of, shown)))
    figure = Figure(figsize=(2.4 + 3.4 * len(servers), 1.9 + 0.23 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(servers), sharey=True, squeeze=False)[0]
    for axes, server in zip(panels, servers, strict=True):
        rows = [row for row in shown if row.tokenizer == server]
        estimators = list(dict.fromkeys(row.estimator for row in rows))
        values = np.full((len(names), len(estimators)), np.nan)
        for row in rows:
            at = names.index(name_of(row)), estimators.index(row.estimator)
            values[at], said = _shade(row)
            dark = abs(values[at]) > 0.7
            axes.text(at[1], at[0], said, ha="center", va="center", fontsize=6, color="white" if dark else "black")
        image = axes.imshow(values, cmap="RdBu", norm=TwoSlopeNorm(0, -1, 1), aspect="auto")
        axes.set_facecolor("0.85")
        axes.set_xticks(range(len(estimators)), estimators, rotation=35, ha="right", fontsize=8)
        axes.set_title(f"server counts with {server}", fontsize=9)
    panels[0].set_yticks(range(len(names)), names, fontsize=7)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.5, ticks=(-1, -0.5, 0, 0.5, 1))
    bar.ax.set_yticklabels(("100 % refused", "50 %", "as exact", "prefill x2", "x4"), fontsize=8)
    figure.savefig(file, dpi=120)


def _shade(row: Priced) -> tuple[float, str]:
    """Return where a row lies between all refused (-1) and four times the prefill (1), and what is written there."""
    refused, given_up = row.values["refused"].mean, row.values["given_up"].mean
    prefill = row.ratios["prefill_tokens"].mean
    assert refused is not None
    assert given_up is not None
    if refused:
        return -refused, f"{100 * refused:.0f} %"
    if prefill is None or given_up > 0.5:
        return np.nan, f"{100 * given_up:.0f} %"
    return float(np.clip(np.log2(prefill) / 2, 0, 1)), f"x{prefill:.2f}"
