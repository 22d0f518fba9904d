"""Pictures of an experiment: latency distributions by arm, the KV pool and the queue over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from sim.replication import Replication

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
"""Okabe and Ito's palette, which colour-blind readers tell apart; dashes tell the arms apart in print."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1)))

SHARES = np.unique(np.concatenate([np.linspace(0, 0.99, 199), 1 - np.geomspace(0.01, 1e-5, 60), [1.0]]))
"""Where a distribution is kept: a picture needs no more, whatever the number of calls."""

NAMES = ("latency", "kv", "queue")
"""The pictures."""

Floats = NDArray[np.floating[Any]]


@dataclass(slots=True)
class Sketch:
    """What the pictures need of every replication, so that none has to be kept.

    Attributes
    ----------
    quantiles
        By arm and duration: quantiles at :data:`SHARES`, one row a replication.
    levels
        By arm: time (s) and means over each interval of the grid of the first replication.
    window_s
        Start and end of what is measured; a grey band shows the rest.
    """

    quantiles: dict[str, dict[str, list[Floats]]] = field(default_factory=dict)
    levels: dict[str, dict[str, Floats]] = field(default_factory=dict)

    def take(self, arm: str, run: Replication) -> None:
        """Note a replication."""
        served = run.requests[run.requests["refusal"] == 0]
        durations = {
            "time to first token": served["first_token_s"] - served["submitted_s"],
            "end to end, of a call": run.calls["finished_s"] - run.calls["arrival_s"],
        }
        kept = self.quantiles.setdefault(arm, {})
        for name, values in durations.items():
            if len(values):
                kept.setdefault(name, []).append(np.quantile(values, SHARES))
        if arm not in self.levels:
            series = run.series
            spans = np.diff(series.time_s)
            keep = spans > 0
            levels = {"time": series.time_s[:-1][keep]}
            for name in ("running", "waiting", "reserved", "used"):
                levels[name] = np.diff(getattr(series, name))[keep] / spans[keep]
            levels["reserved"] = levels["reserved"] / run.kv_tokens
            levels["used"] = levels["used"] / run.kv_tokens
            self.levels[arm] = levels


def draw(sketch: Sketch, window_s: tuple[float, float], path_of: Mapping[str, Path]) -> None:
    """Write the pictures ``latency``, ``kv`` and ``queue`` as PNG to the paths given for these names."""
    _latency(sketch).savefig(path_of["latency"], dpi=130)
    _over_time(sketch, window_s, "kv").savefig(path_of["kv"], dpi=130)
    _over_time(sketch, window_s, "queue").savefig(path_of["queue"], dpi=130)


def _figure(rows: int, columns: int, title: str, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(9.6, height), layout="constrained")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25, linewidth=0.6)
        one.tick_params(labelsize=8)
    return figure, axes


def _style(index: int) -> dict[str, Any]:
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)], "linewidth": 1.5}


def _latency(sketch: Sketch) -> Figure:
    names = list(dict.fromkeys(name for arm in sketch.quantiles.values() for name in arm))
    figure, axes = _figure(1, max(len(names), 1), "Share of requests and calls that took longer", 3.6)
    for one, name in zip(axes, names, strict=False):
        for index, (arm, durations) in enumerate(sketch.quantiles.items()):
            if name in durations:
                mean = np.mean(durations[name], axis=0)
                one.plot(np.maximum(mean, 1e-3), np.maximum(1 - SHARES, 1e-5), label=arm, **_style(index))
        one.set_xscale("log")
        one.set_yscale("log")
        one.set_ylim(1e-4, 1.05)
        one.set_xlabel(f"{name}, seconds", fontsize=9)
        one.set_yticks(
            [1, 0.5, 0.1, 0.05, 0.01, 0.001, 0.0001], ["all", "50 %", "10 %", "5 %", "1 %", "0.1 %", "0.01 %"]
        )
        one.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes[0].set_ylabel("share that took longer", fontsize=9)
    axes[0].legend(fontsize=8, frameon=False)
    return figure


def _over_time(sketch: Sketch, window_s: tuple[float, float], what: str) -> Figure:
    """Draw one row an arm: what is reserved and used of the pool, or who runs and waits."""
    series = {
        "kv": (("reserved", "reserved"), ("used", "used")),
        "queue": (("running", "running"), ("waiting", "waiting")),
    }[what]
    title = {
        "kv": "KV pool: what the admission rule reserves, and what is stored (first replication)",
        "queue": "Requests running and waiting (first replication)",
    }[what]
    figure, axes = _figure(len(sketch.levels), 1, title, 1.0 + 1.55 * len(sketch.levels))
    end = max(float(levels["time"][-1]) for levels in sketch.levels.values())
    unit, scale = ("minutes", 60.0) if end > 300 else ("seconds", 1.0)
    for one, (arm, levels) in zip(axes, sketch.levels.items(), strict=True):
        for index, (name, label) in enumerate(series):
            one.plot(levels["time"] / scale, levels[name], label=label, drawstyle="steps-post", **_style(index))
        if window_s[0] > 0:
            one.axvspan(0, window_s[0] / scale, color="#888888", alpha=0.15, linewidth=0)
        if window_s[1] < end:
            one.axvspan(window_s[1] / scale, end / scale, color="#888888", alpha=0.15, linewidth=0)
        one.set_ylabel(arm, fontsize=9)
        one.set_ylim(bottom=0, top=1.02 if what == "kv" else None)
        one.set_xlim(0, end / scale)
        if what == "kv":
            one.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes[0].legend(fontsize=8, frameon=False, ncols=2, loc="upper right")
    axes[-1].set_xlabel(f"{unit} (grey: not measured)", fontsize=9)
    return figure
