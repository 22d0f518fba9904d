"""Pictures of a recording: when calls arrive, how long they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from workloads.fit import Report
    from workloads.readers import Recording
    from workloads.sessions.study import Outcome

COLORS = ("#3b6ea5", "#c8652f", "#5c8f4f", "#7b5aa6")
CAPS = (8_000, 32_000)


def plot_recording(recording: Recording, folder: Path) -> list[Path]:
    """Draw a recording into a folder; return its files, ``lengths.png`` and with known times ``arrivals.png``."""
    paths = [_lengths(recording, folder / "lengths.png")]
    if recording.has_times and recording.trace.span_s > 0:
        paths.append(_arrivals(recording, folder / "arrivals.png"))
    return paths


def exceedance(
    axes: Axes, values: NDArray[np.int64], weights: NDArray[np.float64] | None, label: str, color: str
) -> None:
    """Draw the share of values above each value, on logarithmic axes."""
    order = np.argsort(values, kind="stable")
    weighing = np.ones(len(values)) if weights is None else weights[order]
    above = 1.0 - np.cumsum(weighing) / weighing.sum()
    last = np.flatnonzero(np.diff(values[order], append=-1))
    x, y = values[order][last], above[last]
    shown = (y > 1e-12) & (x > 0)
    axes.step(x[shown], y[shown], where="post", label=label, color=color, linewidth=1.6)


def _lengths(recording: Recording, path: Path) -> Path:
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for name, color in (("prompt_tokens", COLORS[0]), ("output_tokens", COLORS[1])):
        values = getattr(recording.trace, name)
        if values.any():
            exceedance(axes, values, recording.weights, name.partition("_")[0], color)
    for cap in CAPS:
        axes.axvline(cap, color="0.7", linewidth=0.8, linestyle="--")
        axes.text(cap, 0.02, f" {cap:,}", transform=axes.get_xaxis_transform(), fontsize=8, color="0.4")
    axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="share of calls above")
    axes.set_title(f"{Path(recording.path).name}: lengths", loc="left", fontsize=10)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=144)
    return path


def _arrivals(recording: Recording, path: Path) -> Path:
    trace = recording.trace
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    rate, gaps = figure.subplots(2, 1)
    bins = int(np.clip(len(trace) // 50, 10, 200))
    counts, edges = np.histogram(trace.arrival_s, bins)
    width = edges[1] - edges[0]
    rate.stairs(counts / width, edges, color=COLORS[0], fill=True, alpha=0.35)
    rate.stairs(counts / width, edges, color=COLORS[0])
    rate.set(xlabel="s", ylabel="requests per s", ylim=(0, None))
    rate.set_title(f"{Path(recording.path).name}: arrivals in bins of {width:,.3g} s", loc="left", fontsize=10)
    waits = np.sort(np.diff(trace.arrival_s))
    mean = waits.mean()
    x = np.linspace(0, np.quantile(waits, 0.999), 200)
    gaps.step(waits, 1.0 - np.arange(1, len(waits) + 1) / len(waits), where="post", color=COLORS[0], label="recorded")
    gaps.plot(x, np.exp(-x / mean), color="0.5", linestyle="--", linewidth=1.0, label="Poisson of the same rate")
    gaps.set(xlabel="gap between calls, s", ylabel="share above", yscale="log", ylim=(0.5 / len(waits), 1.2))
    gaps.legend(frameon=False)
    for axes in (rate, gaps):
        axes.grid(alpha=0.25, linewidth=0.6)
    figure.savefig(path, dpi=144)
    return path


def plot_fit(name: str, report: Report, folder: Path) -> Path:
    """Draw recorded lengths against the best laws into ``fit-NAME.png``: shares above, and quantiles."""
    from workloads.fit import kaplan_meier

    path = folder / f"fit-{''.join(c if c.isalnum() else '-' for c in name)}.png"
    lengths, survival = kaplan_meier(report.sample)
    figure = Figure(figsize=(8.6, 4.0), layout="constrained")
    tail, quantiles = figure.subplots(1, 2)
    grid = np.geomspace(max(lengths[0], 1), 4 * report.longest_seen, 400)
    shown = survival > 0
    tail.step(
        lengths[shown], survival[shown], where="post", color="0.2", linewidth=2.0, label="as recorded (Kaplan-Meier)"
    )
    levels = np.geomspace(1.0, max(survival[shown].min(), 1e-6), 200)[1:]
    recorded = lengths[np.minimum(np.searchsorted(-survival, -levels), len(lengths) - 1)]
    for (law, fit), color in zip(list(report.fits.items())[:3], COLORS, strict=False):
        tail.plot(grid, fit.survival(grid), color=color, linewidth=1.3, label=law)
        wide = np.geomspace(0.5, 1e7, 4000)
        modelled = wide[np.minimum(np.searchsorted(-fit.survival(wide), -levels), len(wide) - 1)]
        quantiles.plot(modelled, recorded, ".", color=color, markersize=3, label=law)
    low = max(float(survival[shown].min()) / 10, 1e-8)
    tail.set(xscale="log", yscale="log", ylim=(low, 1.3), xlabel="tokens", ylabel="share of answers above")
    tail.axvspan(report.longest_seen, 4 * report.longest_seen, color="0.93", zorder=0)
    tail.text(report.longest_seen, 1.05, " guessed", fontsize=8, color="0.4", va="top")
    edge = (max(float(recorded.min()) / 2, 1), 1.5 * report.longest_seen)
    quantiles.plot(edge, edge, color="0.6", linewidth=0.8)
    quantiles.set(xscale="log", yscale="log", xlim=edge, ylim=edge, xlabel="quantile of the law", ylabel="recorded")
    tail.set_title(f"{name}: answers", loc="left", fontsize=10)
    quantiles.set_title("quantiles against quantiles", loc="left", fontsize=10)
    for axes in (tail, quantiles):
        axes.grid(alpha=0.25, linewidth=0.6)
    tail.legend(frameon=False, fontsize=8, loc="lower left")
    figure.savefig(path, dpi=144)
    return path


def plot_sessions(outcome: Outcome, folder: Path) -> Path:
    """Draw each distribution, recorded and drawn, into ``sessions.png``, with its distance on halves not fitted to."""
    from workloads.sessions import marginals

    recorded, drawn, summary = marginals(outcome.recorded), marginals(outcome.drawn), outcome.summary()["distances"]
    titles = {
        "input": "prompt, tokens",
        "output": "answer, tokens",
        "rounds": "tool rounds of a turn",
        "appended": "appended by a round, tokens",
        "requests": "requests of a session",
        "first": "first prompt, tokens",
        "think": "think gap, s",
        "api": "request, s",
    }
    figure = Figure(figsize=(11.0, 5.6), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(2, 4).flat, titles.items(), strict=True):
        for sample, color, label in ((recorded[name], "0.2", "recorded"), (drawn[name], COLORS[1], "drawn")):
            level = np.arange(1, len(sample) + 1) / len(sample)
            axes.step(np.maximum(sample, 0.5), level, where="post", color=color, linewidth=1.4, label=label)
        row = summary[name]
        axes.set(xscale="log", xlabel=title, ylim=(0, 1))
        axes.set_title(f"held out: KS {row['median']:.3f}, bar {row['bar']:.3f}", loc="left", fontsize=9)
        axes.grid(alpha=0.25, linewidth=0.6)
    figure.axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.suptitle("Share of values up to each: recorded sessions, and sessions drawn from the law", fontsize=10)
    path = folder / "sessions.png"
    figure.savefig(path, dpi=144)
    return path
