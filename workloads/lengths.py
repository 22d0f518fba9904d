"""How long prompts and answers are: laws over whole tokens, each a value whose fields are the keys of a study's table.

Every law is drawn by inversion, one uniform a value: ``quantile(u)``. So the prompt and the answer of a call can be
tied by a copula, and the same call keeps its length when something else of the study changes. Continuous laws are
rounded up, ``L = ceil(X)``, which keeps ``P(L > k) = P(X > k)`` at every whole k: a share above 8,000 is the
continuous law's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from workloads.checks import at_least, exactly_one, positive, require, share, whole
from workloads.errors import BadInput, Fault, did_you_mean
from workloads.trace import MAX_TOKENS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LIMIT = 131_072  # default longest answer: the largest output limit of current models (see policies.limits)
P99 = float(special.ndtri(0.99))


class Length(Protocol):
    """A law of whole token counts."""

    def quantile(self, u: Floats) -> Ints:
        """Return the least count k with ``P(L <= k) >= u`` for each u in [0, 1)."""
        ...

    def moments(self) -> tuple[float, float]:
        """Return ``(E[L], E[L**2])`` of the whole-number law that is drawn."""
        ...


def draw(law: Length, generator: np.random.Generator, n: int) -> Ints:
    """Return n independent token counts of a law."""
    return law.quantile(generator.random(n))


@dataclass(frozen=True, slots=True)
class Constant:
    """Always ``tokens``.

    Attributes
    ----------
    tokens
        The length.
    """

    tokens: int

    def __post_init__(self) -> None:
        require(whole("tokens", self.tokens, 0, MAX_TOKENS))

    def quantile(self, u: Floats) -> Ints:
        """Return ``tokens`` for every u."""
        return np.full(len(u), self.tokens, np.int64)

    def moments(self) -> tuple[float, float]:
        """Return the value and its square."""
        return float(self.tokens), float(self.tokens) ** 2


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each whole number from ``low`` to ``high``, both included, alike.

    Attributes
    ----------
    low
        The shortest.
    high
        The longest.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        require(whole("low", self.low, 0, MAX_TOKENS), whole("high", self.high, 0, MAX_TOKENS))
        require(("high", self.high, self.high >= self.low, f"at least low = {self.low:,}"))

    def quantile(self, u: Floats) -> Ints:
        """Return the counts at these levels."""
        return self.low + np.floor(u * (self.high - self.low + 1)).astype(np.int64)

    def moments(self) -> tuple[float, float]:
        """Return mean and second moment of the discrete uniform law."""
        mean, n = (self.low + self.high) / 2, self.high - self.low + 1
        return mean, mean**2 + (n**2 - 1) / 12


@dataclass(frozen=True, slots=True)
class TwoPoint:
    """``high`` with probability ``share``, else ``low``.

    Attributes
    ----------
    low
        One length.
    high
        The other.
    share
        Probability of ``high``.
    """

    low: int
    high: int
    share: float

    def __post_init__(self) -> None:
        require(
            whole("low", self.low, 0, MAX_TOKENS), whole("high", self.high, 0, MAX_TOKENS), share("share", self.share)
        )

    def quantile(self, u: Floats) -> Ints:
        """Return the counts at these levels."""
        return np.where(u >= 1.0 - self.share, self.high, self.low).astype(np.int64)

    def moments(self) -> tuple[float, float]:
        """Return mean and second moment."""
        first, second = ((1 - self.share) * self.low**k + self.share * self.high**k for k in (1, 2))
        return first, second


@dataclass(frozen=True, slots=True)
class Geometric:
    """The memoryless law on 1, 2, 3...: an answer stops after each token with probability ``1 / mean``.

    Attributes
    ----------
    mean
        Mean length, at least 1.
    """

    mean: float

    def __post_init__(self) -> None:
        require(at_least("mean", self.mean, 1.0))

    def quantile(self, u: Floats) -> Ints:
        """Return the counts at these levels."""
        if self.mean == 1.0:
            return np.ones(len(u), np.int64)
        counts = np.ceil(np.log1p(-u) / math.log1p(-1.0 / self.mean))
        return np.clip(counts, 1, MAX_TOKENS).astype(np.int64)

    def moments(self) -> tuple[float, float]:
        """Return the mean and ``mean * (2 * mean - 1)``."""
        return self.mean, self.mean * (2.0 * self.mean - 1.0)


@dataclass(frozen=True, slots=True)
class Exponential:
    """An exponential law with mean ``mean``, rounded up: its own mean is ``1 / (1 - exp(-1 / mean))``.

    Attributes
    ----------
    mean
        Mean of the continuous law.
    """

    mean: float

    def __post_init__(self) -> None:
        require(positive("mean", self.mean))

    def quantile(self, u: Floats) -> Ints:
        """Return the counts at these levels."""
        return self._geometric().quantile(u)

    def moments(self) -> tuple[float, float]:
        """Return the moments of the equal geometric law."""
        return self._geometric().moments()

    def _geometric(self) -> Geometric:
        return Geometric(-1.0 / math.expm1(-1.0 / self.mean))


class _Tailed:
    """What the continuous laws share: rounding up, the longest answer, the runaway share."""

    __slots__ = ()
    max: int
    runaway: float

    def inverse(self, u: Floats) -> Floats:
        raise NotImplementedError

    def survival(self, x: Floats) -> Floats:
        raise NotImplementedError

    def quantile(self, u: Floats) -> Ints:
        """Return the counts at these levels; the topmost ``runaway`` share of the levels gives ``max``."""
        keep = 1.0 - self.runaway
        with np.errstate(over="ignore", divide="ignore"):
            counts = np.ceil(self.inverse(np.minimum(u / keep, 1.0) if keep else np.ones(len(u))))
        return np.where(u >= keep, self.max, np.clip(counts, 1, self.max)).astype(np.int64)

    def moments(self) -> tuple[float, float]:
        """Return the moments as sums over the tail, ``sum P(L > k)`` and ``sum (2k + 1) P(L > k)``."""
        return _tail_sums(self)

    def _tail_rules(self) -> list[tuple[str, object, bool, str]]:
        return [whole("max", self.max, 1, MAX_TOKENS), share("runaway", self.runaway)]


@lru_cache(maxsize=64)  # every arm of every case of a study asks for those of the same few laws
def _tail_sums(law: _Tailed) -> tuple[float, float]:
    k = np.arange(law.max, dtype=np.float64)
    above = law.runaway + (1.0 - law.runaway) * law.survival(k)
    above[0] = 1.0
    return float(above.sum()), float(((2.0 * k + 1.0) * above).sum())


@dataclass(frozen=True, slots=True)
class Lognormal(_Tailed):
    """``exp(N(log median, sigma**2))`` tokens, rounded up.

    Attributes
    ----------
    median
        Half of the (not runaway) answers are at most this long.
    p99, mean, sigma
        The spread, by exactly one of them: the 99th percentile, the mean of the continuous law, or sigma itself.
    max
        The longest answer; longer draws are cut to it.
    runaway
        Share of answers that never stop by themselves: their true length is ``max``.
    """

    median: float
    p99: float | None = None
    mean: float | None = None
    sigma: float | None = None
    max: int = LIMIT
    runaway: float = 0.0

    def __post_init__(self) -> None:
        spread = [("p99", self.p99), ("mean", self.mean)]
        require(
            positive("median", self.median),
            exactly_one(("p99", "mean", "sigma"), (self.p99, self.mean, self.sigma)),
            *(at_least(key, value, self.median) for key, value in spread if value is not None),
            *([] if self.sigma is None else [at_least("sigma", self.sigma, 0.0)]),
            *self._tail_rules(),
        )

    @property
    def spread(self) -> float:
        """Sigma, however it was given: ``log(p99 / median) / z(0.99)`` or ``sqrt(2 log(mean / median))``."""
        if self.sigma is not None:
            return self.sigma
        if self.p99 is not None:
            return math.log(self.p99 / self.median) / P99
        assert self.mean is not None
        return math.sqrt(2.0 * math.log(self.mean / self.median))

    def inverse(self, u: Floats) -> Floats:
        """Return the continuous law's quantiles."""
        return self.median * np.exp(self.spread * special.ndtri(u)) if self.spread else np.full(len(u), self.median)

    def survival(self, x: Floats) -> Floats:
        """Return ``P(X > x)`` of the continuous law."""
        if not self.spread:
            return (x < self.median).astype(np.float64)
        with np.errstate(divide="ignore"):
            return np.asarray(special.ndtr(-(np.log(x) - math.log(self.median)) / self.spread))


@dataclass(frozen=True, slots=True)
class Weibull(_Tailed):
    """A Weibull law rounded up: ``P(X > x) = exp(-(x / scale)**shape)``; a shape below 1 has a heavier tail than 1.

    Attributes
    ----------
    shape
        Exponent of the survival function's logarithm.
    scale
        Length that a share of 1/e of the answers exceeds.
    max
        The longest answer; longer draws are cut to it.
    runaway
        Share of answers that never stop by themselves: their true length is ``max``.
    """

    shape: float
    scale: float
    max: int = LIMIT
    runaway: float = 0.0

    def __post_init__(self) -> None:
        require(positive("shape", self.shape), positive("scale", self.scale), *self._tail_rules())

    def inverse(self, u: Floats) -> Floats:
        """Return the continuous law's quantiles."""
        return np.asarray(self.scale * (-np.log1p(-u)) ** (1.0 / self.shape))

    def survival(self, x: Floats) -> Floats:
        """Return ``P(X > x)`` of the continuous law."""
        return np.asarray(np.exp(-((x / self.scale) ** self.shape)))


@dataclass(frozen=True, slots=True)
class Gamma(_Tailed):
    """A gamma law of mean ``shape * scale``, rounded up.

    Attributes
    ----------
    shape
        1 over the squared coefficient of variation.
    scale
        Mean over shape.
    max
        The longest answer; longer draws are cut to it.
    runaway
        Share of answers that never stop by themselves: their true length is ``max``.
    """

    shape: float
    scale: float
    max: int = LIMIT
    runaway: float = 0.0

    def __post_init__(self) -> None:
        require(positive("shape", self.shape), positive("scale", self.scale), *self._tail_rules())

    def inverse(self, u: Floats) -> Floats:
        """Return the continuous law's quantiles."""
        return np.asarray(self.scale * special.gammaincinv(self.shape, u))

    def survival(self, x: Floats) -> Floats:
        """Return ``P(X > x)`` of the continuous law."""
        return np.asarray(special.gammaincc(self.shape, x / self.scale))


@dataclass(frozen=True, slots=True)
class Loglogistic(_Tailed):
    """A log-logistic law rounded up: ``P(X > x) = 1 / (1 + (x / median)**shape)``, a power tail of index ``shape``.

    Attributes
    ----------
    median
        Half of the (not runaway) answers are at most this long.
    shape
        Index of the power tail; the smaller, the heavier.
    max
        The longest answer; longer draws are cut to it.
    runaway
        Share of answers that never stop by themselves: their true length is ``max``.
    """

    median: float
    shape: float
    max: int = LIMIT
    runaway: float = 0.0

    def __post_init__(self) -> None:
        require(positive("median", self.median), positive("shape", self.shape), *self._tail_rules())

    def inverse(self, u: Floats) -> Floats:
        """Return the continuous law's quantiles."""
        return np.asarray(self.median * (u / (1.0 - u)) ** (1.0 / self.shape))

    def survival(self, x: Floats) -> Floats:
        """Return ``P(X > x)`` of the continuous law."""
        return np.asarray(1.0 / (1.0 + (x / self.median) ** self.shape))


@dataclass(frozen=True, slots=True)
class Mixture:
    """One of several laws, by its weight.

    Attributes
    ----------
    parts
        Tables like the study's own, each with ``kind``, the keys of that law, and optionally ``weight`` (1 when
        absent).
    """

    parts: tuple[Mapping[str, Any], ...]
    _laws: tuple[Length, ...] = field(init=False, repr=False, compare=False)
    _levels: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(("parts", self.parts, len(self.parts) > 0, "at least one table"))
        faults: list[Fault] = []
        laws, weights = [], []
        for i, part in enumerate(self.parts):
            table = dict(part)
            weights.append(table.pop("weight", 1.0))
            try:
                require(at_least("weight", weights[-1], 0.0))
                laws.append(_law(table))
            except BadInput as error:
                faults += [Fault(fault.message, key=f"parts.{i}.{fault.key}") for fault in error.faults]
        if not faults and not sum(weights) > 0:
            faults.append(Fault("the weights must not all be 0", key="parts"))
        if faults:
            raise BadInput(*faults)
        order = sorted((i for i in range(len(laws)) if weights[i] > 0), key=lambda i: laws[i].moments()[0])
        levels = np.cumsum([weights[i] for i in order])
        object.__setattr__(self, "_laws", tuple(laws[i] for i in order))
        object.__setattr__(self, "_levels", levels / levels[-1])

    def quantile(self, u: Floats) -> Ints:
        """Return counts whose law is the mixture if u is uniform.

        The lowest levels belong to the part with the smallest mean, and so on: across parts counts need not rise with
        u.
        """
        at = np.minimum(np.searchsorted(self._levels, u, side="right"), len(self._laws) - 1)
        below = np.concatenate(([0.0], self._levels[:-1]))
        counts = np.empty(len(u), np.int64)
        for i, law in enumerate(self._laws):
            mine = at == i
            inside = (u[mine] - below[i]) / (self._levels[i] - below[i])
            counts[mine] = law.quantile(np.clip(inside, 0.0, np.nextafter(1.0, 0.0)))
        return counts

    def moments(self) -> tuple[float, float]:
        """Return the weighted moments of the parts."""
        weights = np.diff(self._levels, prepend=0.0)
        found = np.array([law.moments() for law in self._laws])
        return float(weights @ found[:, 0]), float(weights @ found[:, 1])


@dataclass(frozen=True, slots=True)
class Empirical:
    """Recorded lengths, drawn with replacement.

    Attributes
    ----------
    values
        Token counts.
    weights
        How often each value counts; all alike when empty.
    path, column
        Instead of ``values``: a CSV with a column ``column`` (and ``probability`` or ``weight`` if weighted), read
        when the law is made; a relative path is relative to the working directory.
    """

    values: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    path: str | None = None
    column: str = "tokens"
    _sorted: Ints = field(init=False, repr=False, compare=False)
    _levels: Floats = field(init=False, repr=False, compare=False)
    WEIGHTS: ClassVar[tuple[str, ...]] = ("probability", "weight")

    def __post_init__(self) -> None:
        require(exactly_one(("values", "path"), (self.values or None, self.path)))
        values, weights = (self.values, self.weights) if self.path is None else self._read(Path(self.path))
        counts = np.asarray(values, np.float64)
        weighing = np.asarray(weights, np.float64) if len(weights) else np.ones(len(counts))
        whole_counts = bool(np.isfinite(counts).all()) and bool((np.mod(counts, 1) == 0).all())
        require(
            (
                "values",
                "something else",
                whole_counts and counts.min() >= 0 and counts.max() <= MAX_TOKENS,
                f"whole numbers from 0 to {MAX_TOKENS:,}",
            ),
            ("weights", f"{len(weighing)} of them", len(weighing) == len(counts), f"{len(counts)}, one a value"),
        )
        fair = bool(np.isfinite(weighing).all()) and weighing.min() >= 0 and weighing.sum() > 0
        require(("weights", "something else", fair, "finite, at least 0, not all 0"))
        order = np.argsort(counts, kind="stable")
        levels = np.cumsum(weighing[order])
        object.__setattr__(self, "_sorted", counts[order].astype(np.int64))
        object.__setattr__(self, "_levels", levels / levels[-1])

    def _read(self, path: Path) -> tuple[list[int], list[float]]:
        from workloads.readers.lengths import read_lengths

        return read_lengths(path, self.column, self.WEIGHTS)

    def quantile(self, u: Floats) -> Ints:
        """Return the counts at these levels."""
        at = np.minimum(np.searchsorted(self._levels, u, side="right"), len(self._sorted) - 1)
        return np.asarray(self._sorted[at])

    def moments(self) -> tuple[float, float]:
        """Return the weighted mean and second moment."""
        weights = np.diff(self._levels, prepend=0.0)
        counts = self._sorted.astype(np.float64)
        return float(weights @ counts), float(weights @ counts**2)


LENGTHS: dict[str, type[Length]] = {
    "constant": Constant,
    "uniform": Uniform,
    "two-point": TwoPoint,
    "geometric": Geometric,
    "exponential": Exponential,
    "lognormal": Lognormal,
    "weibull": Weibull,
    "gamma": Gamma,
    "loglogistic": Loglogistic,
    "mixture": Mixture,
    "empirical": Empirical,
}


def _law(table: Mapping[str, Any]) -> Length:
    """Return the law that a study's table describes.

    Raises
    ------
    workloads.errors.BadInput
        If there is no such kind, or a key is unknown, missing or out of range.
    """
    keys = dict(table)
    kind = keys.pop("kind", None)
    law = LENGTHS.get(kind) if isinstance(kind, str) else None
    if law is None:
        raise BadInput(Fault(f"must be one of {', '.join(LENGTHS)}{did_you_mean(str(kind), LENGTHS)}", key="kind"))
    known = [item.name for item in fields(law) if item.init]  # type: ignore[arg-type]  # every law is a dataclass
    unknown = [Fault(f"no such key; allowed: {', '.join(known)}", key=key) for key in keys if key not in known]
    if unknown:
        raise BadInput(*unknown)
    try:
        return law(**keys)
    except TypeError as error:
        raise BadInput(Fault(str(error).partition(") ")[2], key=str(kind))) from None
