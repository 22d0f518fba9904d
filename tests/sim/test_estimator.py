"""The harness: figures that can be worked out by hand, what it refuses, and that it notices a changed weight."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import sys
import types
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from policies.tokens import CLASSES, CharsPerFour, Table, estimator_named
from policies.tokens.counts import BEFORE, KINDS
from sim.cli import main
from sim.estimator.baseline import baseline_content, drifts, read_baseline, regressions
from sim.estimator.evaluate import MAX, Foreign, evaluate, load_estimator, script_of
from sim.estimator.learn import learn_factors, tokens_per_char
from sim.estimator.probes import estimates_of_probes
from workloads.errors import BadInput
from workloads.tokenizers import Tokenizer, load_all, missing
from workloads.tokens.corpora import Chunk, own_corpus, read_corpus
from workloads.tokens.kernel import FastTable

BASELINE = Path(__file__).parents[2] / "results" / "estimator" / "baseline.json"
OPEN = ("o200k", "qwen", "deepseek")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the harness touched the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def tokenizers() -> list[Tokenizer]:
    """Return the three of `table:open`, each remembering what it counted: the same corpus comes up again and again."""
    for name in OPEN:
        if lack := missing(name):
            pytest.skip(lack)

    def remembering(tokenizer: Tokenizer) -> Tokenizer:
        known = cache(tokenizer.count)
        return Tokenizer(tokenizer.name, lambda texts: [known(text) for text in texts])

    return [remembering(tokenizer) for tokenizer in load_all(OPEN)]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["slotsim", "estimator", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    return int(leaving.value.code or 0)


def fixed(name: str, tokens: int) -> Tokenizer:
    return Tokenizer(name, lambda texts: [tokens for _ in texts])


def test_figures_by_hand() -> None:
    """Eight characters are two tokens by four: exact against 2, half of 4; max is the larger count."""
    chunks = [Chunk("a", "x" * 8), Chunk("a", "x" * 16), Chunk("b", "x" * 8)]
    found = evaluate(CharsPerFour(), chunks, [fixed("two", 2), fixed("four", 4)])
    rows = {(row.class_, row.tokenizer): row for row in found.rows}
    assert {key: (row.chunks, row.under_share, row.mean_error, row.worst_error) for key, row in rows.items()} == {
        ("a", "two"): (2, 0.0, 0.5, 0.0),
        ("a", "four"): (2, 0.5, -0.25, -0.5),
        ("a", MAX): (2, 0.5, -0.25, -0.5),
        ("b", "two"): (1, 0.0, 0.0, 0.0),
        ("b", "four"): (1, 1.0, -0.5, -0.5),
        ("b", MAX): (1, 1.0, -0.5, -0.5),
    }
    assert rows["a", "four"].chars_per_token == 24 / 8
    # Clopper-Pearson for 1 of 2 and 1 of 1: the textbook's 1.26 to 98.74 % and 2.5 to 100 %.
    assert rows["a", "four"].under_interval == pytest.approx((0.01258, 0.98742), abs=1e-5)
    assert rows["b", "four"].under_interval == pytest.approx((0.025, 1.0))
    assert (found.overall.under_share, found.overall.chunks) == (pytest.approx(2 / 3), 3)
    assert found.overall.under_interval == (0.5, 1.0)  # whole classes are drawn: both a, or both b, or one of each


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("plain words", "ascii"),
        ("déjà vu", "latin"),
        ("привет ok", "cyrillic"),
        ("漢字かな", "han"),
        ("12 :: 3", "ascii"),
    ],
)
def test_scripts(text: str, script: str) -> None:
    assert script_of(Chunk("any", text)) == script


def test_rows_by_script_group_classes() -> None:
    chunks = [Chunk("one", "слово"), Chunk("two", "слова"), Chunk("three", "word")]
    found = evaluate(CharsPerFour(), chunks, [fixed("two", 2)], by="script")
    assert [(row.class_, row.chunks) for row in found.rows if row.tokenizer == MAX] == [("ascii", 1), ("cyrillic", 2)]


def raises(text: str) -> int:
    raise KeyError("theirs")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (raises, "raised KeyError: 'theirs', for 'some text'"),
        (lambda text: -1, "returned -1 for 'some text'; tokens are finite and not negative"),
        (lambda text: float("nan"), "returned nan"),
        (lambda text: "12", "returned '12' for 'some text'; a number of tokens is needed"),
        (lambda text: None, "returned None"),
        (lambda text: True, "returned True"),
    ],
)
def test_a_foreign_estimator_is_held_to_its_duty(function: Any, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        Foreign("theirs:count", function).estimate("some text")
    assert str(caught.value).startswith("theirs:count: ")
    assert told in str(caught.value)


def test_a_foreign_fraction_is_rounded_up() -> None:
    assert Foreign("theirs:count", lambda text: len(text) / 4).estimate("x" * 9) == 3


def test_a_module_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ourcount.py").write_text("def count(text):\n    return len(text)\nnumber = 3\n")
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    monkeypatch.chdir(tmp_path)
    assert load_estimator("ourcount:count").estimate("abc") == 3
    for name, told in (
        ("ourcount:missing", "ourcount has no function 'missing'"),
        ("ourcount:number", "ourcount has no function 'number'"),
        ("broken:count", "cannot import broken: ModuleNotFoundError"),
        ("absent:count", "cannot import absent"),
        ("by-skript", "did you mean 'by-script'"),
        ("table:opne", "did you mean 'table:open'"),
    ):
        with pytest.raises(BadInput, match=told):
            load_estimator(name)


def test_eval_prints_json_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tokenizers: list[Tokenizer]
) -> None:
    assert run(monkeypatch, "eval", str(own_corpus() / "cyr_ru.txt"), "--estimator", "by-script", "--json") == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    keys = {"class", "tokenizer", "chunks", "chars_per_token", "under_share", "mean_error", "worst_error"}
    assert all(keys <= row.keys() for row in [*found["rows"], found["overall"]])
    assert {row["tokenizer"] for row in found["rows"]} == {*OPEN, "max"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["eval", "nowhere"], "error: nowhere: no such file or folder"),
        (["eval", "--tokenizers", "qwem"], "error: no tokenizer 'qwem'"),
        (["eval", "--tokenizers", ","], "error: --tokenizers: names no tokenizer"),
        (["eval", "--by", "scrip"], "error: --by: must be class or script, is 'scrip' - did you mean 'script'?"),
        (["eval", "--estimator", "nothing"], "error: --estimator: no estimator 'nothing'"),
        (["check", "--baseline", "nowhere.json"], "error: nowhere.json: no such baseline; --update writes one"),
        (["fit", "--profiles", "opne"], "error: --profiles: no profile 'opne' - did you mean 'open'?"),
        (["fit", "--margins", "0.9/1"], "error: --margins: must be two numbers of at least 1"),
        (["price", "--estimator", "by-skript"], "error: --estimator: no estimator 'by-skript'"),
        (["price", "--tokenizers", "qwem", "-o", "here"], "error: no tokenizer 'qwem'"),
        (["learn", "nowhere.csv"], "error: nowhere.csv: cannot be read"),
    ],
)
def test_bad_input_is_told_in_a_line(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == 2
    output = capsys.readouterr()
    assert told in output.err
    assert "Traceback" not in output.err
    assert not output.out
    assert not list(tmp_path.iterdir())


def test_a_megabyte_of_one_letter_is_no_trouble(tmp_path: Path, tokenizers: list[Tokenizer]) -> None:
    (tmp_path / "long.txt").write_text("a" * 1_000_000)
    found = evaluate(load_estimator("table:open"), read_corpus([tmp_path], 1_000_000), tokenizers[:1])
    assert found.overall.chunks == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "1: not JSON"),
        ('{"schema": 7}', "schema: a baseline of version 7, this is version 1; --update writes it anew"),
        ("[]", "schema: a baseline of version None"),
        ('{"schema": 1}', "rows: must be list, is None"),
        (
            '{"schema": 1, "estimator": "x", "tokenizers": [], "chunk": 1, "by": "class", "rows": [{}, 3]}',
            "2 of 2 rows",
        ),
        (
            '{"schema": 1, "estimator": "x", "tokenizers": [], "chunk": 1, "by": "class", "rows": [], '
            '"probes": {"class han": "9"}}',
            "probes: must be tokens by the name of a probe, whole numbers",
        ),
    ],
)
def test_a_baseline_that_is_none_is_refused(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(BadInput) as caught:
        read_baseline(tmp_path / "b.json")
    assert told in str(caught.value)


def test_the_committed_baseline_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tokenizers: list[Tokenizer]
) -> None:
    assert run(monkeypatch, "check", "--baseline", str(BASELINE)) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("class_", "script"), [("cyrillic", "cyrillic"), ("han", "han"), ("devanagari", "devanagari"), ("thai", "thai")]
)
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_one_weight_changed_by_a_tenth_is_noticed(
    class_: str, script: str, factor: float, tokenizers: list[Tokenizer]
) -> None:
    """The largest change is in the script; others may follow that share its characters (a danda, Japanese's Han)."""
    table = estimator_named("table:open")
    assert isinstance(table, Table)
    weights = list(table.classes)
    number = CLASSES.index(class_)
    weights[number] = round(weights[number] * factor)
    changed = FastTable(dataclasses.replace(table, classes=tuple(weights)))
    known = read_baseline(BASELINE)
    now = baseline_content(evaluate(changed, read_corpus([own_corpus()]), tokenizers), 1000, "class", {})
    found = regressions(known, now)
    assert found
    assert f"script {script}, against" in str(found[0])


def changed_by_a_tenth(weight: int, most: int) -> set[int]:
    """Return a weight a tenth lower and higher; one of which a tenth rounds to nothing (up to 4), a unit."""
    step = max(1, round(weight / 10))
    return {max(0, weight - step), min(most, weight + step)} - {weight}


def test_every_weight_changed_by_a_tenth_is_told_by_its_name() -> None:
    """However rare in any corpus, up or down, capped by the bytes or not."""
    table = estimator_named("table:open")
    assert isinstance(table, Table)
    was = {"estimator": table.name, "probes": estimates_of_probes(FastTable(table))}
    variants = [
        (f"class {name}, ", {"classes": (*table.classes[:number], weight, *table.classes[number + 1 :])})
        for number, name in enumerate(CLASSES)
        if name not in KINDS  # ASCII weighs by its pairs alone
        for weight in changed_by_a_tenth(table.classes[number], 0xFFFF)
    ]
    for row, before in enumerate(BEFORE):
        for at, kind in enumerate(KINDS, 32 * row):
            for weight in changed_by_a_tenth(table.pairs[at], 0xFF):
                pairs = table.pairs[:at] + bytes((weight,)) + table.pairs[at + 1 :]
                variants.append((f"pair {before} {kind}:", {"pairs": pairs}))
    assert len(variants) > 500
    for name, change in variants:
        now = estimates_of_probes(FastTable(dataclasses.replace(table, **change)))
        found = drifts(was, {"estimator": table.name, "probes": now})
        assert any(str(drift).startswith(name) for drift in found), name


def test_another_estimator_than_the_baselines_is_not_held_to_its_probes() -> None:
    was = {"estimator": "ours", "probes": {"class han, script han": 9}}
    now = {"estimator": "ours", "probes": {"class han, script han": 10}}
    assert [str(drift) for drift in drifts(was, now)] == [
        "class han, script han: its probe's estimate 9 -> 10 tokens (+1)"
    ]
    assert drifts(was, {**now, "estimator": "theirs"}) == drifts(was, {**now, "probes": {}}) == []


def test_check_tells_a_foreign_estimator_that_changed_where_the_corpus_does_not_show_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tokenizers: list[Tokenizer], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    each = 1
    module = types.SimpleNamespace(count=lambda text: len(text) + each * sum("\u0b00" <= c <= "\u0b7f" for c in text))
    monkeypatch.setitem(sys.modules, "indic", module)
    (tmp_path / "plain.txt").write_text("plain words")
    arguments = ["check", "plain.txt", "--estimator", "indic:count", "--baseline", "b.json"]
    assert run(monkeypatch, *arguments, "--update") == 0
    assert run(monkeypatch, *arguments) == 0
    each = 2
    capsys.readouterr()
    assert run(monkeypatch, *arguments) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("changed: class oriya, script oriya: ")


def test_check_leaves_with_three_and_names_the_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tokenizers: list[Tokenizer], tmp_path: Path
) -> None:
    known = json.loads(BASELINE.read_text())
    for row in known["rows"]:
        if row["class"] == "cyr_uk":
            row["worst_error"] += 0.05
    (tmp_path / "b.json").write_text(json.dumps(known))
    assert run(monkeypatch, "check", "--baseline", str(tmp_path / "b.json")) == 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("worse: cyr_uk, script cyrillic, against ") and "-5.0 points" in line for line in lines)
    assert run(monkeypatch, "check", "--baseline", str(tmp_path / "b.json"), "--update") == 0
    assert (tmp_path / "b.json").read_text() == BASELINE.read_text()


def test_a_class_that_is_gone_is_a_regression(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tokenizers: list[Tokenizer], tmp_path: Path
) -> None:
    (tmp_path / "cyr_ru.txt").write_bytes((own_corpus() / "cyr_ru.txt").read_bytes())
    assert run(monkeypatch, "check", str(tmp_path), "--baseline", str(BASELINE)) == 3
    assert "missing: cyr_uk is in the baseline and not in the corpus" in capsys.readouterr().out


def usage(factor: float) -> pd.DataFrame:
    """Return requests of three classes that cost what the table says, one of them `factor` times that, with noise."""
    table = estimator_named("table:open")
    assert isinstance(table, Table)
    rates, draw = tokens_per_char(table), np.random.default_rng(7)
    rows = []
    for name in ("lat_de", "code_py", "cyrillic"):
        planted = factor if name == "cyrillic" else 1.0
        for chars in draw.integers(500, 9000, 400):
            rows.append((name, chars, round(chars * rates[name] * planted * draw.normal(1, 0.05))))
    return pd.DataFrame(rows, columns=["class", "chars", "tokens"])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_planted_factor_is_learned_and_the_others_stay(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"usage.{ending}"
    frame = usage(1.3)
    frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file)
    found = {factor.class_: factor for factor in learn_factors(file, "table:open").factors}
    assert found["cyrillic"].factor == pytest.approx(1.3, rel=0.02)
    assert found["lat_de"].factor == pytest.approx(1.0, rel=0.01)
    assert found["code_py"].factor == pytest.approx(1.0, rel=0.01)
    assert all(factor.low < factor.factor < factor.high for factor in found.values())
    assert found["cyrillic"].low > 1.28


def test_a_usage_log_is_checked_cell_by_cell(tmp_path: Path) -> None:
    (tmp_path / "u.csv").write_text("class,chars,token\na,1,1\n")
    with pytest.raises(BadInput, match=r"u.csv: tokens: column is missing - did you mean 'token'\?"):
        learn_factors(tmp_path / "u.csv", "table:open")
    (tmp_path / "u.csv").write_text("class,chars,tokens\na,ten,1\n,5,5\nb,7,-2\nc,inf,1\n")
    with pytest.raises(BadInput) as caught:
        learn_factors(tmp_path / "u.csv", "table:open")
    lines = [str(fault).replace(str(tmp_path) + "/", "") for fault in caught.value.faults]
    assert lines == [
        "u.csv:2: chars: must be a number above 0, is 'ten'",
        "u.csv:5: chars: must be a number above 0, is 'inf'",
        "u.csv:4: tokens: must be a number above 0, is '-2'",
        "u.csv:3: class: is empty",
    ]
    (tmp_path / "u.csv").write_text("")
    with pytest.raises(BadInput, match=r"u\.csv: no table"):
        learn_factors(tmp_path / "u.csv", "table:open")
    with pytest.raises(BadInput, match="by-script has no weights to correct"):
        learn_factors(tmp_path / "u.csv", "by-script")


def test_the_pytest_fixture_in_another_project(tmp_path: Path, tokenizers: list[Tokenizer]) -> None:
    (tmp_path / "test_theirs.py").write_text(
        f"def test_ours(check_estimator):\n    check_estimator({str(BASELINE)!r})\n"
        f"def test_theirs(check_estimator):\n    check_estimator({str(BASELINE)!r}, 'theirs:count')\n"
    )
    (tmp_path / "theirs.py").write_text("def count(text):\n    return len(text) // 4\n")
    installed = any(point.value == "sim.estimator.plugin" for point in entry_points(group="pytest11"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    command += [] if installed else ["-p", "sim.estimator.plugin"]  # an editable install from before there was one
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "worse: thai_th, script thai, against max: mean error" in done.stdout


def test_plots_are_drawn(tmp_path: Path) -> None:
    from sim.estimator.plots import boxes, heat_map

    found = evaluate(CharsPerFour(), [Chunk("a", "x" * 8), Chunk("b", "слово")], [fixed("two", 2)])
    heat_map(found, tmp_path / "heat.png")
    boxes(found, tmp_path / "boxes.png")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("heat.png", "boxes.png"))
