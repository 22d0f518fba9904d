"""Fitting: an upper quantile, bounds for what is rare, and the committed weights made again."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from policies.tokens import CLASSES, count_classes
from policies.tokens.classes import BYTES
from policies.tokens.counts import KINDS
from policies.tokens.estimators import UNIT
from workloads.tokenizers import TOKENIZERS, load_all, missing
from workloads.tokens.corpora import Chunk, own_corpus, read_corpus
from workloads.tokens.fitting import BOUNDS, Margins, Recipe, decomposed, features, fit, table, unspaced
from workloads.tokens.profiles import PROFILES, by_half, by_source, cross_validate, fitted, joined, measure, subset

RNG = np.random.default_rng(5)
LETTERS = "etaoin srhl"


def drawn(alphabet: str, size: int = 400) -> str:
    return "".join(RNG.choice([*alphabet], size))


def test_features_weigh_a_text_as_the_table_does() -> None:
    texts = [drawn("abkZ9 .é漢я😀\n") for _ in range(40)]
    matrix = features([count_classes(text) for text in texts])
    beta = RNG.uniform(0.1, 1.0, matrix.shape[1])
    beta = np.ceil(beta * UNIT) / UNIT
    weighed = table("table:any", beta, matrix, capped=False)
    for text, row in zip(texts, matrix, strict=True):
        assert weighed.estimate(text) == int(np.ceil(np.round(row @ beta, 6)))


def test_a_planted_cost_is_covered_and_hardly_exceeded() -> None:
    """Texts that cost exactly what some weights say are estimated at that, not above by more than the rounding."""
    texts = [drawn(LETTERS) for _ in range(80)]
    matrix = features([count_classes(text) for text in texts])
    truth = RNG.uniform(0.1, 0.9, matrix.shape[1])
    tokens = matrix @ truth
    beta = fit(matrix, tokens, ["x"] * 80, range(80), Recipe(bags=4))
    errors = matrix @ beta / tokens - 1
    assert errors.min() > -0.01
    assert errors.mean() < 0.02


def test_the_fit_is_an_upper_quantile() -> None:
    texts = [drawn(LETTERS) for _ in range(300)]
    matrix = features([count_classes(text) for text in texts])
    tokens = matrix.sum(axis=1) * RNG.uniform(0.2, 0.4, 300)  # half the texts cost twice the others, at random
    beta = fit(matrix, tokens, ["x"] * 300, range(300), Recipe(bags=4))
    assert (matrix @ beta < tokens).mean() < 0.1


def test_what_is_rare_keeps_its_bound() -> None:
    """Gurmukhi comes up in five letters only: a linear program alone would give them nothing."""
    texts = [drawn(LETTERS) + "ਪੰਜਾਬ" for _ in range(20)]
    matrix = features([count_classes(text) for text in texts])
    beta = fit(matrix, np.full(20, 100.0), ["x"] * 20, range(20), Recipe(bags=2))
    found = table("table:any", beta, matrix)
    assert found.classes[CLASSES.index("gurmukhi")] == 3 * UNIT
    assert found.classes[CLASSES.index("tibetan")] == 3 * UNIT
    assert found.classes[CLASSES.index("other")] == 3 * UNIT


@pytest.mark.parametrize(("origins", "factor"), [((1, 1), 1.25), ((1, 2), 1.0)])
def test_a_script_known_from_one_origin_weighs_more(origins: tuple[int, int], factor: float) -> None:
    """Han of one origin; Hangul beside it in text that is mostly English, which says nothing of Hangul's origins."""
    texts = [drawn(LETTERS, 100) + drawn("漢字文章", 80) for _ in range(40)]
    texts += [drawn(LETTERS, 100) + drawn("한국어", 20) for _ in range(40)]
    matrix = features([count_classes(text) for text in texts])
    labels, where = ["hans"] * 40 + ["lat"] * 40, [*origins] * 20 + [1] * 40
    tokens = matrix @ np.where(BOUNDS > 1, 0.9, 0.3)
    plain = fit(matrix, tokens, labels, where, Recipe(bags=2, one_origin=1.0))
    wider = fit(matrix, tokens, labels, where, Recipe(bags=2, one_origin=1.25))
    han = len(BOUNDS) - len(CLASSES) + CLASSES.index("han")
    assert wider[han] == pytest.approx(factor * plain[han])
    others = np.arange(len(BOUNDS)) != han
    assert (wider[others] == plain[others]).all()


def test_margins_multiply_what_they_name() -> None:
    beta = np.full(len(BOUNDS), 0.5)
    wider = Margins(1.1, 1.2).on(beta)
    assert set(np.round(wider, 9)) == {0.55, 0.6}
    assert Margins(3.0, 9.0).on(np.ones(len(BOUNDS)))[0] == 255 / UNIT


def test_decomposed_copies_are_stress_of_the_same_place() -> None:
    chunks = [Chunk("hang_ko", "한국어", 1, (3, 7)), Chunk("lat_en", "plain", 0, (0, 1))]
    (copy,) = decomposed(chunks)
    assert (copy.label, copy.source, copy.place, copy.stress) == ("h_nfd_hang_ko", 1, (3, 7), True)
    assert len(copy.text) > len("한국어")


def test_unspaced_copies_are_of_three_byte_scripts_only() -> None:
    chunks = [
        Chunk("khmr_km", "ភាសា\u200bខ្មែរ ភាសា"),
        Chunk("lat_en", "plain words here"),
        Chunk("hans_zh", "没有空格"),
    ]
    assert [(copy.label, copy.text) for copy in unspaced(chunks)] == [("h_unspaced_khmr_km", "ភាសាខ្មែរភាសា")]


def test_folds_split_sources_and_halves() -> None:
    assert [by_source(Chunk("a", "", source)) for source in (0, 1, 2)] == [0, 1, 0]
    assert [by_half(Chunk("a", "", 0, (number, 5))) for number in range(5)] == [0, 0, 0, 1, 1]


def all_loaded(names: tuple[str, ...]) -> list[str]:
    for name in names:
        if lack := missing(name):
            pytest.skip(lack)
    return list(names)


def test_a_fold_never_sees_what_it_estimates() -> None:
    """Chunks of one half made a hundred times dearer change the estimates of the other half only."""
    names = all_loaded(("o200k",))
    sample = measure(read_corpus([own_corpus() / "lat_en.txt", own_corpus() / "cyr_ru.txt"], 300), load_all(names))
    before = cross_validate(sample, "o200k", Recipe(bags=2), by_half)[0]
    side = np.array([by_half(chunk) for chunk in sample.chunks])
    sample.counts["o200k"][side == 1] *= 3
    after = cross_validate(sample, "o200k", Recipe(bags=2), by_half)[0]
    assert (before[side == 1] == after[side == 1]).all()
    assert (before[side == 0] < after[side == 0]).all()


def test_committed_weights_are_made_again(shared: Path) -> None:
    """From both corpora they name; a solver of another release may turn corners of the program, hence a tolerance."""
    names = all_loaded(TOKENIZERS)
    known = json.loads(files("policies.tokens").joinpath("weights.json").read_text("utf-8"))
    corpora = [shared / "corpus", own_corpus()]
    loaded = load_all(names)
    samples = [measure(read_corpus([corpus], by_source=True), loaded) for corpus in corpora]
    both = joined(*samples)
    (again,) = fitted(both, "open", Recipe())
    from policies.tokens.weights import read_table

    committed = read_table("open", known)
    texts = [chunk.text for chunk in samples[0].chunks]
    ours = np.array([committed.estimate(text) for text in texts])
    theirs = np.array([again.estimate(text) for text in texts])
    assert np.abs(theirs / ours - 1).max() < 0.05
    assert abs((theirs / ours).mean() - 1) < 0.005


@pytest.mark.parametrize("with_own", [True, False])
def test_the_promise_holds_on_text_that_was_not_fitted(with_own: bool, shared: Path) -> None:
    """Issue's bar: two-way by source, under 1 % under-estimated, mean to +25 %, worst to -15 %, no class above 20 %."""
    loaded = load_all(all_loaded(PROFILES["open"].tokenizers))
    sample = measure(read_corpus([shared / "corpus"], by_source=True), loaded)
    own = measure(read_corpus([own_corpus()], by_source=True), loaded) if with_own else None
    ordinary = np.array([not chunk.stress for chunk in sample.chunks])
    for fold, mean in ((by_source, 0.25), (by_half, 0.20)):
        estimates = cross_validate(sample, "open", Recipe(), fold, extra=own)[0][ordinary]
        kept = subset(sample, ordinary)
        errors = estimates / kept.tokens(PROFILES["open"]) - 1
        assert (errors < 0).mean() < 0.01
        assert errors.mean() <= mean
        assert errors.min() >= -0.15
        labels = np.array(kept.labels())
        assert max((errors[labels == label] < 0).mean() for label in set(kept.labels())) <= 0.2


def test_weights_fit_their_classes() -> None:
    known = json.loads(files("policies.tokens").joinpath("weights.json").read_text("utf-8"))
    assert set(known["profiles"]) == set(PROFILES)
    for name, profile in known["profiles"].items():
        assert all(len(row) == len(KINDS) for row in profile["pairs"].values())
        most = PROFILES[name].margins.beyond * Recipe().one_origin
        for class_, weight in profile["classes"].items():
            assert weight <= np.ceil(UNIT * BYTES[CLASSES.index(class_)] * most)
