"""A step-time model read from the file that a calibration wrote."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.hardware import Gpu, Model
from sim.steptime.base import Chunk, Provenance, Segment, StepTime
from sim.steptime.line import Line
from sim.steptime.roofline import Roofline
from workloads.errors import BadInput, Fault, unreadable

KINDS = ("line", "roofline")


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A model that ``slotsim calibrate`` has fitted.

    Attributes
    ----------
    path
        The file it wrote.
    gpu, model, tensor_parallel
        What runs on what; a calibrated line does not look at them.
    """

    path: str
    gpu: Gpu
    model: Model
    tensor_parallel: int = 1
    fitted: StepTime = field(init=False, repr=False, compare=False)
    provenance: Provenance = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the file.

        Raises
        ------
        BadInput
            It cannot be read, or holds no calibration that can be used.
        """
        document = read_calibration(self.path)
        constants = document["constants"]
        fitted: StepTime
        try:
            if document["kind"] == "line":
                fitted = Line(**constants)
            else:
                weights = document.get("weights")
                fitted = Roofline(self.gpu, self.model, self.tensor_parallel, weights=weights, **constants)
        except (TypeError, ValueError) as error:
            raise BadInput(Fault(str(error), self.path, None, "constants")) from None
        about = document.get("provenance", {})
        provenance = Provenance(
            kind="calibrated",
            source=f"{self.path}: {about.get('source', 'no source given')}",
            engine=about.get("engine", ""),
            version=about.get("version", ""),
            hardware=about.get("hardware", ""),
            date=about.get("date", ""),
            constants=fitted.provenance.constants or constants,
            covers={axis: (float(low), float(high)) for axis, (low, high) in document.get("covers", {}).items()},
        )
        object.__setattr__(self, "fitted", fitted)
        object.__setattr__(self, "provenance", provenance)

    def segment(self, decodes: int, context: int, chunks: Sequence[Chunk] = ()) -> Segment:
        """Return ``(base, slope, steps)`` as the fitted model gives it."""
        return self.fitted.segment(decodes, context, chunks)


def read_calibration(path: str | Path) -> Mapping[str, Any]:
    """Read a calibration file: ``kind``, ``[constants]`` and what `slotsim calibrate` writes besides.

    Raises
    ------
    BadInput
        It cannot be read, is no TOML, or its kind or constants are missing or no numbers: all faults.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(unreadable(error, path)) from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(Fault(f"is no TOML: {error}", path)) from None
    faults = []
    if document.get("kind") not in KINDS:
        faults.append(Fault(f"is {document.get('kind')!r}: one of {', '.join(KINDS)}", path, None, "kind"))
    constants = document.get("constants")
    if not isinstance(constants, dict) or not constants:
        faults.append(Fault("is missing: the fitted constants", path, None, "constants"))
    else:
        wrong = {k: v for k, v in constants.items() if not isinstance(v, int | float) or isinstance(v, bool)}
        faults += [Fault(f"is {value!r}: a number", path, None, f"constants.{name}") for name, value in wrong.items()]
    for table in ("provenance", "covers"):
        if not isinstance(document.get(table, {}), dict):
            faults.append(Fault("is no table", path, None, table))
    covers = document.get("covers", {})
    for axis, ends in covers.items() if isinstance(covers, dict) else ():
        if not (isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, int | float) for end in ends)):
            faults.append(Fault(f"is {ends!r}: [smallest, largest]", path, None, f"covers.{axis}"))
    if faults:
        raise BadInput(*faults)
    return document
