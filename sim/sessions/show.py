"""A study of sessions as JSON and as a table."""

from __future__ import annotations

import csv as csv_format
import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.sessions.conclude import METRICS, Conclusion, Estimate
from sim.study.about import origin

if TYPE_CHECKING:
    from rich.table import Table

    from sim.study import Study

COLUMNS = {
    "finished": "finished",
    "hit_rate": "hit rate",
    "rewritten_tokens": "rewritten",
    "ttft_s": "TTFT",
    "duration_s": "duration",
    "cost.anthropic-5min": "Anthropic 5 min",
    "cost.openai": "OpenAI",
    "cost.deepseek": "DeepSeek",
}
"""What the table shows: shares as they are, the rest as a factor on the first arm."""

_SHARES = ("finished", "hit_rate")


def document(study: Study, conclusion: Conclusion, command: str) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "study": study.name,
        "seed": study.seed,
        "command": command,
        "sessions": conclusion.sessions,
        "compared": conclusion.compared,
        "reference": conclusion.reference,
        "metrics": {name: metric.about for name, metric in METRICS.items()},
        "arms": {
            arm: {
                "policy": _policy(study, arm),
                "provenance": origin(study.arms[arm]),
                "largest_prompt": conclusion.largest_prompt[arm],
                "largest_estimate": conclusion.largest_estimate[arm],
                "metrics": {name: dataclasses.asdict(value) for name, value in conclusion.metrics[arm].items()},
                "ratios": {name: dataclasses.asdict(value) for name, value in conclusion.ratios[arm].items()},
                "scripts": conclusion.scripts[arm],
            }
            for arm in study.arms
        },
    }


def csv(conclusion: Conclusion) -> str:
    """Return every metric of every arm as a CSV table."""
    text = io.StringIO()
    writer = csv_format.writer(text, lineterminator="\n")
    writer.writerow(("arm", "metric", "mean", "low", "high", "ratio", "ratio_low", "ratio_high"))
    for arm, metrics in conclusion.metrics.items():
        for name, value in metrics.items():
            writer.writerow(
                (arm, name, *dataclasses.astuple(value), *dataclasses.astuple(conclusion.ratios[arm][name]))
            )
    return text.getvalue()


def _policy(study: Study, arm: str) -> dict[str, Any]:
    table = study.arms[arm].policy_context
    return {"name": "none"} if table is None else {"name": table.chosen, **table.constants}


def table(study: Study, conclusion: Conclusion) -> Table:
    """Return the table for people."""
    from rich import box
    from rich.table import Table

    shown = Table(
        box=box.SIMPLE_HEAD,
        title=f"{study.name}: {conclusion.sessions:,} sessions; costs and times of the {conclusion.compared:,} that "
        f"finish under every arm that can, as factors on {conclusion.reference}, with 95 % intervals",
        title_justify="left",
        title_style="bold",
    )
    shown.add_column("arm", no_wrap=True)
    for heading in (*COLUMNS.values(), "largest prompt"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for arm in study.arms:
        cells = [
            _share(conclusion.metrics[arm][name]) if name in _SHARES else _factor(conclusion.ratios[arm][name])
            for name in COLUMNS
        ]
        shown.add_row(arm, *cells, f"{conclusion.largest_prompt[arm]:,}")
    return shown


def _share(value: Estimate) -> str:
    if value.mean is None:
        return "-"
    spread = "" if value.low is None or value.high is None else f" [{value.low:.3f}, {value.high:.3f}]"
    return f"{value.mean:.4f}{spread}"


def _factor(value: Estimate) -> str:
    if value.mean is None:
        return "-"
    spread = "" if value.low is None or value.high is None else f" [{value.low:.2f}, {value.high:.2f}]"
    return f"{value.mean:.3f}{spread}"


def plot(conclusion: Conclusion, path: Path) -> None:
    """Draw what every arm costs as factors on the first, with intervals, into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = {
        "ttft_s": "time to first token",
        "duration_s": "session duration",
        "cost.anthropic-5min": "input cost, Anthropic 5 min",
        "cost.deepseek": "input cost, DeepSeek",
    }
    arms = list(conclusion.ratios)
    figure = Figure(figsize=(8.5, 1.6 + 0.34 * len(arms)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for place, (name, label) in enumerate(shown.items()):
        heights, middles, spreads = [], [], []
        for row, arm in enumerate(arms):
            value = conclusion.ratios[arm][name]
            if value.mean is None:
                continue
            low, high = value.low or value.mean, value.high or value.mean
            heights.append(row + (place - 1.5) * 0.17)
            middles.append(value.mean)
            spreads.append((max(0.0, value.mean - low), max(0.0, high - value.mean)))
        if middles:
            axes.errorbar(middles, heights, xerr=list(zip(*spreads, strict=True)), fmt="o", markersize=4, label=label)
    axes.axvline(1.0, color="0.6", linewidth=1, zorder=0)
    axes.set_yticks(range(len(arms)), arms)
    axes.set_ylim(len(arms) - 0.4, -0.6)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 4, 8) if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.set_xlabel(f"factor on {conclusion.reference}, 95 % interval over {conclusion.compared:,} sessions")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=120)
