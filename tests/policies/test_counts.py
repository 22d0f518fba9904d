"""Class counts: the fast path against the plain rule, character by character."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.tokens import CLASSES, Counts, class_of, count_classes
from policies.tokens.classes import BYTES
from policies.tokens.counts import BEFORE, BLOCK, KINDS

ANY = st.text(st.characters(exclude_categories=()), max_size=80)


def kind(character: str) -> str:
    name = class_of(character)
    length = BYTES[CLASSES.index(name)]
    if length == 2 and ord(character) < 0x300:
        return "latin"
    return (name, "two-byte", "three-byte", "four-byte")[length - 1]


def before(character: str) -> str:
    if not character.isascii():
        return "two" if ord(character) < 0x800 else "more"
    if character.islower():
        return "vowel" if character in "aeiou" else "common" if character in "tnrshldcm" else "rare"
    return "capital" if character.isalnum() else "blank" if character in " \n\r\t" else "sign"


def plain(text: str) -> Counts:
    classes = Counter(map(class_of, text))
    pairs = Counter((before(one), kind(other)) for one, other in itertools.pairwise("\n" + text))
    table = [0] * 256
    for (one, other), number in pairs.items():
        table[32 * BEFORE.index(one) + KINDS.index(other)] = number
    return Counts(tuple(classes[name] for name in CLASSES), tuple(table))


@given(ANY)
@example("\ud83d\ude00")  # two lone surrogates are not one emoji
@example("a\ud83d")
@example("😀𝐀𠀀\U0010ffff")
@example("\x00\x7f\x80߿ࠀ￿")
def test_counts_are_the_plain_rule(text: str) -> None:
    assert count_classes(text) == plain(text)


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_a_block_boundary_changes_nothing(size: int) -> None:
    text = ("Añ1 漢😀\n йk" * size)[:size]
    assert count_classes(text) == plain(text)


@given(ANY)
def test_class_lengths_make_the_length_in_bytes(text: str) -> None:
    counts = count_classes(text)
    assert counts.bytes == len(text.encode("utf-8", "surrogatepass"))
    assert counts.characters == len(text)


@given(ANY, ANY)
def test_counts_of_two_messages_add_up(one: str, two: str) -> None:
    both = count_classes(one) + count_classes(two)
    assert both.classes == count_classes(one + two).classes


def test_an_unknown_class_is_named() -> None:
    with pytest.raises(ValueError, match="no character class 'cyrilic'"):
        Counts.of({"cyrilic": 1})
    with pytest.raises(ValueError, match="must not be negative"):
        Counts.of({"cyrillic": -1})
