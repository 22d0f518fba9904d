"""What a wrong estimator costs: which way it errs decides how it hurts."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from sim.cli import main
from sim.estimator.price import EVERY, EXACT, Priced, is_prose, price
from sim.estimator.prices import csv as csv_of
from sim.estimator.prices import page, picture
from workloads.errors import BadInput
from workloads.tokenizers import Tokenizer, load_all, missing
from workloads.tokens.corpora import own_corpus, read_corpus

RESULTS = Path(__file__).parents[2] / "results" / "estimator" / "consequence"
HALF_BYTES = Tokenizer("half-bytes", lambda texts: [-(-len(text.encode()) // 2) for text in texts])

# Each is one rule away from half the bytes: the truth, a tenth less, three tenths more.
THEIRS = """
def size(text):
    return -(-len(text.encode()) // 2)

def low(text):
    return 0.9 * size(text)

def high(text):
    return 1.3 * size(text)
"""


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> list[Priced]:
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "prices_theirs.py").write_text(THEIRS)
    chunks = read_corpus([own_corpus() / f"{name}.txt" for name in ("cyr_ru", "cyr_uk", "hex", "thai_th")])
    names = [*(f"prices_theirs:{name}" for name in ("size", "low", "high")), "guaranteed"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        return price(chunks, names, [HALF_BYTES], sessions=8)


def of(prices: list[Priced], estimator: str) -> list[Priced]:
    return [row for row in prices if row.estimator == estimator]


@pytest.mark.parametrize("estimator", [EXACT, "prices_theirs:size"])
def test_an_exact_estimate_costs_nothing(estimator: str, prices: list[Priced]) -> None:
    for row in of(prices, estimator):
        for name in ("refused", "given_up", "cleared_early", "early_tokens", "overestimate", "lost_tokens"):
            assert row.values[name].mean == 0, (row.class_, name)
        assert [ratio.mean for ratio in row.ratios.values()] == [1, 1]


def test_an_estimate_that_is_low_is_refused_and_never_clears_early(prices: list[Priced]) -> None:
    for row in of(prices, "prices_theirs:low"):
        refused = row.values["refused"]
        assert refused.mean is not None
        assert refused.low is not None
        assert refused.low < refused.mean > 0.5
        assert row.values["early_tokens"].mean == 0
        assert row.values["overestimate"].mean == pytest.approx(-0.1, abs=0.01)
        assert row.values["lost_tokens"].mean


def test_an_estimate_that_is_high_clears_early_and_is_never_refused(prices: list[Priced]) -> None:
    for row in of(prices, "prices_theirs:high"):
        assert (row.values["refused"].mean, row.values["cleared_early"].mean) == (0, 1)
        assert row.values["overestimate"].mean == pytest.approx(0.3, abs=0.02)  # notes and re-reads are exact
        again, prefill = row.values["early_tokens"].mean, row.ratios["prefill_tokens"].mean
        assert again is not None
        assert again > 10_000
        assert prefill is not None
        assert prefill > 1


def test_a_guaranteed_estimate_is_never_refused_by_the_server(prices: list[Priced]) -> None:
    assert all(row.values["refused"].mean == 0 for row in of(prices, "guaranteed"))


def test_scripts_of_several_classes_and_everything_are_pooled(prices: list[Priced]) -> None:
    places = {(row.class_, row.script): row.sessions for row in of(prices, EXACT)}
    assert places == {
        **{("cyr_ru", "cyrillic"): 8, ("cyr_uk", "cyrillic"): 8, (EVERY, "cyrillic"): 16},
        **{("hex", "ascii"): 8, ("thai_th", "thai"): 8, (EVERY, EVERY): 32},
    }


def test_prices_are_written_and_drawn(prices: list[Priced], tmp_path: Path) -> None:
    rows = list(csv.DictReader(csv_of(prices).splitlines()))
    assert len(rows) == len(prices)
    assert all(float(row["refused_low"]) <= float(row["refused"]) <= float(row["refused_high"]) for row in rows)
    text = page(prices, "slotsim estimator price", 122_880)
    assert "| cyrillic | `prices_theirs:low` | 100.0 % (" in text
    assert "| hex | `guaranteed` | 0.0 % (0.0 % to 32.4 %) |" in text  # Wilson's interval for none of eight
    picture(prices, tmp_path / "prices.png")
    assert (tmp_path / "prices.png").read_bytes().startswith(b"\x89PNG")


def test_prose_is_what_agents_answer_in() -> None:
    def prose(name: str) -> bool:
        return is_prose((own_corpus() / f"{name}.txt").read_text("utf-8"))

    assert all(map(prose, ("lat_en", "lat_vi", "thai_th", "deva_hi", "tibt_bo", "hans_zh")))
    assert not any(map(prose, ("hex", "base64", "code_py", "logs", "json_min")))


def test_an_estimator_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prices_broken.py").write_text("def count(text):\n    raise KeyError('theirs')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match="prices_broken:count: raised KeyError"):
        price(read_corpus([own_corpus() / "hex.txt"]), ["prices_broken:count"], [HALF_BYTES], sessions=2)


def test_the_command_writes_a_folder_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if lack := missing("qwen"):
        pytest.skip(lack)
    arguments = [str(own_corpus() / "hex.txt"), "--tokenizers", "qwen", "--estimator", "by-script,guaranteed"]
    more = ["--sessions", "2", "--json", "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["slotsim", "estimator", "price", *arguments, *more])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert not leaving.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["command"].startswith("slotsim estimator price ")
    everything = {row["estimator"]: row for row in found["rows"] if row["class"] == EVERY}
    assert [everything[name]["refused"]["mean"] for name in (EXACT, "by-script", "guaranteed")] == [0, 1, 0]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "README.md", "prices.csv", "prices.png", "summary.json"
    }  # fmt: skip


def test_the_committed_prices_come_out_again() -> None:
    if lack := missing("qwen"):
        pytest.skip(lack)
    chunks = read_corpus([own_corpus() / f"{name}.txt" for name in ("thai_th", "hex")])
    known = {tuple(row.values())[:4]: row for row in csv.DictReader((RESULTS / "prices.csv").read_text().splitlines())}
    again = list(csv.DictReader(csv_of(price(chunks, (), load_all(["qwen"]))).splitlines()))
    for row in again:
        if row["class"] != EVERY:
            assert known[tuple(row.values())[:4]] == row
