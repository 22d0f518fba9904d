"""The page on policies says what the code does."""

import re
from pathlib import Path

from policies.output import POLICIES
from policies.output.diagram import draw
from policies.profiles import PROFILES

PAGE = (Path(__file__).parents[2] / "docs/policies.md").read_text(encoding="utf-8")


def test_the_state_diagram_is_drawn_from_the_table() -> None:
    shown = re.search(r"<!-- moves -->\n```mermaid\n(.*?)\n```\n<!-- /moves -->", PAGE, re.DOTALL)
    assert shown
    assert shown[1] == draw(), "docs/policies.md is stale: run python -m policies.output.diagram"


def test_every_policy_and_profile_is_told_of() -> None:
    rows = set(re.findall(r"^\| `([a-z0-9.-]+)` \|", PAGE, re.MULTILINE))
    assert {*POLICIES, *PROFILES} <= rows


def test_every_constant_of_its_own_is_told_of() -> None:
    shared = set(POLICIES["oracle"].constants())
    assert all(f"`{name}`" in PAGE for name in shared)
    ours = set(POLICIES["adaptive"].constants())
    for name, kind in POLICIES.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
        told = set(re.findall(r"`(\w+)`", row)) | (ours if "as `adaptive`" in row else set())
        assert set(kind.constants()) - shared <= told, name
