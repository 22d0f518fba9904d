"""Fits find planted laws through a cap, and say how sure they are."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workloads.errors import BadInput
from workloads.fit import FAMILIES, Sample, capped, fit, fit_all, kaplan_meier
from workloads.fitting import fit_recording
from workloads.lengths import LENGTHS, Gamma, Loglogistic, Lognormal, Weibull, draw
from workloads.readers import read_recording
from workloads.substreams import generator

FAR = 10**7
PLANTED = {
    "lognormal": Lognormal(600, p99=5_000, max=FAR),
    "weibull": Weibull(0.7, 700.0, max=FAR),
    "gamma": Gamma(0.8, 900.0, max=FAR),
    "loglogistic": Loglogistic(600, 2.0, max=FAR),
}


def capped_sample(law, cap: int, seed: int, n: int = 2_000) -> Sample:
    lengths = draw(law, generator(seed, "planted"), n)
    return Sample.of(np.minimum(lengths, cap), lengths > cap)


@pytest.mark.parametrize("cap", [1_000, 2_000, 4_000])
def test_intervals_cover_a_planted_tail_behind_three_caps(cap: int) -> None:
    """The share above 8,000 is in the 95 % interval in 90 of 100 seeds or more, though none above the cap is seen."""
    law = PLANTED["lognormal"]
    truth = float(law.survival(np.array([8_000.0]))[0])
    covered = 0
    for seed in range(100):
        _, low, high = fit(capped_sample(law, cap, seed), "lognormal").share_above(8_000)
        covered += low <= truth <= high
    assert covered >= 90


@pytest.mark.parametrize("family", PLANTED)
def test_a_planted_law_is_found_and_preferred(family: str) -> None:
    law = PLANTED[family]
    report = fit_all(capped_sample(law, 3_000, seed=1, n=20_000))
    found = report.fits[family]
    assert family in report.summary([8_000])["as_good"]
    x = np.array([50.0, 300.0, 2_000.0])
    assert found.survival(x) == pytest.approx(law.survival(x), abs=0.01)
    table = dict(found.table)
    again = LENGTHS[table.pop("kind")](**table)
    assert again.survival(x) == pytest.approx(found.survival(x), rel=1e-9)


def test_scipy_agrees() -> None:
    """Up to the rounding to whole tokens, the censored fit is the one of scipy's CensoredData."""
    sample = capped_sample(PLANTED["lognormal"], 2_000, seed=3)
    lengths = np.repeat(sample.length, sample.count.astype(int)).astype(float)
    cut = np.repeat(sample.censored, sample.count.astype(int))
    data = stats.CensoredData(uncensored=lengths[~cut] - 0.5, right=lengths[cut] - 1.0)
    sigma, _, median = stats.lognorm.fit(data, floc=0)
    found = fit(sample, "lognormal").table
    assert (found["median"], found["sigma"]) == pytest.approx((median, sigma), rel=2e-3)


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=40))
def test_kaplan_meier_is_scipys(rows: list[tuple[int, bool]]) -> None:
    lengths = np.array([length for length, _ in rows])
    cut = np.array([is_cut for _, is_cut in rows])
    x, survival = kaplan_meier(Sample.of(lengths, cut))
    if (~cut).any():
        expected = stats.ecdf(stats.CensoredData(uncensored=lengths[~cut], right=lengths[cut])).sf
        assert survival == pytest.approx(expected.evaluate(x), abs=1e-12)
    else:
        assert len(x) == 0


def test_clusters_widen_the_interval() -> None:
    rng = generator(5, "clusters")
    members = np.repeat(np.arange(40), 100)
    lengths = np.ceil(np.exp(rng.normal(0, 0.6, 40)[members] + rng.normal(6, 0.6, len(members)))).astype(np.int64)
    alone = fit(Sample.of(lengths), "lognormal").share_above(2_000)
    together = fit(Sample.of(lengths, clusters=members), "lognormal").share_above(2_000)
    assert together[0] == pytest.approx(alone[0], rel=1e-3)
    assert together[2] - together[1] > 3 * (alone[2] - alone[1])


def test_an_atom_at_the_top_is_taken_for_a_cap() -> None:
    lengths = draw(PLANTED["lognormal"], generator(1, "cap"), 5_000)
    assert capped(np.minimum(lengths, 3_000)) == 3_000
    assert capped(lengths) is None


def test_too_little_to_fit_is_said() -> None:
    for lengths, word in (([5] * 10, "20 answers"), ([5] * 50, "3 different")):
        with pytest.raises(ValueError, match=word):
            fit(Sample.of(np.array(lengths)), "lognormal")


def test_deepseek_r1(shared) -> None:
    """The log of the clients is capped at 32,768; a histogram without a number of calls is not fitted."""
    recording = read_recording(shared / "data/files/servegen/raw/deepseek-r1_clients.tar.xz")
    assert capped(recording.trace.output_tokens, recording.weights) == 32_768
    with pytest.raises(BadInput, match="how many calls"):
        fit_recording(read_recording(shared / "data/files/servegen/deepseek-r1_output_hist.csv.gz"))


def test_the_command(tmp_path) -> None:
    path = tmp_path / "t.csv"
    lengths = draw(PLANTED["lognormal"], generator(2, "cli"), 1_000)
    rows = (f"{i},10,{min(n, 2_000)},{int(n > 2_000)}\n" for i, n in enumerate(lengths))
    path.write_text("arrival_s,prompt_tokens,output_tokens,truncated\n" + "".join(rows))
    program = "from sim.cli import main; main()"
    command = [sys.executable, "-c", program, "trace", "fit", str(path), "--json", "-o", str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    group = found["groups"]["all"]
    assert group["censored_share"] == pytest.approx((lengths > 2_000).mean())
    assert group["guessed"] == [4_000, 5_000, 8_000, 32_000]
    assert set(group["models"]) == set(FAMILIES)
    assert (tmp_path / "fit-all.png").stat().st_size > 10_000
    shown = subprocess.run(command[:-3], capture_output=True, text=True, check=True).stdout
    assert "output = { kind = " in shown
