"""Rules of the project that no linter knows."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pandas", "matplotlib", "scipy", "pyarrow", "numpy")


def loaded_after(*arguments: str) -> set[str]:
    program = (
        "import sys; sys.argv = ['slotsim', *sys.argv[1:]]\n"
        "from sim.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.split("LOADED", 1)[1].split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_light_verbs_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Start-up is under 0.3 s only while these stay out; a module list is deterministic where a time limit is not."""
    assert not loaded_after(*arguments) & set(HEAVY)
