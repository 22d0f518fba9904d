"""Every law has the moments and quantiles it claims, on whole tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.errors import BadInput
from workloads.lengths import (
    LENGTHS,
    Constant,
    Empirical,
    Exponential,
    Gamma,
    Geometric,
    Length,
    Loglogistic,
    Lognormal,
    Mixture,
    TwoPoint,
    Uniform,
    Weibull,
    draw,
)
from workloads.substreams import generator

MIXED = Mixture(
    ({"kind": "lognormal", "median": 3_000, "sigma": 0.5}, {"kind": "constant", "tokens": 100, "weight": 3})
)
LAWS: list[Length] = [
    Constant(7),
    Uniform(3, 9),
    TwoPoint(10, 400, 0.25),
    Geometric(200.0),
    Geometric(1.0),
    Exponential(50.0),
    Lognormal(600, p99=5_000, max=60_000),
    Lognormal(600, mean=900, max=60_000, runaway=0.01),
    Lognormal(300, sigma=0.0, max=1_000),
    Empirical((5, 1, 9), (1.0, 2.0, 1.0)),
    Weibull(0.7, 400.0, max=60_000),
    Gamma(0.8, 500.0, max=60_000),
    Loglogistic(500, 2.5, max=8_000),
    MIXED,
]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_moments_are_those_of_the_integers_drawn(law: Length) -> None:
    drawn = draw(law, generator(1, "moments"), 400_000).astype(float)
    mean, second = law.moments()
    for sample, expected in ((drawn, mean), (drawn**2, second)):
        assert abs(sample.mean() - expected) <= 4.5 * sample.std() / np.sqrt(len(sample)) + 1e-9


@given(
    st.sampled_from([law for law in LAWS if law is not MIXED]),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_quantiles_rise_with_the_level(law: Length, levels: list[float]) -> None:
    counts = law.quantile(np.sort(np.array(levels)))
    assert counts.dtype == np.int64
    assert (np.diff(counts) >= 0).all()
    assert counts.min() >= 0


def test_exact_moments_of_the_closed_forms() -> None:
    assert Uniform(1, 6).moments() == pytest.approx((3.5, 91 / 6))
    assert TwoPoint(1, 3, 0.5).moments() == pytest.approx((2.0, 5.0))
    k = np.arange(1, 20_000)
    p = 1 / 50 * (1 - 1 / 50) ** (k - 1)
    assert Geometric(50.0).moments() == pytest.approx((float(p @ k), float(p @ k**2)), rel=1e-9)


def test_rounding_up_keeps_the_share_above_every_whole_number() -> None:
    law = Lognormal(600, p99=5_000)
    u = (np.arange(1_000_000) + 0.5) / 1_000_000
    counts = law.quantile(u)
    assert (counts > 5_000).mean() == pytest.approx(0.01, abs=1e-6)
    assert (counts > 600).mean() == pytest.approx(0.5, abs=1e-6)


def test_runaways_have_the_longest_length() -> None:
    law = Lognormal(600, p99=5_000, max=64_000, runaway=0.125)
    counts = law.quantile((np.arange(8_000) + 0.5) / 8_000)
    assert (counts == 64_000).mean() == pytest.approx(0.125)
    assert (counts[counts < 64_000] > 5_000).mean() == pytest.approx(0.01, abs=0.001)


def test_an_empirical_law_reads_a_histogram(tmp_path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("tokens,probability\r\n4,0.25\r\n8,0.75\r\n", newline="")
    law = Empirical(path=str(path))
    assert law.moments() == pytest.approx((7.0, 52.0))
    assert law.quantile(np.array([0.0, 0.2, 0.3, 0.99])).tolist() == [4, 4, 8, 8]


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (lambda: Lognormal(-1, p99=5, max=0), {"median", "max"}),
        (lambda: Lognormal(10), {"p99 | mean | sigma"}),
        (lambda: Lognormal(10, p99=20, sigma=1.0), {"p99 | mean | sigma"}),
        (lambda: Lognormal(10, p99=5), {"p99"}),
        (lambda: Lognormal(10, p99=50, runaway=1.5), {"runaway"}),
        (lambda: Uniform(5, 2), {"high"}),
        (lambda: TwoPoint(1, 2, float("nan")), {"share"}),
        (lambda: Constant(2.5), {"tokens"}),  # type: ignore[arg-type]
        (lambda: Geometric(0.5), {"mean"}),
        (lambda: Mixture(()), {"parts"}),
        (
            lambda: Mixture(({"kind": "lognorm"}, {"kind": "constant", "weight": -1})),
            {"parts.0.kind", "parts.1.weight"},
        ),
        (lambda: Mixture(({"kind": "constant", "token": 1}, {"kind": "gamma"})), {"parts.0.token", "parts.1.gamma"}),
        (lambda: Empirical((1, -2)), {"values"}),
        (lambda: Empirical((1, 2), (1.0,)), {"weights"}),
        (lambda: Empirical(), {"values | path"}),
    ],
)
def test_bad_parameters_are_named_all_at_once(make, keys: set[str]) -> None:
    with pytest.raises(BadInput) as caught:
        make()
    assert {fault.key for fault in caught.value.faults} == keys


def test_the_table_names_every_law() -> None:
    assert set(map(type, LAWS)) == set(LENGTHS.values())
