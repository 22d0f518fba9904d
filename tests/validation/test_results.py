"""The committed results are what their commands give, and the documentation shows them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make", ROOT / "results/validation/make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = _make()


def test_the_documentation_shows_the_committed_tables():
    page = (ROOT / "docs/validation.md").read_text(encoding="utf-8")
    assert MAKE.tables(MAKE.committed()) in page, "python results/validation/make.py prints the tables"


@pytest.mark.parametrize("name", MAKE.COMMANDS)
def test_a_command_gives_its_committed_result_again(shared, name):
    kept, found = MAKE.committed()[name], MAKE.result_of(MAKE.COMMANDS[name], str(shared))
    assert found["command"] == kept["command"]
    if name.startswith("measured"):
        for metric, row in kept["result"]["metrics"].items():
            assert found["result"]["metrics"][metric] == pytest.approx(row, abs=2e-4, rel=2e-4)
    else:  # solvers end where their libraries' rounding leads them
        for metric, errors in kept["result"]["held_out"].items():
            again = found["result"]["held_out"][metric]
            assert again["points"] == errors["points"]
            assert again["median"] == pytest.approx(errors["median"], abs=0.01)
