"""What a recording says: rates, burstiness, lengths, truncation, reuse; intervals where a conclusion hangs on it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from workloads.readers.recording import Recording
from workloads.trace import Trace

Floats = NDArray[np.float64]
CAPS = (4_000, 5_000, 8_000, 32_000)
LEVELS = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
CONFIDENCE = 0.95
# The two claims that the design documents build their 8,000-token default on (issue A's seeds 000 and 002).
PREMISES = {
    "99 % of answers are at most 5,000 tokens": 5_000,
    "under 1 % of answers are cut by a cap of 8,000 tokens": 8_000,
}
BAR = 0.01


def describe(recording: Recording) -> dict[str, Any]:
    """Return the statistics of a recording as plain values for JSON; what the source does not tell is None.

    ``share_above`` counts answers longer than each cap, ``share_above_interval`` is its 95 % interval
    (`share_interval`). ``premises`` holds the verdict on each claim of `PREMISES`: ``holds`` if the whole interval is
    below 1 %, ``fails`` if it is above, else ``undecided``.
    """
    trace = recording.trace
    weights = recording.weights
    clusters = recording.clusters if recording.clusters is not None else trace.session
    counted = weights is None or clusters is not None
    summary: dict[str, Any] = {
        "file": str(recording.path),
        "format": recording.format,
        "requests": recording.requests,
        **(timing(trace) if recording.has_times else dict.fromkeys(timing(Trace.empty()))),
        "prompt_tokens": lengths(trace.prompt_tokens, weights),
        "output_tokens": lengths(trace.output_tokens, weights),
    }
    output = summary["output_tokens"]
    if output is not None:
        shares = {cap: share_interval(trace.output_tokens > cap, weights, clusters) for cap in CAPS}
        output["share_above"] = {str(cap): share for cap, (share, _, _) in shares.items()}
        output["share_above_interval"] = {
            str(cap): [low, high] if counted else None for cap, (_, low, high) in shares.items()
        }
        summary["premises"] = {
            claim: verdict(shares[cap][1], shares[cap][2]) if counted else "undecided"
            for claim, cap in PREMISES.items()
        }
    summary |= _recorded(trace)
    for column in ("kind", "script"):
        labels = getattr(trace, column)
        if labels is not None:
            summary[f"by_{column}"] = _groups(trace, labels.codes, labels.names, weights)
    summary["notes"] = list(recording.notes)
    return summary


def timing(trace: Trace) -> dict[str, float | None]:
    """Return span, rate and burstiness of the arrivals.

    ``interarrival_cv`` is the coefficient of variation of the gaps (1 for Poisson); ``dispersion_60s`` the variance
    over the mean of the calls in whole minutes (1 for Poisson); ``peak_to_mean_60s`` the busiest whole minute over
    the mean one.
    """
    gaps = np.diff(trace.arrival_s)
    span = trace.span_s
    mean = float(gaps.mean()) if len(gaps) else 0.0
    minutes = int(span // 60)
    counts = np.bincount(((trace.arrival_s - trace.arrival_s[:1]) // 60).astype(np.int64), minlength=1)[:minutes]
    return {
        "span_s": span,
        "rate_per_s": len(trace) / span if span else None,
        "interarrival_cv": float(gaps.std()) / mean if mean else None,
        "dispersion_60s": float(counts.var(ddof=1) / counts.mean()) if minutes >= 2 and counts.sum() else None,
        "peak_to_mean_60s": float(counts.max() / counts.mean()) if minutes >= 2 and counts.sum() else None,
    }


def lengths(tokens: NDArray[np.int64], weights: Floats | None = None) -> dict[str, Any] | None:
    """Return mean, percentiles and maximum of a column, or None if it was not recorded (all 0, or empty).

    Percentiles interpolate between neighbours (numpy's default); of weighted rows each is the least value that at
    least this share of the calls does not exceed.
    """
    if not len(tokens) or not tokens.any():
        return None
    found: dict[str, Any] = {"mean": float(np.average(tokens, weights=weights))}
    levels = list(LEVELS.values())
    if weights is None:
        percentiles = np.quantile(tokens, levels)
    else:
        percentiles = np.quantile(tokens, levels, weights=weights, method="inverted_cdf")
    for name, value in zip(LEVELS, percentiles, strict=True):
        found[name] = int(value) if value == int(value) else float(value)
    return found | {"max": int(tokens.max())}


def share_interval(
    hits: NDArray[np.bool_], weights: Floats | None = None, clusters: NDArray[np.int64] | None = None
) -> tuple[float, float, float]:
    """Return a share and its 95 % interval.

    Calls of one cluster (session, client) are alike, so they count for less than independent ones: the exact binomial
    interval of Clopper and Pearson, with the effective number of calls that the spread between clusters implies
    (Korn and Graubard, Survey Methodology 24, 1998). Without clusters or weights it is the exact binomial interval.
    """
    n = len(hits)
    weighing = np.ones(n) if weights is None else weights
    share = float(np.average(hits, weights=weighing))
    effective = float(weighing.sum() ** 2 / (weighing**2).sum())
    freedom = math.inf
    if clusters is not None:
        _, member = np.unique(clusters, return_inverse=True)
        groups = int(member.max()) + 1
        sizes = np.bincount(member, weighing)
        if groups < 2:
            return share, 0.0, 1.0
        freedom = groups - 1
        if 0 < share < 1:
            residual = np.bincount(member, weighing * (hits - share))
            variance = groups / freedom * float((residual**2).sum()) / float(weighing.sum()) ** 2
            effective = min(effective, share * (1 - share) / variance) if variance else effective
            effective *= float((stats.norm.ppf(0.975) / stats.t.ppf(0.975, freedom)) ** 2)
        else:
            effective = float(weighing.sum() ** 2 / (sizes**2).sum())  # nothing tells them apart: a cluster counts once
    found = share * effective
    tail = (1 - CONFIDENCE) / 2
    low = float(stats.beta.ppf(tail, found, effective - found + 1)) if share > 0 else 0.0
    high = float(stats.beta.ppf(1 - tail, found + 1, effective - found)) if share < 1 else 1.0
    return share, low, high


def verdict(low: float, high: float) -> str:
    """Return whether a share is below 1 %: ``holds``, ``fails`` or ``undecided``."""
    return "holds" if high < BAR else "fails" if low > BAR else "undecided"


def _recorded(trace: Trace) -> dict[str, Any]:
    """Return what optional columns tell."""
    prompt = float(trace.prompt_tokens.sum())
    output = float(trace.output_tokens.sum())
    found: dict[str, Any] = {"prefix_reuse": trace.prefix_reuse()}
    found["truncated_share"] = None if trace.truncated is None else float(trace.truncated.mean())
    found["cached_share"] = None if trace.cached_tokens is None or not prompt else trace.cached_tokens.sum() / prompt
    found["reasoning_share"] = (
        None if trace.reasoning_tokens is None or not output else trace.reasoning_tokens.sum() / output
    )
    if trace.session is not None:
        _, sizes = np.unique(trace.session, return_counts=True)
        found["sessions"] = {"count": len(sizes), "requests": lengths(sizes)}
    for name in ("think_s", "service_s"):
        column = getattr(trace, name)
        known = None if column is None else column[~np.isnan(column)]
        if known is not None and len(known):
            found[name] = {key: float(np.quantile(known, level)) for key, level in LEVELS.items()}
    return found


def _groups(
    trace: Trace, codes: NDArray[np.int32], names: tuple[str, ...], weights: Floats | None
) -> dict[str, dict[str, Any]]:
    total = float(len(trace) if weights is None else weights.sum())
    found = {}
    for code, name in enumerate(names):
        mine = codes == code
        if mine.any():
            own = None if weights is None else weights[mine]
            found[name] = {
                "share": float(mine.sum() if own is None else own.sum()) / total,
                "prompt_tokens": lengths(trace.prompt_tokens[mine], own),
                "output_tokens": lengths(trace.output_tokens[mine], own),
            }
    return found
