"""When calls arrive: point processes, each a value whose fields are the keys of a study's ``arrivals`` table.

Every process yields arrival times in ascending chunks and draws from substreams by block number, so that two runs, or
two arms, see the same times. `Closed` is no process of its own: when its users call depends on the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from workloads.checks import at_least, is_number, positive, require, whole
from workloads.durations import Duration

BLOCK = 8192  # entities drawn at once; a constant, because it is part of the address of every random number
SPREAD = 1.64  # of the logarithms of clients' rates, see Clients
GOLDEN = (5.0**0.5 - 1.0) / 2.0
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
    """Memoryless arrivals: ``rate`` calls a second on average.

    Attributes
    ----------
    rate
        Calls a second.
    """

    rate: float

    def __post_init__(self) -> None:
        require(positive("rate", self.rate))

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times; gaps are exponential with mean ``1 / rate``."""
        return _renewal(lambda generator: generator.exponential(1.0 / self.rate, BLOCK), draw)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Renewal arrivals with gamma gaps: ``rate`` calls a second, coefficient of variation ``cv`` of the gaps.

    Attributes
    ----------
    rate
        Calls a second.
    cv
        Coefficient of variation of the gaps, ``1 / sqrt(shape)``: above 1 is bursty, below 1 regular, 1 is Poisson.
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
    """Renewal arrivals with Weibull gaps: ``rate`` calls a second, coefficient of variation ``cv`` of the gaps.

    Attributes
    ----------
    rate
        Calls a second.
    cv
        Coefficient of variation of the gaps: above 1 is bursty, below 1 regular.
    """

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
    """Batches: ``batch`` calls together every ``every_s`` seconds, the first at ``every_s``.

    Attributes
    ----------
    every_s
        Seconds between batches.
    batch
        Calls in each.
    """

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


def _time_changed(draw: Draw, inverse: Callable[[Floats], Floats]) -> Iterator[Floats]:
    """Yield the times at which a Poisson process of rate 1 in its own time happens, ``inverse`` giving the seconds."""
    last, k = 0.0, 0
    while True:
        own = last + np.cumsum(draw(k).exponential(1.0, BLOCK))
        last, k = float(own[-1]), k + 1
        times = inverse(own)
        ended = np.flatnonzero(~np.isfinite(times))
        yield times[: ended[0]] if len(ended) else times
        if len(ended):
            return


@dataclass(frozen=True, slots=True)
class Bursts:
    """Poisson arrivals of two rates that take turns (a Markov-modulated Poisson process).

    Attributes
    ----------
    rate
        Calls a second in the long run.
    factor
        How many times as fast calls come in a burst as outside.
    share
        Share of the time that is burst.
    mean_s
        Mean length of a burst in seconds; bursts and the calm between them are exponential.
    """

    rate: float
    factor: float
    share: float
    mean_s: float

    def __post_init__(self) -> None:
        require(
            positive("rate", self.rate),
            at_least("factor", self.factor, 1.0),
            ("share", self.share, is_number(self.share) and 0 < self.share < 1, "between 0 and 1"),
            positive("mean_s", self.mean_s),
        )

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times; the process starts in its stationary law."""
        calm = self.rate / (1.0 + self.share * (self.factor - 1.0))
        rates = np.array([calm, calm * self.factor])
        means = np.array([self.mean_s * (1.0 - self.share) / self.share, self.mean_s])
        begun, own_begun, last, k = 0.0, 0.0, 0.0, 0
        state = -1
        while True:
            generator = draw(k)
            if state < 0:
                state = int(generator.random() < self.share)
            own = last + np.cumsum(generator.exponential(1.0, BLOCK))
            last, k = float(own[-1]), k + 1
            starts, ends, states = [begun], [own_begun], [state]
            while own_begun <= last:  # periods until this block's calls have all happened
                length = float(generator.exponential(means[state]))
                begun, own_begun, state = begun + length, own_begun + length * float(rates[state]), 1 - state
                starts.append(begun)
                ends.append(own_begun)
                states.append(state)
            yield np.interp(own, ends, starts)
            # the period that the block ended in goes on: exponential, so that it may be drawn anew
            state = states[-2]
            begun, own_begun = float(np.interp(last, ends, starts)), last


@dataclass(frozen=True, slots=True)
class Profile:
    """Poisson arrivals whose rate follows the hour of the day and the day of the week.

    Attributes
    ----------
    rate
        Calls a second in the mean over a week.
    hours
        24 weights, midnight first.
    days
        7 weights, of the first simulated day first.
    start_hour
        Hour of the day at time 0.
    """

    rate: float
    hours: tuple[float, ...] = (1.0,) * 24
    days: tuple[float, ...] = (1.0,) * 7
    start_hour: float = 0.0

    def __post_init__(self) -> None:
        require(
            positive("rate", self.rate),
            *(
                (key, values, len(values) == n and _weights(values), f"{n} numbers, at least 0, not all 0")
                for key, values, n in (("hours", self.hours, 24), ("days", self.days, 7))
            ),
            ("start_hour", self.start_hour, is_number(self.start_hour) and 0 <= self.start_hour < 24, "from 0 to 24"),
        )

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times, exact for a rate that is constant within each hour."""
        weights = np.outer(self.days, self.hours).ravel()
        edges = np.arange(169) * 3600.0
        own = np.concatenate(([0.0], np.cumsum(weights / weights.mean() * self.rate * 3600.0)))
        week, offset = float(own[-1]), self.start_hour * 3600.0
        started = float(np.interp(offset, edges, own))

        def inverse(time: Floats) -> Floats:
            weeks, rest = np.divmod(time + started, week)
            return np.asarray(weeks * edges[-1] + np.interp(rest, own, edges) - offset)

        return _time_changed(draw, inverse)


@dataclass(frozen=True, slots=True)
class Ramp:
    """Poisson arrivals whose rate goes straight from point to point: ramps, spikes, steps.

    Attributes
    ----------
    points
        ``(seconds, calls a second)``, in order of time, the first at 0; two points at the same time are a jump. The
        last rate holds from there on; if it is 0 the calls end.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        fair = len(self.points) > 0 and all(
            len(point) == 2 and all(is_number(value) and value >= 0 for value in point) for point in self.points
        )
        require(("points", self.points, fair, "at least one pair (seconds, calls a second), none below 0"))
        seconds = [point[0] for point in self.points]
        require(
            ("points", seconds, seconds[0] == 0 and seconds == sorted(seconds), "in order of time from 0"),
            ("points", self.points, any(point[1] > 0 for point in self.points), "above 0 calls a second somewhere"),
        )

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times: the own time of the process is the area below the rate."""
        seconds, rates = np.array(self.points, np.float64).T
        spans = np.diff(seconds)
        own = np.concatenate(([0.0], np.cumsum(spans * (rates[1:] + rates[:-1]) / 2)))

        def inverse(time: Floats) -> Floats:
            at = np.searchsorted(own, time, side="right") - 1
            inside = np.minimum(at, max(len(spans) - 1, 0))
            rest = time - own[at]
            slope = (np.diff(rates) / np.where(spans > 0, spans, np.inf))[inside] if len(spans) else np.zeros(len(time))
            slope = np.where(at < len(spans), slope, 0.0)
            # rate * x + slope * x**2 / 2 = rest, in the form that also holds for a slope of 0
            root = np.sqrt(np.maximum(rates[at] ** 2 + 2.0 * slope * rest, 0.0))
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(seconds[at] + 2.0 * rest / (rates[at] + root))

        return _time_changed(draw, inverse)


@dataclass(frozen=True, slots=True)
class Clients:
    """Many clients, each with a rate and a burstiness of its own, as ServeGen (Xiang et al. 2025) found in production.

    Attributes
    ----------
    rate
        Calls a second of all clients together.
    clients
        How many.
    spread
        Standard deviation of the logarithms of their rates. 1.64 gives the ten busiest of 73 clients 68 % of the calls,
        as in ServeGen's log of DeepSeek-R1, and is taken where ``zipf`` is not given either.
    zipf
        Instead of the spread: the k-th busiest client has a rate proportional to ``k**-zipf``.
    cv
        Coefficient of variation of each client's gaps (gamma); the median client's where they differ.
    cv_spread
        Standard deviation of the logarithms of their coefficients of variation, which do not follow the rates. In
        ServeGen's log of DeepSeek-R1 the median is 1.9 and the spread 0.81 (and the correlation with the rates 0.11).
    """

    rate: float
    clients: int
    spread: float | None = None
    zipf: float | None = None
    cv: float = 1.0
    cv_spread: float = 0.0

    def __post_init__(self) -> None:
        skews = [(key, value) for key, value in (("spread", self.spread), ("zipf", self.zipf)) if value is not None]
        require(
            positive("rate", self.rate),
            whole("clients", self.clients, 1, 100_000),
            *(at_least(key, value, 0.0) for key, value in skews),
            ("zipf", self.zipf, len(skews) < 2, "left out beside a spread"),
            positive("cv", self.cv),
            at_least("cv_spread", self.cv_spread, 0.0),
        )

    def rates(self) -> Floats:
        """Return calls a second of each client."""
        ranks = np.arange(self.clients)
        if self.zipf is None:
            levels = (ranks + 0.5) / self.clients  # quantiles, so that the mix is the same in every run
            weights = np.exp((SPREAD if self.spread is None else self.spread) * special.ndtri(levels))
        else:
            weights = (ranks + 1.0) ** -self.zipf
        return np.asarray(self.rate * weights / weights.sum())

    def cvs(self) -> Floats:
        """Return the coefficient of variation of each client's gaps."""
        levels = (GOLDEN * (np.arange(self.clients) + 0.5)) % 1.0  # evenly spread, in an order unlike that of the rates
        return np.asarray(self.cv * np.exp(self.cv_spread * special.ndtri(levels)))

    def times(self, draw: Draw) -> Iterator[Floats]:
        """Yield arrival times of all clients, merged window by window."""
        shapes = self.cvs() ** -2
        window = BLOCK / self.rate
        rates = self.rates()
        held = [np.empty(0) for _ in rates]
        last, asked = np.zeros(len(rates)), np.zeros(len(rates), np.int64)
        end = 0.0
        while True:
            end += window
            for i, (rate, shape) in enumerate(zip(rates, shapes, strict=True)):
                while last[i] < end:
                    generator = draw((i + 1) * 2**32 + int(asked[i]))
                    gaps = generator.gamma(shape, 1.0 / (shape * rate), max(16, int(1.2 * rate * window)))
                    times = last[i] + np.cumsum(gaps)
                    held[i] = np.concatenate((held[i], times))
                    last[i], asked[i] = times[-1], asked[i] + 1
            cuts = [int(np.searchsorted(times, end)) for times in held]
            yield np.sort(np.concatenate([times[:cut] for times, cut in zip(held, cuts, strict=True)]))
            held = [times[cut:] for times, cut in zip(held, cuts, strict=True)]


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop: users who each call, wait for the answer, think and call again.

    Attributes
    ----------
    concurrency
        How many users; with no thinking, calls in flight at any time.
    think
        Law of the thinking before each call, the first included. When left out: none.
    """

    concurrency: int
    think: Duration | None = None

    def __post_init__(self) -> None:
        require(whole("concurrency", self.concurrency, 1, 100_000))


def _weights(values: tuple[float, ...]) -> bool:
    return all(is_number(value) and value >= 0 for value in values) and sum(values) > 0


ARRIVALS: dict[str, type[Arrivals]] = {
    "poisson": Poisson,
    "gamma": Gamma,
    "weibull": Weibull,
    "bursts": Bursts,
    "profile": Profile,
    "ramp": Ramp,
    "clients": Clients,
    "ticks": Ticks,
}

LOADS: dict[str, type[Arrivals | Closed]] = {**ARRIVALS, "closed": Closed}
"""What a stream may have for arrivals: a process, or a closed loop."""
