"""Joining a continuation: nothing that was written twice stays, nothing that was written once goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.merge import SCANNED, join, join_pair

WORDS = st.lists(st.text("abcdefghij", min_size=2, max_size=9), min_size=4, max_size=40).map(" ".join)


@given(WORDS, WORDS, st.integers(6, 60))
def test_a_repeated_end_is_cut(text: str, more: str, repeated: int) -> None:
    end = text[-repeated:]
    joined = join_pair(text, end + more)
    assert joined.startswith(text)
    assert len(joined) <= len(text) + len(more)
    assert more.endswith(joined[len(text) :])


@given(st.text(max_size=50), st.text(max_size=50))
def test_only_what_the_text_ends_with_may_go(text: str, more: str) -> None:
    joined = join_pair(text, more)
    assert joined.startswith(text)
    rest = joined[len(text) :]
    assert more.endswith(rest.removeprefix("\n")) or more.endswith(rest)
    cut = more[: len(more) - len(rest)]
    assert text.endswith(cut) or cut.count("\n") or more == rest


@given(st.text("abc ", max_size=30), st.text("xyz", max_size=30))
def test_texts_that_share_nothing_are_put_together(text: str, more: str) -> None:
    assert join_pair(text, more) == text + more


@pytest.mark.parametrize(
    ("text", "continuation", "joined"),
    [
        ("sleeps under the old oak tree.", "the old oak tree. Then", "sleeps under the old oak tree. Then"),
        ("the same", "the same", "the same"),  # an exact repetition adds nothing
        ("abcde", "abcde", "abcdeabcde"),  # 5 bytes without structure may be chance
        ("| ab", "| ab| c", "| ab| c"),  # 4 bytes with structure are none
        ("привет", "привет мир", "привет мир"),
        ("наш", "наш", "нашнаш"),  # 3 characters are too few, whatever their bytes
        ("## Plan\n\nfirst", "## Plan\n\nsecond", "## Plan\n\nfirst## Plan\n\nsecond"),  # another block: no replay
        ("## Plan\nfirst\n", "## Plan\nsecond", "## Plan\nfirst\nsecond"),
        (
            "Intro\n\n| a | b |\n| - | - |\n| 1 | 2 |",
            "| a | b |\n| - | - |\n| 3 | 4 |\n",
            "Intro\n\n| a | b |\n| - | - |\n| 1 | 2 |\n| 3 | 4 |\n",
        ),
        (
            "| a | b |\n| - | - |\n| 1 | 2 |\n",
            "| c | d |\n| - | - |\n",
            "| a | b |\n| - | - |\n| 1 | 2 |\n| c | d |\n| - | - |\n",
        ),
        ("", "text", "text"),
        ("text", "", "text"),
    ],
)
def test_examples(text: str, continuation: str, joined: str) -> None:
    assert join_pair(text, continuation) == joined


def test_the_scan_is_bounded() -> None:
    block = "word " * SCANNED
    assert join_pair(block, block) == block + block[SCANNED:]


def test_many_parts() -> None:
    assert join(["one two three", " two three four", " three four five"]) == "one two three four five"
    assert join([]) == ""
