"""Readers of recorded traffic: one module a format, all streamed, all strict, all listed in `FORMATS`."""

from workloads.readers.columnar import write_trace
from workloads.readers.formats import FORMATS, NAMES, read_recording, read_trace
from workloads.readers.recording import Recording

__all__ = ["FORMATS", "NAMES", "Recording", "read_recording", "read_trace", "write_trace"]
