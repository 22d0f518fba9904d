"""From recorded sessions to a law of sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from workloads.readers.weka import Request, Session
from workloads.sessions.model import EDGES, FULL, OPENING, SESSION, TALK, WINDOW, SessionLaw, Table

Floats = NDArray[np.float64]

COMPACTED = 0.7
"""A prompt that falls below this share of the one before was compacted: above it lie mere edits."""


def fit_sessions(sessions: Sequence[Session], source: str) -> SessionLaw:
    """Return the law of these sessions' main requests.

    Raises
    ------
    ValueError
        If fewer than 20 sessions have at least 3 requests.
    """
    long = [session.requests for session in sessions if len(session.requests) >= 3]
    if len(long) < 20:
        raise ValueError(f"needs at least 20 sessions of at least 3 requests, there are {len(long)}")
    every = [session.requests for session in sessions if session.requests]
    pairs = [pair for requests in every for pair in pairwise(requests)]
    compacted = np.array([b.input_tokens < COMPACTED * a.input_tokens for a, b in pairs])
    before = np.array([a.input_tokens for a, _ in pairs], np.float64)
    after = np.array([b.input_tokens for _, b in pairs], np.float64)
    appended = np.array([b.input_tokens - a.input_tokens - a.output_tokens for a, b in pairs], np.float64)
    settled = [_appended(requests[OPENING[-1][1] - 1 :]) for requests in long]
    grown = _levels(settled)
    answers = _levels([[request.output_tokens for request in requests] for requests in long])
    rounds = [rounds_of(requests) for requests in long]
    per_turn = np.array([np.mean(counts) for counts in rounds])
    columns = {
        "first": np.array([requests[0].input_tokens for requests in long], np.float64),
        "requests": np.array([len(requests) for requests in long], np.float64),
        "turn_share": np.array([len(counts) / sum(counts, len(counts)) for counts in rounds]),
        "growth": grown,
        "answer": answers,
    }
    large = np.array([max(request.input_tokens for request in requests) > WINDOW for requests in every])
    of_large = np.repeat(large, [len(requests) - 1 for requests in every])
    bins = np.searchsorted(EDGES, before)
    turns = np.array([len(counts) for counts in rounds])
    talks = (columns["turn_share"] > TALK) & (turns >= 3)
    edits = ~compacted
    falls = edits & (appended <= 0)
    kept = np.array([_kept(a, b) for a, b in pairs])
    breaks = edits & (kept < 1.0)
    first = np.array([requests[0].input_tokens for requests in every], np.float64)
    sizes = np.array([len(requests) for requests in every], np.float64)
    return SessionLaw(
        source=source,
        first=Table.of(first),
        requests=Table.of(sizes),
        turn_share=Table.of(columns["turn_share"][~talks]),
        growth=Table.of(grown),
        answer=Table.of(answers),
        correlation=_correlation([columns[name][~talks] for name in SESSION]),
        talk_share=_digits(float(talks.mean())),
        talk=Table.of(columns["turn_share"][talks] if talks.any() else columns["turn_share"]),
        opening=_opening(long, grown),
        zero_rounds=_zero_rounds(rounds, per_turn),
        rounds_spread=_digits(float(_scatter([[count - 0.5 for count in counts if count] for counts in rounds]).std())),
        growth_scatter=Table.of(_scatter(settled)),
        answer_scatter=Table.of(_scatter([[request.output_tokens for request in requests] for requests in long])),
        shrink_share=_digits(float(falls.sum() / edits.sum())),
        shrink=Table.of(-appended[falls]),
        large_share=_large_share(every, large),
        compaction=_chances(compacted[~of_large], bins[~of_large]),
        large_compaction=_chances(compacted[of_large], bins[of_large]),
        compacted=Table.of((after / before)[compacted]),
        user_think=_waits(pairs, user=True),
        tool_think=_waits(pairs, user=False),
        service=_service(every),
        broken_share=_digits(float(breaks.sum() / edits.sum())),
        kept=Table.of(kept[breaks]),
        head=Table.of(np.array([session.tool_tokens + session.system_tokens for session in sessions], np.float64)),
    )


def is_user(request: Request) -> bool:
    """Return whether a request follows a user's message rather than a tool's result."""
    return "tool_result" not in request.input_types


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _appended(requests: Sequence[Request]) -> list[int]:
    steps = ((a, b.input_tokens - a.input_tokens - a.output_tokens) for a, b in pairwise(requests))
    return [step for _, step in steps if step > 0]


def _levels(groups: Sequence[Sequence[int]]) -> Floats:
    """Return each group's mean logarithm, drawn towards the mean of all the more, the less sure it is.

    The means scatter by the spread between groups and, in short groups, by chance; only the first is kept
    (James-Stein).
    """
    means = np.array([np.log(np.maximum(group, 1)).mean() if len(group) else math.nan for group in groups])
    sizes = np.array([len(group) for group in groups])
    within = float(_scatter(groups).var())
    known = sizes > 0
    centre = float(np.average(means[known], weights=sizes[known]))
    between = max(float(means[sizes >= 10].var()) - within / float(np.mean(sizes[sizes >= 10])), 0.01 * within)
    weight = between / (between + within / np.maximum(sizes, 1))
    return np.where(known, centre + weight * (means - centre), centre)


def _chances(compacted: NDArray[np.bool_], bins: NDArray[np.intp]) -> tuple[float, ...]:
    there = [bins == k for k in range(len(EDGES) + 1)]
    return tuple(_digits(float(compacted[mine].mean())) if mine.any() else 0.0 for mine in there)


def _opening(sessions: Sequence[Sequence[Request]], levels: Floats) -> tuple[float, float, float]:
    """Return the mean of the logs of what the first rounds append, above the session's level."""
    found = []
    for low, high in OPENING:
        above = [
            math.log(step) - level
            for requests, level in zip(sessions, levels, strict=True)
            for step in (
                b.input_tokens - a.input_tokens - a.output_tokens
                for a, b in zip(requests[low - 1 : high - 1], requests[low:high], strict=False)
            )
            if step > 0
        ]
        found.append(_digits(float(np.mean(above))) if above else 0.0)
    return found[0], found[1], found[2]


def _large_share(sessions: Sequence[Sequence[Request]], large: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the share of large windows among sessions that filled the common one, by their first prompt."""
    first = np.array([requests[0].input_tokens for requests in sessions])
    filled = np.array([max(request.input_tokens for request in requests) > FULL for requests in sessions])
    below, above = large[(first <= FULL) & filled], large[first > FULL]
    return tuple(_digits(float(mine.mean())) if len(mine) else 0.0 for mine in (below, above))  # type: ignore[return-value]


def _scatter(groups: Sequence[Sequence[float]]) -> Floats:
    """Return logs around their group's mean, of groups that are long enough to have one."""
    parts = []
    for group in groups:
        if len(group) >= 3:
            logs = np.log(np.maximum(group, 0.5))
            parts.append((logs - logs.mean()) * math.sqrt(len(logs) / (len(logs) - 1)))
    return np.concatenate(parts)


def rounds_of(requests: Sequence[Request]) -> list[int]:
    """Return the tool rounds of each turn, turns without one included."""
    counts = [0]
    for place, request in enumerate(requests):
        if not is_user(request):
            counts[-1] += 1
        elif place:
            counts.append(0)
    return counts


def _zero_rounds(rounds: Sequence[Sequence[int]], per_turn: Floats) -> tuple[float, float]:
    """Return intercept and slope of a logistic regression of turns without tool rounds."""
    x = np.repeat(np.log1p(per_turn), [len(counts) for counts in rounds])
    none = np.concatenate([np.array(counts) == 0 for counts in rounds])

    def cost(theta: Floats) -> float:
        score = theta[0] + theta[1] * x
        return -float(np.where(none, special.log_expit(score), special.log_expit(-score)).mean())

    found = optimize.minimize(cost, np.zeros(2), method="BFGS").x
    return _digits(float(found[0])), _digits(float(found[1]))


def _correlation(columns: Sequence[Floats]) -> tuple[tuple[float, ...], ...]:
    """Return the correlations of normal scores from Spearman's, ``2 sin(pi r / 6)``."""
    ranks = np.asarray(stats.spearmanr(np.array(columns).T).statistic)
    scores = 2.0 * np.sin(np.pi * ranks / 6.0)
    np.fill_diagonal(scores, 1.0)
    return tuple(tuple(_digits(float(value)) for value in row) for row in scores)


def _waits(pairs: Sequence[tuple[Request, Request]], user: bool) -> Table:
    return Table.of(np.array([b.think_s for _, b in pairs if b.think_s is not None and is_user(b) == user], np.float64))


def _service(sessions: Sequence[Sequence[Request]]) -> tuple[float, float, float, float]:
    rows = [
        (math.log(request.api_s), math.log1p(request.output_tokens), math.log(max(request.input_tokens, 1)))
        for requests in sessions
        for request in requests
        if request.api_s
    ]
    y, answer, prompt = np.array(rows).T
    design = np.stack([np.ones(len(y)), answer, prompt], axis=1)
    slopes = np.linalg.lstsq(design, y, rcond=None)[0]
    constant, over_answer, over_prompt = (_digits(float(slope)) for slope in slopes)
    return constant, over_answer, over_prompt, _digits(float((y - design @ slopes).std()))


def _kept(a: Request, b: Request) -> float:
    """Return what share of a prompt's blocks the next prompt repeats from its start."""
    common = 0
    start_a = start_b = 0
    for id_a, end_a, id_b, end_b in zip(a.run_ids, a.run_ends, b.run_ids, b.run_ends, strict=False):
        if id_a != id_b:
            break
        common += min(end_a - start_a, end_b - start_b)
        if end_a - start_a != end_b - start_b:
            break
        start_a, start_b = end_a, end_b
    return min(1.0, common / a.blocks) if a.blocks else 1.0
