"""The committed results of the bundled study are what a fresh run gives."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "results/quickstart"
OF_THE_RUN = ("speed", "command", "versions")
ROUNDING = "28177ccd45b04685"
"""How exp and log rounded where the results were made: numpy picks code by the processor; the last bit may differ."""


def rounding() -> str:
    x = np.random.Generator(np.random.Philox(1)).random(10_000)
    return hashlib.sha256(np.log(x).tobytes() + np.exp(x).tobytes()).hexdigest()[:16]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Return the summary of a fresh run and what it prints."""
    folder = tmp_path_factory.mktemp("quickstart")
    command = [sys.executable, "-c", "from sim.cli import main; main()", "compare", "quickstart", "-j", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, encoding="utf-8")
    summary = (folder / "results/runs/quickstart/summary.json").read_text(encoding="utf-8")
    return json.loads(summary), done.stdout


def committed() -> dict[str, Any]:
    return json.loads((FOLDER / "summary.json").read_text(encoding="utf-8"))


def values(document: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value of a document with its path."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from values(value, f"{path}/{key}")
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from values(value, f"{path}/{index}")
    else:
        yield path, document


def same_arithmetic(versions: dict[str, str], others: dict[str, str]) -> bool:
    return all(versions[name] == others[name] for name in ("numpy", "scipy")) and rounding() == ROUNDING


def test_a_fresh_run_equals_the_committed_summary(fresh: tuple[dict[str, Any], str]) -> None:
    found, kept = fresh[0], committed()
    exact = same_arithmetic(found["versions"], kept["versions"])
    for name in OF_THE_RUN:
        del found[name], kept[name]
    if exact:
        assert json.dumps(found) == json.dumps(kept)
    found_values, kept_values = dict(values(found)), dict(values(kept))
    assert found_values.keys() == kept_values.keys()
    for path, value in kept_values.items():
        if isinstance(value, float):
            assert found_values[path] == pytest.approx(value, rel=1e-9, abs=1e-12), path
        else:
            assert found_values[path] == value, path


def test_the_committed_screen_is_what_is_printed(fresh: tuple[dict[str, Any], str]) -> None:
    assert fresh[1] == (FOLDER / "console.txt").read_text(encoding="utf-8")


def test_the_readme_shows_what_is_printed() -> None:
    screen = (FOLDER / "console.txt").read_text(encoding="utf-8").splitlines()
    readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    excerpt = readme.split("<!-- excerpt -->\n```\n", 1)[1].split("```", 1)[0].splitlines()
    shown = [line for line in excerpt if line != "..."]
    assert len(shown) > 10
    at = -1
    for line in shown:
        at = screen.index(line, at + 1)
