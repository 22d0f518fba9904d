"""Corpora: how files become chunks, what is refused, and the project's own passages."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.tokens import class_of
from workloads.errors import BadInput
from workloads.tokenizers import load, missing
from workloads.tokens.corpora import CHUNK, cut, own_corpus, read_corpus, read_text
from workloads.tokens.generate import LABELS, WINDOW, generated

FILES = sorted(own_corpus().glob("*.txt"))
PASSAGES = [file for file in FILES if file.stem not in LABELS]
SCRIPTS = {
    "lat": {"latin"},
    "cyr": {"cyrillic"},
    "grek": {"greek"},
    "arab": {"arabic"},
    "hebr": {"hebrew"},
    "deva": {"devanagari"},
    "beng": {"bengali"},
    "taml": {"tamil"},
    "telu": {"telugu"},
    "knda": {"kannada"},
    "mlym": {"malayalam"},
    "gujr": {"gujarati"},
    "guru": {"gurmukhi"},
    "sinh": {"sinhala"},
    "thai": {"thai"},
    "laoo": {"lao"},
    "khmr": {"khmer"},
    "mymr": {"myanmar"},
    "tibt": {"tibetan"},
    "geor": {"georgian"},
    "armn": {"armenian"},
    "ethi": {"ethiopic"},
    "hans": {"han"},
    "hant": {"han"},
    "jpan": {"han", "hiragana", "kana", "katakana"},
    "hang": {"hangul"},
}


@pytest.mark.parametrize(
    ("length", "pieces"), [(1, [1]), (499, [499]), (1000, [1000]), (1499, [1000]), (1500, [1000, 500]), (0, [])]
)
def test_a_rest_below_half_is_dropped_and_a_short_file_is_one_chunk(length: int, pieces: list[int]) -> None:
    assert [len(piece) for piece in cut("x" * length)] == pieces


def test_sources_are_cut_apart(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("a" * 1600 + "b" * 2100, "utf-8")
    (tmp_path / "one.txt").write_text("c" * 2000 + "d" * 2000, "utf-8")
    rows = [
        "| set | class | origin | licence | chars |",
        "| corpus | two | A | x | 1600 |",
        "| corpus | two | B | y | 9 |",
    ]
    (tmp_path / "SOURCES.md").write_text("\n".join(rows), "utf-8")
    chunks = read_corpus([tmp_path], by_source=True)
    told = [(chunk.label, chunk.source, len(chunk.text), set(chunk.text), chunk.place) for chunk in chunks]
    assert told == [
        ("one", 0, 1000, {"c"}, (0, 4)),
        ("one", 0, 1000, {"c"}, (1, 4)),
        ("one", 1, 1000, {"d"}, (2, 4)),
        ("one", 1, 1000, {"d"}, (3, 4)),
        ("two", 0, 1000, {"a"}, (0, 4)),
        ("two", 0, 600, {"a"}, (1, 4)),
        ("two", 1, 1000, {"b"}, (2, 4)),
        ("two", 1, 1000, {"b"}, (3, 4)),
    ]


def test_line_ends_are_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r")
    assert read_text(tmp_path / "a.txt") == "one\r\ntwo\r"


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "binary.txt").write_bytes(b"text\n\x89PNG\xff")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "half.txt").write_bytes(b"lone \xed\xa0\x80 surrogate")
    (tmp_path / "nul.txt").write_bytes(b"a\nb\0")
    (tmp_path / "good.txt").write_bytes(b"good")
    with pytest.raises(BadInput) as caught:
        read_corpus([tmp_path, tmp_path / "absent"])
    lines = [str(fault).replace(str(tmp_path) + "/", "") for fault in caught.value.faults]
    assert lines == [
        "binary.txt:2: not UTF-8: byte 0x89 at offset 5; text files in UTF-8 are needed",
        "empty.txt: empty: no text to count",
        "half.txt:1: not UTF-8: byte 0xed at offset 5; text files in UTF-8 are needed",
        "nul.txt:2: holds a NUL character: a binary file?",
        "absent: no such file or folder",
    ]
    with pytest.raises(BadInput, match=r"no \.txt files in this folder"):
        read_corpus([tmp_path.parent / tmp_path.name / ".."])


def test_own_corpus_is_wide_enough() -> None:
    assert len(PASSAGES) >= 30
    assert len({script for file in PASSAGES for script in SCRIPTS[file.stem.split("_")[0]]}) >= 20
    assert {len(file.read_bytes()) in range(2000, 4097) for file in PASSAGES} == {True}


@pytest.mark.parametrize("file", PASSAGES, ids=lambda file: file.stem)
def test_passages_are_in_their_script(file: Path) -> None:
    """All letters are of the language's own alphabet: a look-alike from another one would cost other tokens."""
    wanted = SCRIPTS[file.stem.split("_")[0]]
    strange = {
        character
        for character in file.read_text("utf-8")
        if character.isalpha()
        and (name := "latin" if character.isascii() else class_of(character)) not in wanted
        and not any(name.startswith(script) for script in wanted)
        and name not in ("mark", "punctuation")
    }
    assert not strange


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_text_is_repeated(file: Path) -> None:
    text = file.read_text("utf-8")
    windows = [text[at : at + WINDOW] for at in range(len(text) - WINDOW + 1)]
    assert len(set(windows)) == len(windows)


@pytest.mark.parametrize("label", LABELS)
def test_generated_files_are_what_their_recipe_makes(label: str) -> None:
    assert (own_corpus() / f"{label}.txt").read_bytes().decode() == generated(label)


@pytest.mark.parametrize("file", PASSAGES, ids=lambda file: file.stem)
def test_passages_cost_what_their_language_costs_elsewhere(file: Path, shared: Path) -> None:
    other = shared / "corpus" / file.name
    if not other.is_file():
        pytest.skip(f"no other text in {file.stem}")
    for name in ("o200k", "qwen", "deepseek"):
        if lack := missing(name):
            pytest.skip(lack)
        ours, theirs = file.read_text("utf-8"), other.read_text("utf-8")[: 16 * CHUNK]
        tokenizer = load(name)
        assert len(ours) / tokenizer.count(ours) == pytest.approx(len(theirs) / tokenizer.count(theirs), rel=0.2)
