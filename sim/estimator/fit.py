"""Fit all tables to corpora and cross-validate them: what ``slotsim estimator fit`` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.estimator.evaluate import resampled
from workloads.errors import BadInput, Fault, did_you_mean
from workloads.tokenizers import TOKENIZERS, load_all, missing
from workloads.tokens.corpora import read_corpus
from workloads.tokens.fitting import Margins, Recipe
from workloads.tokens.profiles import FOLDS, PROFILES, Sample, cross_validate, fit_profiles, joined, measure

RECIPE: Final = Recipe()


def fit_tables(
    corpora: Sequence[Path],
    tokenizers: Sequence[str],
    profiles: Sequence[str],
    output: Path,
    chunk: int,
    *,
    margins: Sequence[Margins] = (),
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Fit profiles, write the weights, and return the cross-validation.

    Parameters
    ----------
    corpora
        All are fitted; the first is validated, the others are fitted in both directions.
    tokenizers
        Names; none means all that are installed.
    profiles
        Names; none means all that these tokenizers suffice for.
    output
        Where the weights go.
    chunk
        Code points of a chunk.
    margins
        To validate with; none means each profile's own. The weights written have always the profile's own.
    say
        Told of progress.

    Raises
    ------
    BadInput
        If a name is unknown, a package absent, or a corpus cannot be read.
    """
    names = list(tokenizers) or [name for name in TOKENIZERS if missing(name) is None]
    unknown = [name for name in profiles if name not in PROFILES]
    faults = [Fault(f"no profile {name!r}{did_you_mean(name, PROFILES)}", key="--profiles") for name in unknown]
    try:
        loaded = load_all(names)
    except BadInput as error:
        faults += error.faults
    if faults:
        raise BadInput(*faults)
    chosen = list(profiles) or [name for name, profile in PROFILES.items() if set(profile.tokenizers) <= set(names)]
    say(f"counting with {', '.join(names)}")
    first = measure(read_corpus(corpora[:1], chunk, by_source=True), loaded)
    rest = measure(read_corpus(corpora[1:], chunk, by_source=True), loaded) if corpora[1:] else None
    say(f"fitting {', '.join(chosen)}")
    content = fit_profiles(first if rest is None else joined(first, rest), chosen, RECIPE, corpora)
    output.write_text(compact(content), "utf-8")
    validation = [line for name in chosen for folds in FOLDS for line in validate(first, rest, name, folds, margins)]
    return {"fitted_on": content["fitted_on"], "validation": validation}


def read_margins(pair: str) -> Margins:
    """Return margins as the command line writes them, ``1.07/1.12``.

    Raises
    ------
    BadInput
        If they are not two numbers of at least 1.
    """
    try:
        on_ascii, beyond = map(float, pair.split("/"))
    except ValueError:
        on_ascii = beyond = 0.0
    if not (1 <= on_ascii < 10 and 1 <= beyond < 10):
        raise BadInput(Fault(f"must be two numbers of at least 1 like 1.07/1.12, is {pair!r}", key="--margins"))
    return Margins(on_ascii, beyond)


def compact(content: dict[str, Any]) -> str:
    """Return weights as JSON, one row of weights a line."""
    text = json.dumps(content, indent=1)
    lines: list[str] = []
    depth = 0
    for line in text.splitlines():
        stripped = line.strip()
        if depth:
            lines[-1] += stripped if lines[-1].endswith("[") else f" {stripped}"
            lines[-1] = lines[-1].replace(" ]", "]")
        else:
            lines.append(line)
        depth = depth + (stripped.endswith("[")) - (stripped.startswith("]") and depth > 0)
    return "\n".join(lines) + "\n"


def validate(
    first: Sample, rest: Sample | None, name: str, folds: str, margins: Sequence[Margins]
) -> list[dict[str, Any]]:
    """Return the two-way cross-validation of a profile on the ordinary classes of the first sample, by margin."""
    tried = margins or (PROFILES[name].margins,)
    estimates = cross_validate(first, name, RECIPE, FOLDS[folds], extra=rest, margins=tried)
    return [
        {"profile": name, "folds": folds, "margins": str(margin), **summary(first, name, line)}
        for margin, line in zip(tried, estimates, strict=True)
    ]


def summary(sample: Sample, name: str, estimates: NDArray[np.int64]) -> dict[str, Any]:
    """Return share under-estimated, mean and worst error over ordinary classes, and the class that fails most."""
    ordinary = np.array([not chunk.stress for chunk in sample.chunks])
    tokens = sample.tokens(PROFILES[name])[ordinary]
    errors = (estimates[ordinary] - tokens) / tokens
    labels = np.array(sample.labels())[ordinary]
    share = {label: float((errors[labels == label] < 0).mean()) for label in sorted(set(labels.tolist()))}
    worst = max(share, key=lambda label: share[label])
    under, mean = resampled([errors[labels == label] for label in share])
    return {
        "chunks": len(errors),
        "under_share": float((errors < 0).mean()),
        "under_interval": list(under),
        "mean_error": float(errors.mean()),
        "mean_interval": list(mean),
        "worst_error": float(errors.min()),
        "worst_class": worst,
        "worst_class_under": share[worst],
    }
