"""How long users think and wait: laws of seconds, each a value whose fields are the keys of a study's table.

Drawn by inversion, one uniform a value, as lengths are (`workloads.lengths`), so that the same user thinks as long in
every arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from workloads.checks import at_least, positive, require

Floats = NDArray[np.float64]

P99 = float(special.ndtri(0.99))


class Duration(Protocol):
    """A law of durations in seconds."""

    def quantile(self, u: Floats) -> Floats:
        """Return the least duration t with ``P(T <= t) >= u`` for each u in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always ``value_s``.

    Attributes
    ----------
    value_s
        The duration.
    """

    value_s: float

    def __post_init__(self) -> None:
        require(at_least("value_s", self.value_s, 0.0))

    def quantile(self, u: Floats) -> Floats:
        """Return ``value_s`` for every u."""
        return np.full(len(u), float(self.value_s))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Evenly from ``low_s`` to ``high_s``.

    Attributes
    ----------
    low_s
        The shortest.
    high_s
        The longest.
    """

    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        require(at_least("low_s", self.low_s, 0.0), at_least("high_s", self.high_s, self.low_s))

    def quantile(self, u: Floats) -> Floats:
        """Return the durations at these levels."""
        return self.low_s + (self.high_s - self.low_s) * u


@dataclass(frozen=True, slots=True)
class Exponential:
    """Memoryless, ``mean_s`` in the mean.

    Attributes
    ----------
    mean_s
        Mean duration.
    """

    mean_s: float

    def __post_init__(self) -> None:
        require(positive("mean_s", self.mean_s))

    def quantile(self, u: Floats) -> Floats:
        """Return the durations at these levels."""
        return np.asarray(-self.mean_s * np.log1p(-u))


@dataclass(frozen=True, slots=True)
class Gamma:
    """A gamma law with mean ``mean_s`` and coefficient of variation ``cv``.

    Attributes
    ----------
    mean_s
        Mean duration.
    cv
        Coefficient of variation: standard deviation over mean.
    """

    mean_s: float
    cv: float

    def __post_init__(self) -> None:
        require(positive("mean_s", self.mean_s), positive("cv", self.cv))

    def quantile(self, u: Floats) -> Floats:
        """Return the durations at these levels; the shape is ``1 / cv**2``."""
        return np.asarray(self.mean_s * self.cv**2 * special.gammaincinv(self.cv**-2, u))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """``exp(N(log median_s, sigma**2))`` seconds, sigma such that 1 % are longer than ``p99_s``.

    Attributes
    ----------
    median_s
        Half are at most this long.
    p99_s
        99 % are at most this long.
    """

    median_s: float
    p99_s: float

    def __post_init__(self) -> None:
        require(positive("median_s", self.median_s), at_least("p99_s", self.p99_s, self.median_s))

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm: ``log(p99 / median) / z(0.99)``."""
        return math.log(self.p99_s / self.median_s) / P99

    def quantile(self, u: Floats) -> Floats:
        """Return the durations at these levels."""
        scores = special.ndtri(np.maximum(u, np.finfo(np.float64).tiny))  # else 0 times infinity where sigma is 0
        return np.asarray(self.median_s * np.exp(self.sigma * scores))


DURATIONS: dict[str, type[Duration]] = {
    "constant": Constant,
    "uniform": Uniform,
    "exponential": Exponential,
    "gamma": Gamma,
    "lognormal": Lognormal,
}
