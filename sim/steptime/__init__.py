"""How long one iteration of a model server takes: models that answer in straight lines, as `jump` needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sim.steptime.base import FOREVER, Chunk, Provenance, Segment, StepTime
from sim.steptime.calibrated import Calibrated
from sim.steptime.kernels import Kernels, read_kernels
from sim.steptime.line import Line
from sim.steptime.profile import Profile
from sim.steptime.regression import REGRESSIONS, Regression
from sim.steptime.roofline import Roofline

__all__ = [
    "FOREVER",
    "REGRESSIONS",
    "STEP_TIMES",
    "Calibrated",
    "Chunk",
    "Kernels",
    "Line",
    "Profile",
    "Provenance",
    "Regression",
    "Roofline",
    "Segment",
    "StepTime",
    "read_kernels",
]

STEP_TIMES: Mapping[str, type] = MappingProxyType(
    {"line": Line, "roofline": Roofline, "profile": Profile, "regression": Regression, "calibrated": Calibrated}
)
"""Step-time models by the name studies write; their fields are the constants a study may set."""
