"""Speeds, on request only: ``pytest tests/workloads/test_speed.py --benchmark-only``. Figures in docs/workloads.md."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from workloads.arrivals import Gamma, Poisson
from workloads.lengths import Geometric, Lognormal
from workloads.readers import read_trace, write_trace
from workloads.source import Mixture, Stream
from workloads.trace import Trace

MILLION = 1_000_000
CHAT = Stream("chat", Poisson(20.0), Lognormal(900, p99=30_000), Lognormal(600, p99=5_000, runaway=0.001))
TOOLS = Stream("tools", Gamma(5.0, 3.0), Lognormal(9_000, sigma=1.0), Geometric(200.0), {"latin": 3.0, "han": 1.0})


def drawn() -> list[Trace]:
    parts, held = [], 0
    for block in Mixture([CHAT, TOOLS]).blocks(1, 0):
        parts.append(block)
        held += len(block)
        if held >= MILLION:
            return parts
    return parts


def test_draw_a_million_calls(benchmark) -> None:
    benchmark(drawn)


def test_open_a_million_rows(benchmark, tmp_path: Path) -> None:
    path = tmp_path / "million.parquet"
    write_trace(Trace.concat(drawn()), path)
    assert len(benchmark(read_trace, path)) >= MILLION


def test_read_the_azure_trace(benchmark, shared: Path) -> None:
    trace = benchmark(read_trace, shared / "data/files/azure/AzureLLMInferenceTrace_conv.csv")
    assert len(trace) == 19_366


DRAWING = """
    import resource
    from tests.workloads.test_speed import drawn
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    parts = drawn()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(not os.path.exists("/proc"), reason="ru_maxrss is in kilobytes on Linux only")
def test_a_million_calls_are_drawn_in_less_than_150_megabytes() -> None:
    program, root = textwrap.dedent(DRAWING), Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert float(done.stdout) < 150


GROWTH = """
    import resource, sys
    import numpy, pyarrow, scipy.special, workloads.readers
    from workloads.readers import read_trace
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_trace(sys.argv[1])
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(not os.path.exists("/proc"), reason="ru_maxrss is in kilobytes on Linux only")
def test_a_million_rows_take_less_than_150_megabytes(tmp_path: Path) -> None:
    n = MILLION
    rng = np.random.Generator(np.random.Philox(1))
    path = tmp_path / "million.parquet"
    trace = Trace(np.cumsum(rng.exponential(1.0, n)), rng.integers(1, 99_999, n), rng.integers(1, 9_999, n))
    write_trace(trace, path)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GROWTH), str(path)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 150
