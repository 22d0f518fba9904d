"""Rates and burstiness of every process are the ones asked for."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from workloads.arrivals import BLOCK, Arrivals, Gamma, Poisson, Ticks, Weibull
from workloads.errors import BadInput
from workloads.substreams import generator


def drawn(process: Arrivals, chunks: int = 30, seed: int = 5) -> np.ndarray:
    return np.concatenate(list(islice(process.times(lambda k: generator(seed, "times", block=k)), chunks)))


@pytest.mark.parametrize(
    "process", [Poisson(4.0), Gamma(4.0, 2.0), Gamma(4.0, 0.5), Weibull(4.0, 1.7), Weibull(4.0, 0.3)]
)
def test_rate_and_cv(process: Arrivals) -> None:
    gaps = np.diff(drawn(process), prepend=0.0)
    cv = getattr(process, "cv", 1.0)
    assert gaps.min() >= 0
    assert abs(gaps.mean() * 4.0 - 1.0) <= 4.5 * cv / np.sqrt(len(gaps))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)


def test_ticks_come_in_batches() -> None:
    times = drawn(Ticks(every_s=3.0, batch=5), chunks=2)
    assert times[:11].tolist() == [3.0] * 5 + [6.0] * 5 + [9.0]
    assert len(times) == 2 * BLOCK


@pytest.mark.parametrize(
    "make", [lambda: Poisson(0), lambda: Gamma(1, -1), lambda: Weibull(1, 99), lambda: Ticks(0, 0)]
)
def test_bad_parameters_are_refused(make) -> None:
    with pytest.raises(BadInput):
        make()
