"""Study files: one TOML file that holds everything, checked with every fault's line."""

from __future__ import annotations

from sim.study.study import BASE, Run, Study, load_study, templates
from sim.study.tables import Arm

__all__ = ["BASE", "Arm", "Run", "Study", "load_study", "templates"]
