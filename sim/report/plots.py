"""Pictures of an experiment: latency distributions by arm, the KV pool and the queue over time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator
from numpy.typing import NDArray

from sim.experiment import ArmResult, Results
from sim.metrics import METRICS
from sim.replication import Replication, answered, served, span_s
from sim.rows import Chosen
from sim.study import Study

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
"""Okabe and Ito's palette, which colour-blind readers tell apart; dashes tell the arms apart in print."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1)))

SHARES = np.unique(np.concatenate([np.linspace(0, 0.99, 199), 1 - np.geomspace(0.01, 1e-5, 60), [1.0]]))
"""Where a distribution is kept: a picture needs no more, whatever the number of calls."""

NAMES = ("latency", "kv", "queue")
"""The pictures."""

Floats = NDArray[np.floating[Any]]


LATENCIES = {
    "call.e2e_s": "time of a call",
    "request.ttft_s": "time to first token of a request",
}
"""The durations that are drawn, with their words."""


@dataclass(slots=True)
class Sketch:
    """What the pictures need of every replication, so that none has to be kept.

    Attributes
    ----------
    quantiles
        By arm and duration: quantiles at :data:`SHARES`, one row a replication.
    levels
        By arm: time (s) and means over each interval of the grid of the first replication.
    """

    quantiles: dict[str, dict[str, list[Floats]]] = field(default_factory=dict)
    levels: dict[str, dict[str, Floats]] = field(default_factory=dict)

    def take(self, arm: str, run: Replication) -> None:
        """Note a replication."""
        rows = {"call": answered(Chosen.every(run.calls)), "request": served(Chosen.every(run.requests))}
        kept = self.quantiles.setdefault(arm, {})
        for name in LATENCIES:
            values = span_s(name, rows[name.partition(".")[0]])
            if len(values):
                kept.setdefault(name, []).append(np.quantile(values, SHARES))
        if arm not in self.levels:
            series = run.series
            spans = np.diff(series.time_s)
            keep = spans > 0
            levels = {"time": np.append(series.time_s[:-1][keep], series.time_s[-1])}
            for name in ("running", "waiting", "reserved", "used"):
                levels[name] = np.diff(getattr(series, name))[keep] / spans[keep]
            levels["reserved"] = levels["reserved"] / run.kv_tokens
            levels["used"] = levels["used"] / run.kv_tokens
            self.levels[arm] = levels


def draw(sketch: Sketch, results: Results, path_of: Mapping[str, Path]) -> None:
    """Write the pictures ``latency``, ``kv`` and ``queue`` as PNG to the paths given for these names."""
    _latency(sketch, results).savefig(path_of["latency"], dpi=130)
    _pool(sketch, results).savefig(path_of["kv"], dpi=130)
    _queue(sketch, results).savefig(path_of["queue"], dpi=130)


def draw_cases(study: Study, found: Mapping[str, Results], path: Path) -> None:
    """Write a picture of every case as PNG: what its arms are ranked by first, with intervals."""
    metric = study.run.rank_by[0]
    title = f"{study.name}: {metric}, {METRICS[metric].unit}; 95 % intervals; {METRICS[metric].better} is better"
    columns = min(3, len(found))
    rows = math.ceil(len(found) / columns)
    arms = max(len(results.arms) for results in found.values())
    size = (3.7 * columns + 1.2, 0.6 + rows * (0.7 + 0.17 * arms))
    figure, axes = _figure(rows, columns, title, size)
    for panel, (one, (case, results)) in enumerate(zip(axes, found.items(), strict=False)):
        names = [name.removeprefix(f"{case}/") for name in results.arms]
        for place, arm in enumerate(results.arms.values()):
            interval = arm.metrics[metric]
            if interval.mean is None:
                one.annotate(arm.status, (0.02, place), xycoords=("axes fraction", "data"), fontsize=7, va="center")
                continue
            half = interval.half_width or 0.0
            one.errorbar(interval.mean, place, xerr=half, fmt="o", markersize=4, color=COLOURS[place % len(COLOURS)])
        one.set_title(case, fontsize=9, loc="left", fontweight="bold")
        one.set_yticks(range(len(names)), [] if panel % columns else names)
        one.set_ylim(len(names) - 0.5, -0.5)
    for one in axes[len(found) :]:
        one.remove()
    figure.savefig(path, dpi=130)


def _figure(rows: int, columns: int, title: str, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", wrap=True)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=columns == 1).flatten().tolist()
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25, linewidth=0.6)
        one.set_axisbelow(True)
        one.tick_params(labelsize=8)
    return figure, axes


def _finding(results: Results, metric: str) -> str:
    """Return the verdicts on a metric in words: who is better than the first arm, who is worse."""
    baseline = next(iter(results.arms))
    arms: dict[str, list[str]] = {}
    for (name, compared), comparison in results.comparisons.items():
        if compared == metric:
            arms.setdefault(comparison.verdict, []).append(name)
    words = {
        "better": "shorter with {} than with {}",
        "worse": "longer with {} than with {}",
        "same": "the same with {} as with {}",
        "undecided": "no verdict on {} against {}",
    }
    parts = (text.format(_listed(arms[verdict]), baseline) for verdict, text in words.items() if verdict in arms)
    return "; ".join(parts)


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if len(names) <= 3 else f"{len(names)} arms"


def _latency(sketch: Sketch, results: Results) -> Figure:
    title = "How long calls take, and how long their first tokens (mean of all replications, warm-up included)"
    figure, axes = _figure(1, len(LATENCIES), title, (10.5, 4.4))
    for one, (name, words) in zip(axes, LATENCIES.items(), strict=True):
        longest = []
        for index, (arm, durations) in enumerate(sketch.quantiles.items()):
            if name in durations:
                mean = np.maximum(np.mean(durations[name], axis=0), 1e-3)
                longest.append(float(mean[-1]))
                one.plot(
                    mean,
                    np.maximum(1 - SHARES, 1e-5),
                    label=arm,
                    color=COLOURS[index % len(COLOURS)],
                    linestyle=DASHES[index % len(DASHES)],
                    linewidth=1.8,
                )
        finding = _finding(results, f"{name}.p99")
        if finding:
            one.set_title(f"99th percentile: {finding}", fontsize=9, loc="left", wrap=True)
        one.axhline(0.01, color="#555555", linewidth=0.8, alpha=0.6)
        one.set_xscale("log")
        one.set_yscale("log")
        one.set_ylim(1e-3, 1.2)
        one.set_xlabel(f"{words}, seconds", fontsize=9)
        one.set_yticks([1, 0.5, 0.1, 0.05, 0.01, 0.001], ["all", "50 %", "10 %", "5 %", "1 %", "0.1 %"])
        one.minorticks_off()
        one.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
    axes[0].set_ylabel("share that takes longer", fontsize=9)
    axes[0].legend(fontsize=9, frameon=False, loc="lower left")
    return figure


def _pool(sketch: Sketch, results: Results) -> Figure:
    """Draw one row an arm: what is reserved of the pool, and what of it is stored."""
    shares = (f"{name} {_percent(arm, 'kv.overreservation')}" for name, arm in results.arms.items())
    title = f"Share of the reserved KV that is used: {', '.join(shares)}"
    figure, axes = _rows(sketch, results, title)
    for one, levels in zip(axes, sketch.levels.values(), strict=True):
        one.stairs(levels["reserved"], levels["time"], fill=True, color=COLOURS[5], alpha=0.55, label="reserved")
        one.stairs(levels["used"], levels["time"], fill=True, color=COLOURS[0], label="used")
        one.set_ylim(0, 1.0)
        one.set_yticks([0, 0.5, 1.0], ["0", "50 %", "100 %"])
    _legend(figure, axes)
    return figure


def _percent(arm: ArmResult, metric: str) -> str:
    mean = arm.metrics[metric].mean
    return "unknown" if not mean else f"{1 / mean:.0%}"


def _queue(sketch: Sketch, results: Results) -> Figure:
    """Draw one row an arm, all on one scale: who runs, and on top who waits."""
    means = ((name, arm.metrics["waiting.mean"].mean) for name, arm in results.arms.items())
    parts = (f"{name} {'without end' if mean is None else f'{mean:.2g}'}" for name, mean in means)
    figure, axes = _rows(sketch, results, f"Requests that wait on average: {', '.join(parts)}")
    most = max(float(np.max(levels["running"] + levels["waiting"], initial=1.0)) for levels in sketch.levels.values())
    for one, levels in zip(axes, sketch.levels.values(), strict=True):
        both = levels["running"] + levels["waiting"]
        one.stairs(both, levels["time"], fill=True, color=COLOURS[1], label="waiting")
        one.stairs(levels["running"], levels["time"], fill=True, color=COLOURS[0], label="running")
        one.set_ylim(0, 1.05 * most)
        one.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    _legend(figure, axes)
    return figure


def _rows(sketch: Sketch, results: Results, title: str) -> tuple[Figure, list[Axes]]:
    """Return a row of axes for each arm over simulated time, what is not measured shaded."""
    figure, axes = _figure(len(sketch.levels), 1, title, (10.5, 1.4 + 1.35 * len(sketch.levels)))
    end = max(float(levels["time"][-1]) for levels in sketch.levels.values())
    unit, scale = ("hours", 3600.0) if end > 4 * 3600 else ("minutes", 60.0) if end > 300 else ("seconds", 1.0)
    first, last = results.window_s
    for one, arm in zip(axes, sketch.levels, strict=True):
        one.set_title(arm, fontsize=9, loc="left", fontweight="bold")
        for begin, stop in ((0, first), (last, end)):
            if begin < stop:
                one.axvspan(begin, stop, color="#777777", alpha=0.18, linewidth=0)
        one.set_xlim(0, end)
        one.xaxis.set_major_locator(MultipleLocator(_spacing(end / scale) * scale))
        one.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / scale:g}"))
    axes[-1].set_xlabel(f"simulated {unit} of the first replication; shaded: not measured", fontsize=9)
    return figure, axes


def _spacing(end: float) -> float:
    """Return a round distance of ticks that gives about ten of them."""
    power = 10.0 ** math.floor(math.log10(end / 10))
    return next(step * power for step in (1, 2, 3, 5, 10) if step * power >= end / 10)


def _legend(figure: Figure, axes: list[Axes]) -> None:
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, fontsize=9, frameon=False)
