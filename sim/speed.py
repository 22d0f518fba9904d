"""What a run costs the machine it runs on: the ``speed`` block of a summary."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KIB_PER_MB = 1e6 / 1024


class Meter:
    """Measures from its making on, which should come right after the imports.

    Attributes
    ----------
    write_cpu_s
        CPU time spent on Parquet files and pictures so far.
    """

    def __init__(self) -> None:
        self._import_cpu_s = time.process_time()
        self._import_rss_mb = _memory_mb("VmRSS")
        self.write_cpu_s = 0.0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count what is done inside as writing."""
        began = time.process_time()
        yield
        self.write_cpu_s += time.process_time() - began

    def block(self, requests: int, cpu_s: float) -> dict[str, float]:
        """Return the block, memory in 10^6 bytes; the peak is that of the largest process.

        Parameters
        ----------
        requests
            Requests simulated.
        cpu_s
            CPU time of reading, simulating and summarising.
        """
        workers_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / _KIB_PER_MB
        return {
            "requests": requests,
            "cpu_s": cpu_s,
            "requests_per_cpu_s": requests / max(cpu_s, 1e-9),
            "import_cpu_s": self._import_cpu_s,
            "write_cpu_s": self.write_cpu_s,
            "import_rss_mb": self._import_rss_mb,
            "peak_rss_mb": max(_memory_mb("VmHWM"), workers_mb),
        }


def _memory_mb(field: str) -> float:
    """Return the resident memory of this process now (``VmRSS``) or at its peak (``VmHWM``), 10^6 bytes.

    Where the system does not tell, it is the peak that ``getrusage`` knows, which starts at the size of the program
    that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(field)) / _KIB_PER_MB
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_MB
