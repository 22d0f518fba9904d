"""Coverage-guided fuzzing of every reader: ``python -m tests.fuzz.readers SECONDS``; needs atheris.

A reader may say what is wrong with a file (`BadInput`); whatever else it raises is a crash, and ten seconds on one file
are a hang. Either ends the run with an error and leaves the file, ``crash-*`` or ``timeout-*``, in the working
directory. The first byte of an input chooses the format, the second whether bad rows are skipped.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["workloads"]):
    from workloads.errors import BadInput
    from workloads.readers import NAMES, read_recording, write_trace

from tests.workloads.samples import SAMPLES

FORMATS = ("auto", *NAMES)
HANG_S = 10


def main() -> None:
    """Fuzz for so many seconds."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder:
        seeds, log = Path(folder) / "seeds", Path(folder) / "log"
        seeds.mkdir()
        for name, (sample, *_) in SAMPLES.items():
            (seeds / name).write_bytes(bytes([FORMATS.index(name), 0]) + sample)
            (seeds / f"{name}-packed").write_bytes(bytes([0, 1]) + gzip.compress(sample))
        log.write_bytes(SAMPLES["csv"][0])
        columnar = Path(folder) / "log.parquet"
        write_trace(read_recording(log).trace, columnar)
        (seeds / "parquet").write_bytes(bytes([FORMATS.index("parquet"), 0]) + columnar.read_bytes())

        def read(data: bytes) -> None:
            if len(data) < 2:
                return
            log.write_bytes(data[2:])
            with suppress(BadInput):
                read_recording(log, FORMATS[data[0] % len(FORMATS)], skip_bad=bool(data[1] % 2))

        options = [f"-max_total_time={seconds}", f"-timeout={HANG_S}", "-rss_limit_mb=4096", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, str(seeds)], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
