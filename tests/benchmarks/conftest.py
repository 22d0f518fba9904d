"""What all benchmarks share: the yardstick, and figures that are printed and kept."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import simpy

from sim.experiment import Results, conduct
from sim.study import load_study

TIMEOUTS = 400_000


def bare_timeout_s() -> float:
    """Return the CPU time of a SimPy timeout that nobody else waits for: the best of three."""

    def waits(env: simpy.Environment):
        for _ in range(TIMEOUTS):
            yield env.timeout(1.0)

    times = []
    for _ in range(3):
        env = simpy.Environment()
        env.process(waits(env))
        began = time.process_time()
        env.run()
        times.append(time.process_time() - began)
    return min(times) / TIMEOUTS


def simulate(study: str | Path, *overrides: str) -> Results:
    """Read, simulate and summarise one replication of a study without its arms, as ``slotsim run`` does."""
    return conduct(load_study(str(study), overrides, replications=1).only(), 1, lambda: None, lambda *_: None)


@pytest.fixture
def azure(shared: Path) -> str:
    return f"workload.path={shared / 'data/files/azure/AzureLLMInferenceTrace_conv.csv'}"


@pytest.fixture
def tell(benchmark, capsys):
    """Return what keeps figures with the benchmark and prints them."""

    def told(**figures: float) -> None:
        benchmark.extra_info |= figures
        with capsys.disabled():
            print(f"\n{benchmark.name}: ", ", ".join(f"{name} {value:,.1f}" for name, value in figures.items()))

    return told
