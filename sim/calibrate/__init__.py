"""Step-time constants from what a real server was seen to do: request logs, tables and files of load tests."""

from __future__ import annotations

from sim.calibrate.fit import Calibration, calibrate_points
from sim.calibrate.logs import calibrate_log
from sim.calibrate.points import Point, read_points

__all__ = ["Calibration", "Point", "calibrate_log", "calibrate_points", "read_points"]
