"""Length models fitted to recorded answers, of which those that a limit cut are right-censored.

A recorded length is a whole number, so its likelihood is that of an interval, ``P(l - 1 < X <= l)``, which only needs
the law's survival function; a cut answer counts as ``P(X > l - 1)``. Standard errors are the sandwich estimate over
clusters (session, client), so they hold for calls that resemble each other and for a law that is only nearly right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Z = float(special.ndtri(0.975))
ATOM = 5  # so many answers of exactly the longest length, all others being shorter, are taken for a cap


@dataclass(frozen=True, slots=True)
class Family:
    """A two-parameter law on the line: log survival, and where a search starts.

    Attributes
    ----------
    log_survival
        ``log P(X > x)`` for lengths x and unconstrained parameters.
    start
        Parameters from mean and standard deviation of the logarithms.
    table
        The study's table of the law.
    """

    log_survival: Callable[[Floats, Floats], Floats]
    start: Callable[[float, float], tuple[float, ...]]
    table: Callable[[Floats], dict[str, Any]]


def _lognormal(x: Floats, theta: Floats) -> Floats:
    return np.asarray(special.log_ndtr(-(np.log(x) - theta[0]) * math.exp(-theta[1])))


def _weibull(x: Floats, theta: Floats) -> Floats:
    return np.asarray(-np.exp(np.clip((np.log(x) - theta[0]) * math.exp(theta[1]), -700, 700)))


def _gamma(x: Floats, theta: Floats) -> Floats:
    above = special.gammaincc(math.exp(theta[1]), x * math.exp(theta[1] - theta[0]))
    return np.asarray(np.log(np.maximum(above, 1e-300)))


def _loglogistic(x: Floats, theta: Floats) -> Floats:
    return np.asarray(-np.logaddexp(0.0, (np.log(x) - theta[0]) * math.exp(theta[1])))


def _two_lognormals(x: Floats, theta: Floats) -> Floats:
    share = special.log_expit(np.array([theta[4], -theta[4]]))
    return np.asarray(np.logaddexp(share[0] + _lognormal(x, theta[:2]), share[1] + _lognormal(x, theta[2:4])))


def _part(theta: Floats) -> dict[str, Any]:
    return {"kind": "lognormal", "median": math.exp(theta[0]), "sigma": math.exp(theta[1])}


def _two_table(theta: Floats) -> dict[str, Any]:
    share = float(special.expit(theta[4]))
    return {
        "kind": "mixture",
        "parts": [{**_part(theta[:2]), "weight": share}, {**_part(theta[2:4]), "weight": 1 - share}],
    }


FAMILIES: dict[str, Family] = {
    "lognormal": Family(_lognormal, lambda m, s: (m, math.log(s)), _part),
    "weibull": Family(
        _weibull,
        lambda m, s: (m + 0.45 * s, math.log(1.28 / s)),
        lambda t: {"kind": "weibull", "shape": math.exp(t[1]), "scale": math.exp(t[0])},
    ),
    "gamma": Family(
        _gamma,
        lambda m, s: (m + s * s / 2, -math.log(max(math.expm1(min(s * s, 5.0)), 1e-3))),
        lambda t: {"kind": "gamma", "shape": math.exp(t[1]), "scale": math.exp(t[0] - t[1])},
    ),
    "loglogistic": Family(
        _loglogistic,
        lambda m, s: (m, math.log(1.81 / s)),
        lambda t: {"kind": "loglogistic", "median": math.exp(t[0]), "shape": math.exp(t[1])},
    ),
    "two-lognormals": Family(
        _two_lognormals,
        lambda m, s: (m - 0.5 * s, math.log(0.7 * s), m + 0.8 * s, math.log(0.8 * s), 0.5),
        _two_table,
    ),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """Recorded lengths, equal ones together.

    Attributes
    ----------
    length
        int64[m]: lengths, at least 1.
    censored
        bool[m]: whether a limit cut these answers, so that the true length is at least this.
    count
        float64[m]: how many there are (or their weight).
    cluster
        int64[m]: number of the session or client they belong to, from 0; -1 for calls of their own.
    """

    length: Ints
    censored: NDArray[np.bool_]
    count: Floats
    cluster: Ints

    @classmethod
    def of(
        cls,
        lengths: Ints,
        censored: NDArray[np.bool_] | None = None,
        weights: Floats | None = None,
        clusters: Ints | None = None,
    ) -> Sample:
        """Return the sample of these answers; empty ones count as 1 token."""
        cut = np.zeros(len(lengths), np.int64) if censored is None else censored.astype(np.int64)
        member = np.full(len(lengths), -1) if clusters is None else np.unique(clusters, return_inverse=True)[1]
        keys = np.stack([member, np.maximum(lengths, 1), cut], axis=1)
        rows, inverse = np.unique(keys, axis=0, return_inverse=True)
        count = np.bincount(inverse.ravel(), weights, minlength=len(rows)).astype(np.float64)
        return cls(rows[:, 1], rows[:, 2].astype(np.bool_), count, rows[:, 0])

    @property
    def total(self) -> float:
        """Number (or weight) of all answers."""
        return float(self.count.sum())

    @property
    def censored_share(self) -> float:
        """Share of answers that a limit cut."""
        return float(self.count[self.censored].sum()) / self.total


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """One law fitted to a sample.

    Attributes
    ----------
    family
        Name in `FAMILIES`.
    theta, covariance
        Parameters and their sandwich covariance.
    log_likelihood
        At the maximum.
    distance
        Largest distance between the law and the Kaplan-Meier estimate over the observed range.
    """

    family: str
    theta: Floats
    covariance: Floats
    log_likelihood: float
    distance: float

    @property
    def aic(self) -> float:
        """Akaike's criterion: the smaller, the better."""
        return 2.0 * len(self.theta) - 2.0 * self.log_likelihood

    @property
    def table(self) -> dict[str, Any]:
        """The law as a study's table."""
        return FAMILIES[self.family].table(self.theta)

    def survival(self, x: Floats) -> Floats:
        """Return ``P(L > x)``."""
        return np.exp(FAMILIES[self.family].log_survival(np.asarray(x, np.float64), self.theta))

    def share_above(self, tokens: float) -> tuple[float, float, float]:
        """Return ``P(L > tokens)`` and its 95 % interval, by the delta method on the complementary log-log scale."""
        log_survival = FAMILIES[self.family].log_survival
        at = np.array([float(tokens)])

        def scale(theta: Floats) -> float:
            return float(np.log(np.maximum(-log_survival(at, theta)[0], 1e-300)))

        value, slope = scale(self.theta), _gradient(scale, self.theta)
        error = Z * math.sqrt(max(float(slope @ self.covariance @ slope), 0.0))
        share, low, high = (math.exp(-math.exp(min(value + shift, 6.5))) for shift in (0.0, error, -error))
        return share, low, high


def fit(sample: Sample, family: str) -> Fit:
    """Return the law of a family that makes the sample most likely.

    Raises
    ------
    ValueError
        If there are fewer than 20 answers, or the uncut ones have fewer than 3 different lengths.
    """
    if sample.total < 20:
        raise ValueError(f"needs at least 20 answers, there are {sample.total:g}")
    if len(np.unique(sample.length[~sample.censored])) < 3:
        raise ValueError("needs at least 3 different lengths of answers that no limit cut")
    log_survival = FAMILIES[family].log_survival
    pairs, inverse = np.unique(np.stack([sample.length, sample.censored]), axis=1, return_inverse=True)
    inverse = inverse.ravel()
    count = np.bincount(inverse, sample.count).astype(np.float64)
    before, at, cut = np.maximum(pairs[0] - 1.0, 1e-9), pairs[0].astype(np.float64), pairs[1].astype(np.bool_)

    def each(theta: Floats) -> Floats:
        start = log_survival(before, theta)
        with np.errstate(divide="ignore"):
            inside = start + np.log1p(-np.exp(np.minimum(log_survival(at, theta) - start, -1e-15)))
        return np.asarray(np.maximum(np.where(cut, start, inside), -1e4))

    def cost(theta: Floats) -> float:
        return -float(count @ each(theta)) / sample.total

    logs = np.log(sample.length)
    mean = float(np.average(logs, weights=sample.count))
    spread = max(math.sqrt(float(np.average((logs - mean) ** 2, weights=sample.count))), 0.05)
    start = np.array(FAMILIES[family].start(mean, spread))
    rough = optimize.minimize(cost, start, method="Nelder-Mead", options={"maxiter": 400 * len(start), "xatol": 1e-4})
    theta = optimize.minimize(cost, rough.x, method="BFGS", options={"gtol": 1e-8}).x
    theta = theta if cost(theta) <= rough.fun else rough.x
    return Fit(
        family,
        theta,
        _sandwich(each, theta, count, sample, inverse),
        -cost(theta) * sample.total,
        _distance(log_survival, theta, sample),
    )


def kaplan_meier(sample: Sample) -> tuple[Ints, Floats]:
    """Return ``(lengths, P(L > length))`` at every length of an uncut answer (Kaplan and Meier, JASA 53, 1958)."""
    lengths, inverse = np.unique(sample.length, return_inverse=True)
    ended = np.bincount(inverse, sample.count * ~sample.censored, len(lengths))
    left = np.bincount(inverse, sample.count, len(lengths))
    at_risk = left[::-1].cumsum()[::-1]
    survival = np.cumprod(1.0 - ended / at_risk)
    seen = ended > 0
    return lengths[seen], survival[seen]


def capped(lengths: Ints, weights: Floats | None = None) -> int | None:
    """Return the longest length if it looks like a limit, else None.

    It does if at least `ATOM` answers have it, and 25 times as many as a length just below it has on average.
    """
    longest = int(lengths.max())
    weighing = np.ones(len(lengths)) if weights is None else weights
    atom = float(weighing[lengths == longest].sum())
    near = float(weighing[(lengths < longest) & (lengths >= longest - 100)].sum())
    enough = int((lengths == longest).sum()) >= ATOM or weights is not None
    return longest if enough and longest >= 64 and atom > 25 * near / 100 else None


def _distance(log_survival: Callable[[Floats, Floats], Floats], theta: Floats, sample: Sample) -> float:
    lengths, survival = kaplan_meier(sample)
    modelled = np.exp(log_survival(lengths.astype(np.float64), theta))
    return float(np.abs(modelled - survival).max())


def _gradient(function: Callable[[Floats], float], theta: Floats) -> Floats:
    steps = 1e-5 * np.maximum(np.abs(theta), 1.0)
    moves = np.diag(steps)
    return np.array([(function(theta + move) - function(theta - move)) / (2 * move.sum()) for move in moves])


def _sandwich(
    each: Callable[[Floats], Floats], theta: Floats, count: Floats, sample: Sample, inverse: NDArray[np.intp]
) -> Floats:
    """Return ``H^-1 (sum of squared cluster scores) H^-1``.

    White, Econometrica 50 (1982); summed over clusters, Liang and Zeger, Biometrika 73 (1986).
    """
    k = len(theta)
    steps = 1e-4 * np.maximum(np.abs(theta), 1.0)
    moves = np.diag(steps)
    scores = np.stack([(each(theta + move) - each(theta - move)) / (2 * move.sum()) for move in moves], axis=1)
    hessian = np.empty((k, k))
    for i in range(k):
        for j in range(i, k):
            corners = [
                sign_i * sign_j * float(count @ each(theta + sign_i * moves[i] + sign_j * moves[j]))
                for sign_i in (1, -1)
                for sign_j in (1, -1)
            ]
            hessian[i, j] = hessian[j, i] = sum(corners) / (4 * steps[i] * steps[j])
    own = sample.cluster < 0
    per_row = scores[inverse]
    meat = (per_row[own] * sample.count[own, None]).T @ per_row[own]
    if not own.all():
        member = sample.cluster[~own]
        groups = int(member.max()) + 1
        sums = np.stack([np.bincount(member, sample.count[~own] * per_row[~own, i], groups) for i in range(k)], axis=1)
        meat = meat + sums.T @ sums * (groups / max(groups - 1, 1))
    bread = np.linalg.pinv(hessian)
    return np.asarray(bread @ meat @ bread)


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """All laws fitted to one sample.

    Attributes
    ----------
    sample
        What was fitted.
    fits
        By family, the best first.
    longest_seen
        Longest answer that no limit cut; every share above it is the law's guess.
    """

    sample: Sample
    fits: dict[str, Fit]
    longest_seen: int

    def summary(self, caps: Sequence[int]) -> dict[str, Any]:
        """Return plain values for JSON: shares above each cap by law, with intervals, and how far laws disagree.

        Laws within 10 of the best criterion are as good as it (Burnham and Anderson 2002, section 2.6).
        """
        lengths, survival = kaplan_meier(self.sample)
        first = next(iter(self.fits.values()))
        models: dict[str, dict[str, Any]] = {}
        for name, law in self.fits.items():
            shares = {str(cap): law.share_above(cap) for cap in caps}
            models[name] = {
                "delta_aic": law.aic - first.aic,
                "distance": law.distance,
                "share_above": {cap: {"mean": v, "low": low, "high": high} for cap, (v, low, high) in shares.items()},
                "law": law.table,
            }
        observed = {}
        for cap in caps:
            at = int(np.searchsorted(lengths, cap, side="right")) - 1
            observed[str(cap)] = None if cap > self.longest_seen else float(survival[at]) if at >= 0 else 1.0
        return {
            "answers": self.sample.total,
            "censored_share": self.sample.censored_share,
            "longest_seen": self.longest_seen,
            "share_beyond_longest_seen": float(survival[-1]),
            "guessed": [cap for cap in caps if cap > self.longest_seen],
            "kaplan_meier": observed,
            "best": first.family,
            "as_good": [name for name, model in models.items() if model["delta_aic"] < 10],
            "models": models,
        }


def fit_all(sample: Sample) -> Report:
    """Return every family fitted to a sample, the best first.

    Raises
    ------
    ValueError
        If the sample is too small (see `fit`).
    """
    fits = {name: fit(sample, name) for name in FAMILIES}
    ordered = dict(sorted(fits.items(), key=lambda item: item[1].aic))
    return Report(sample, ordered, int(sample.length[~sample.censored].max()))
