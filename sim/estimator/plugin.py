"""A pytest plugin: hold an estimator to a committed baseline inside any project's test suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sim.estimator.evaluate import Evaluation

Check = Callable[..., "Evaluation"]


@pytest.fixture(scope="session")
def check_estimator() -> Check:
    """Return a function that fails the test if an estimator got worse than its baseline.

    ``check_estimator(baseline, estimator=None, corpora=())`` measures as the baseline was measured (the estimator named
    there, or another by name or ``module:function``) on the given corpora or the built-in one, and returns the
    evaluation. A tokenizer whose package is absent skips the test by name.
    """
    return _check


def _check(baseline: str | Path, estimator: str | None = None, corpora: Sequence[str | Path] = ()) -> Evaluation:
    from sim.estimator.baseline import baseline_content, drifts, missing_rows, read_baseline, regressions
    from sim.estimator.evaluate import evaluate, load_estimator
    from sim.estimator.probes import estimates_of_probes
    from workloads.tokenizers import TOKENIZERS, load_all, missing
    from workloads.tokens.corpora import own_corpus, read_corpus

    known = read_baseline(Path(baseline))
    for name in known["tokenizers"]:
        if name in TOKENIZERS and (lack := missing(name)):
            pytest.skip(lack)
    chunks = read_corpus([Path(corpus) for corpus in corpora] or [own_corpus()], known["chunk"])
    measured = load_estimator(estimator or known["estimator"])
    found = evaluate(measured, chunks, load_all(known["tokenizers"]), known["by"])
    now = baseline_content(found, known["chunk"], known["by"], estimates_of_probes(measured))
    worse = [f"worse: {regression}" for regression in regressions(known, now)]
    worse += [f"changed: {drift}" for drift in drifts(known, now)]
    worse += [f"missing: {name}" for name in missing_rows(known, now)]
    if worse:
        pytest.fail("\n".join(worse), pytrace=False)
    return found
