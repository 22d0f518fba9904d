"""Laws of durations: what a study writes is what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.durations import DURATIONS, Constant, Exponential, Gamma, Lognormal, Uniform
from workloads.errors import BadInput

LEVELS = (np.arange(200_000) + 0.5) / 200_000


@pytest.mark.parametrize(
    ("law", "mean", "cv"),
    [
        (Constant(3.0), 3.0, 0.0),
        (Uniform(2.0, 6.0), 4.0, 1 / np.sqrt(12)),
        (Exponential(5.0), 5.0, 1.0),
        (Gamma(5.0, 2.0), 5.0, 2.0),
        (Lognormal(4.0, 4.0), 4.0, 0.0),
    ],
)
def test_mean_and_variation(law, mean: float, cv: float) -> None:
    drawn = law.quantile(LEVELS)
    assert (np.diff(drawn) >= 0).all()
    assert drawn.mean() == pytest.approx(mean, rel=2e-3)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=1e-2, abs=1e-9)


def test_a_lognormal_has_the_percentiles_it_was_given() -> None:
    median, p99 = Lognormal(10.0, 3_070.0).quantile(np.array([0.5, 0.99]))  # thinking of recorded sessions
    assert (median, p99) == pytest.approx((10.0, 3_070.0))
    assert np.isfinite(Lognormal(10.0, 10.0).quantile(np.zeros(1))).all()


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("constant", {"value_s": -1.0}),
        ("uniform", {"low_s": 3.0, "high_s": 2.0}),
        ("exponential", {"mean_s": 0.0}),
        ("gamma", {"mean_s": 1.0, "cv": 0.0}),
        ("lognormal", {"median_s": 5.0, "p99_s": 4.0}),
    ],
)
def test_bad_constants_are_refused(name: str, constants: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        DURATIONS[name](**constants)
