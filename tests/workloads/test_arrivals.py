"""Rates and burstiness of every process are the ones asked for."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from workloads.arrivals import ARRIVALS, BLOCK, Arrivals, Bursts, Clients, Gamma, Poisson, Profile, Ramp, Ticks, Weibull
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


def test_bursts_have_the_rate_and_dispersion_of_the_closed_form() -> None:
    """Counts in long windows: variance / mean -> 1 + 2 (a - b)^2 p q / ((s + t) r), a Markov-modulated Poisson process.

    a, b are the rates, p, q the shares of time, s, t the rates of switching, r the mean rate (Fischer and
    Meier-Hellstern, Performance Evaluation 18, 1993).
    """
    process = Bursts(rate=5.0, factor=6.0, share=0.2, mean_s=10.0)
    times = drawn(process, chunks=150)
    assert (np.diff(times) >= 0).all()
    calm = 5.0 / (1 + 0.2 * 5)
    switching = 1 / 10.0 + 1 / 40.0
    expected = 1 + 2 * (5 * calm) ** 2 * 0.2 * 0.8 / (switching * 5.0)
    window = 2_000.0
    counts = np.bincount((times // window).astype(int))[:-1]
    assert counts.mean() / window == pytest.approx(5.0, rel=0.03)
    assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.35)


def test_a_profile_follows_hours_and_days() -> None:
    hours = tuple(float(hour >= 12) for hour in range(24))
    process = Profile(rate=0.05, hours=hours, days=(1, 1, 1, 1, 1, 0, 0), start_hour=6.0)
    times = drawn(process, chunks=20)
    clock = times / 3600 + 6.0
    assert ((clock % 24) >= 12).all()
    assert ((clock // 24) % 7 < 5).all()
    assert len(times) / times[-1] == pytest.approx(0.05, rel=0.03)
    assert np.ptp(np.histogram(clock % 24, 12, (12, 24))[0]) / (len(times) / 12) < 0.2


def test_a_ramp_has_the_area_below_its_rate() -> None:
    process = Ramp(((0, 0), (100, 10), (100, 40), (110, 40), (110, 5), (210, 0)))
    counts = np.mean([np.histogram(drawn(process, 1, seed), [0, 50, 100, 110, 210])[0] for seed in range(200)], axis=0)
    expected = np.array([125, 375, 400, 250])
    assert np.abs(counts - expected).max() < 5 * np.sqrt(400 / 200)
    times = drawn(process, chunks=3)
    assert times.max() < 210
    assert (np.diff(times) >= 0).all()


def test_a_constant_ramp_is_poisson() -> None:
    assert drawn(Ramp(((0, 4.0),)), 2).tolist() == pytest.approx(drawn(Poisson(4.0), 2).tolist())


def test_clients_share_the_rate_unequally() -> None:
    """73 clients: the top ten have 68 % of the calls in ServeGen's DeepSeek-R1 log."""
    process = Clients(rate=20.0, clients=73, cv=2.0)
    times = drawn(process, chunks=20)
    assert (np.diff(times) >= 0).all()
    assert len(times) / times[-1] == pytest.approx(20.0, rel=0.05)
    rates = np.sort(process.rates())
    assert rates[-10:].sum() / rates.sum() == pytest.approx(0.68, abs=0.01)


def test_clients_by_zipfs_law_and_with_burstiness_of_their_own() -> None:
    process = Clients(rate=30.0, clients=4, zipf=1.0, cv=1.2, cv_spread=0.8)
    assert process.rates() == pytest.approx(30 / (1 + 1 / 2 + 1 / 3 + 1 / 4) / np.arange(1, 5))
    many = Clients(rate=1.0, clients=1_000, cv=1.9, cv_spread=0.81)
    cvs = np.log(many.cvs())
    assert (np.exp(np.median(cvs)), cvs.std()) == pytest.approx((1.9, 0.81), rel=0.02)
    assert abs(np.corrcoef(cvs, np.log(many.rates()))[0, 1]) < 0.05
    # one client by itself is a gamma process with its own rate and variation
    (rate,), (cv,) = Clients(2.0, 1, cv=3.0, cv_spread=0.5).rates(), Clients(2.0, 1, cv=3.0, cv_spread=0.5).cvs()
    gaps = np.diff(drawn(Clients(2.0, 1, cv=3.0, cv_spread=0.5), chunks=30), prepend=0.0)
    assert gaps.mean() * rate == pytest.approx(1.0, abs=4.5 * cv / np.sqrt(len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


EVERY = [Poisson(2.0), Gamma(2.0, 2.0), Weibull(2.0, 2.0), Ticks(1.0, 2), Ramp(((0, 1.0), (50, 9.0)))]
EVERY += [Bursts(2.0, 5.0, 0.1, 30.0), Profile(2.0), Clients(2.0, 5)]


@pytest.mark.parametrize("process", EVERY, ids=lambda process: type(process).__name__)
def test_every_process_repeats_itself(process: Arrivals) -> None:
    first, second, other = (drawn(process, 3, seed) for seed in (1, 1, 2))
    assert first.tolist() == second.tolist()
    assert isinstance(process, Ticks) or first.tolist() != other.tolist()
    assert (np.diff(first) >= 0).all()
    assert first[0] >= 0


def test_the_table_names_every_process() -> None:
    assert set(map(type, EVERY)) == set(ARRIVALS.values())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bursts(1, 0.5, 0.1, 10),
        lambda: Bursts(1, 2, 1.0, 10),
        lambda: Profile(1, hours=(1.0,) * 23),
        lambda: Profile(1, days=(0.0,) * 7),
        lambda: Ramp(()),
        lambda: Ramp(((1, 1.0),)),
        lambda: Ramp(((0, 1.0), (9, 1.0), (5, 1.0))),
        lambda: Ramp(((0, 0.0), (9, 0.0))),
        lambda: Clients(1, 0),
        lambda: Clients(1, 5, spread=1.0, zipf=1.0),
        lambda: Clients(1, 5, cv_spread=-1.0),
    ],
)
def test_more_bad_parameters_are_refused(make) -> None:
    with pytest.raises(BadInput):
        make()
