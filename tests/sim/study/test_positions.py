"""The scanner finds every key that tomllib parses, on a line that holds it."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.study.positions import key_lines, split_key
from sim.study.toml import dumps

KEYS = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True), st.text(min_size=1, max_size=5))
SCALARS = st.one_of(
    st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, min_size=1, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)


def paths(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, inner in items for path in [(*at, key), *paths(inner, (*at, key))]]


@given(DOCUMENTS)
def test_what_is_written_is_read_again(document: dict[str, object]) -> None:
    assert tomllib.loads(dumps(document)) == document


@given(DOCUMENTS, st.sampled_from(["\n", '\n# ] } = [[x]] "\n']))
def test_every_key_has_a_line_that_holds_it(document: dict[str, object], gap: str) -> None:
    text = dumps(document).replace("\n", gap)
    lines, found = text.split("\n"), key_lines(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    for path, line in found.items():
        if isinstance(path[-1], str):
            key = path[-1]
            assert (
                key in lines[line - 1] or json.dumps(key, ensure_ascii=False)[1:-1] in lines[line - 1] or "\x7f" in key
            )


def test_each_way_of_writing_a_key() -> None:
    text = '''top = 1
spaced . "dotted.key" = { inline = [1, { deep = 2 }], b = "}" }  # comment = x
text = """
[not.a.table]
k = 1
"""
raw = \'\'\'
a = "b
\'\'\'
[table.sub]
when = 1979-05-27 07:32:00
[[list]]
name = "a"
[list.part]
x = 1
[[list]]
after = [
  "one",  # ]
  ["two"],
]
last = -1.5e3
'''
    tomllib.loads(text)
    wanted = {
        ("top",): 1, ("spaced",): 2, ("spaced", "dotted.key"): 2, ("spaced", "dotted.key", "inline"): 2,
        ("spaced", "dotted.key", "inline", 0): 2, ("spaced", "dotted.key", "inline", 1): 2,
        ("spaced", "dotted.key", "inline", 1, "deep"): 2, ("spaced", "dotted.key", "b"): 2, ("text",): 3, ("raw",): 7,
        ("table",): 10, ("table", "sub"): 10, ("table", "sub", "when"): 11, ("list",): 12, ("list", 0): 12,
        ("list", 0, "name"): 13, ("list", 0, "part"): 14, ("list", 0, "part", "x"): 15, ("list", 1): 16,
        ("list", 1, "after"): 17, ("list", 1, "after", 0): 18, ("list", 1, "after", 1): 19,
        ("list", 1, "after", 1, 0): 19, ("list", 1, "last"): 21,
    }  # fmt: skip
    assert key_lines(text) == wanted


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.b", ("a", "b")),
        ('slo."call.e2e_s"', ("slo", "call.e2e_s")),
        ("'a=b'.c", ("a=b", "c")),
        ("arms.x-1", ("arms", "x-1")),
    ],
)
def test_split_key(text: str, parts: tuple[str, ...]) -> None:
    assert split_key(text) == parts


@pytest.mark.parametrize("text", ["", "a b", "a.", "a = 1\nb", "a=1", "[x]", "é"])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_key(text)
