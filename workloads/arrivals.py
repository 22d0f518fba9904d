"""When calls arrive: point processes, each a value whose fields are the keys of a study's ``arrivals`` table.

Every process yields arrival times in ascending chunks and draws from substreams by block number, so that two runs, or
two arms, see the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from workloads.checks import at_least, positive, require

BLOCK = 8192  # entities drawn at once; a constant, because it is part of the address of every random number
Floats = NDArray[np.float64]
Draw = Callable[[int], np.random.Generator]


class Arrivals(Protocol):
    """A point process on ``[0, inf)`` seconds."""

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times in ascending chunks, without end unless the process ends.

        ``draw(k)`` is the generator of block k; a process asks for each block once.
        """
        ...


def _renewal(gaps: Callable[[np.random.Generator], Floats], draw: Draw) -> Iterator[Floats]:
    last, k = 0.0, 0
    while True:
        times = last + np.cumsum(gaps(draw(k)))
        last, k = float(times[-1]), k + 1
        yield times


@dataclass(frozen=True, slots=True)
class Poisson:
    """Memoryless arrivals: ``rate`` calls a second on average."""

    rate: float

    def __post_init__(self) -> None:
        require(positive("rate", self.rate))

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times; gaps are exponential with mean ``1 / rate``."""
        return _renewal(lambda generator: generator.exponential(1.0 / self.rate, BLOCK), draw)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Renewal arrivals with gamma gaps: ``rate`` calls a second, coefficient of variation ``cv`` of the gaps.

    Shape ``1 / cv**2``. ``cv`` above 1 is bursty, below 1 regular, 1 is Poisson.
    """

    rate: float
    cv: float

    def __post_init__(self) -> None:
        require(positive("rate", self.rate), positive("cv", self.cv))

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times; gaps are gamma with mean ``1 / rate`` and standard deviation ``cv / rate``."""
        shape = self.cv**-2
        return _renewal(lambda generator: generator.gamma(shape, 1.0 / (shape * self.rate), BLOCK), draw)


@dataclass(frozen=True, slots=True)
class Weibull:
    """Renewal arrivals with Weibull gaps: ``rate`` calls a second, coefficient of variation ``cv`` of the gaps."""

    rate: float
    cv: float

    def __post_init__(self) -> None:
        require(
            positive("rate", self.rate), at_least("cv", self.cv, 0.05), ("cv", self.cv, self.cv <= 20, "at most 20")
        )

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times; the gaps' shape k solves ``cv**2 = G(1 + 2/k) / G(1 + 1/k)**2 - 1``."""
        shape = _weibull_shape(self.cv)
        scale = 1.0 / (self.rate * float(special.gamma(1.0 + 1.0 / shape)))
        return _renewal(lambda generator: scale * generator.weibull(shape, BLOCK), draw)


def _weibull_shape(cv: float) -> float:
    from scipy import optimize

    def excess(shape: float) -> float:
        log_ratio = special.gammaln(1.0 + 2.0 / shape) - 2.0 * special.gammaln(1.0 + 1.0 / shape)
        return float(log_ratio) - float(np.log1p(cv**2))

    return float(optimize.brentq(excess, 0.05, 100.0, xtol=1e-14))


@dataclass(frozen=True, slots=True)
class Ticks:
    """Batches: ``batch`` calls together every ``every_s`` seconds, the first at ``every_s``."""

    every_s: float
    batch: int = 1

    def __post_init__(self) -> None:
        require(positive("every_s", self.every_s), at_least("batch", self.batch, 1))

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times: multiples of ``every_s``, each ``batch`` times."""
        k = 0
        while True:
            ticks = np.arange(k * BLOCK, (k + 1) * BLOCK, dtype=np.float64) // self.batch
            yield (ticks + 1.0) * self.every_s
            k += 1


ARRIVALS: dict[str, type[Arrivals]] = {"poisson": Poisson, "gamma": Gamma, "weibull": Weibull, "ticks": Ticks}
