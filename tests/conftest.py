"""What all tests share: where the handed material lies, and how hypothesis runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Return what writes a text into the test's folder, as a study unless it is named, and returns its path."""

    def write(text: str, name: str = "study.toml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of handed material (traces, corpora, recordings), or skip where it is not at hand."""
    folder = Path(os.environ.get("SLOTSIM_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"needs the handed data: {folder} is absent (set SLOTSIM_SHARED)")
    return folder
