"""What an evaluation looks like: errors as a heat map, and as boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from sim.estimator.evaluate import MAX, Evaluation


def _classes(evaluation: Evaluation) -> list[str]:
    worst = {row.class_: row.mean_error for row in evaluation.rows if row.tokenizer == MAX}
    return sorted(worst, key=lambda name: worst[name])


def heat_map(evaluation: Evaluation, file: Path) -> None:
    """Draw the mean error of each class against each tokenizer; red under, blue over."""
    classes, tokenizers = _classes(evaluation), [*evaluation.tokenizers, MAX]
    mean = {(row.class_, row.tokenizer): 100 * row.mean_error for row in evaluation.rows}
    values = np.array([[mean[name, tokenizer] for tokenizer in tokenizers] for name in classes])
    figure = Figure(figsize=(2.6 + 0.75 * len(tokenizers), 1.2 + 0.24 * len(classes)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(values, cmap="RdBu", norm=TwoSlopeNorm(0, -60, 60), aspect="auto")
    axes.set_xticks(range(len(tokenizers)), tokenizers, rotation=30, ha="right")
    axes.set_yticks(range(len(classes)), classes, fontsize=8)
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            shade = "white" if abs(value) > 40 else "black"
            axes.text(x, y, f"{value:+.0f}", ha="center", va="center", fontsize=7, color=shade)
    axes.set_title(f"{evaluation.estimator}: mean error, %", fontsize=10)
    figure.colorbar(image, ax=axes, extend="both", shrink=0.6, label="under   |   over, %")
    figure.savefig(file, dpi=120)


def boxes(evaluation: Evaluation, file: Path) -> None:
    """Draw the errors of each class's chunks against the largest count, with the promise as a line at nothing."""
    classes = _classes(evaluation)
    figure = Figure(figsize=(7.5, 1.2 + 0.24 * len(classes)), layout="constrained")
    axes = figure.subplots()
    values = [100 * evaluation.errors[name, MAX] for name in classes]
    axes.boxplot(
        values,
        orientation="horizontal",
        whis=(0, 100),
        widths=0.6,
        patch_artist=True,
        boxprops={"facecolor": "#c6dbef", "edgecolor": "#3182bd"},
        medianprops={"color": "#08519c"},
    )
    axes.axvline(0, color="#cb181d", linewidth=1)
    axes.set_yticks(range(1, len(classes) + 1), classes, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", linewidth=0.4)
    axes.set_xlabel(f"error against the largest of {', '.join(evaluation.tokenizers)}, %; whiskers: all chunks")
    axes.set_title(evaluation.estimator, fontsize=10)
    figure.savefig(file, dpi=120)
