"""What a run measures: every metric's name, unit, better direction and definition.

The one list behind ``summary.json``, the tables on screen, ``slotsim list metrics``, the checks of ``[slo]`` and
``[thresholds]``, and ``docs/output.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a replication.

    Attributes
    ----------
    name
        As in ``summary.json``.
    unit
        Unit of the value; ``1`` for shares, ratios and counts.
    better
        Which direction is better; None where more is neither better nor worse.
    definition
        How it is computed, in one sentence.
    """

    name: str
    unit: str
    better: Better | None
    definition: str


STATISTICS: Mapping[str, str] = {
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p95": "95th percentile",
    "p99": "99th percentile",
}
"""What is reported of a distribution; percentiles are numpy's ``linear`` ones."""

DURATIONS: Mapping[str, str] = {
    "request.ttft_s": "time to first token: from a request's arrival at the server to its first output token",
    "request.tpot_s": "time per output token after the first: (last - first) / (tokens - 1); responses of one left out",
    "request.itl_s": "inter-token latency: gaps between consecutive output tokens, over all tokens of all requests",
    "request.e2e_s": "from a request's arrival at the server to its last token",
    "request.queue_s": "from a request's arrival at the server to the start of the step that first computes it",
    "call.e2e_s": "from a call's first request to the end of its last: escalation and recovery included",
}
"""The measured durations; an SLO may bound each of them."""

TASK_DURATIONS: Mapping[str, str] = {
    "task.time_s": "from a task's first call to the end of its last, done or not; null without tasks",
}
"""The durations of whole tasks (``workload.streams.tool``)."""

_OTHERS = (
    Metric("running.mean", "requests", None, "requests admitted and not finished; time-weighted over the window"),
    Metric("running.max", "requests", None, "most requests running at once in the window"),
    Metric("waiting.mean", "requests", "lower", "requests arrived and not admitted; time-weighted over the window"),
    Metric(
        "kv.reserved_share.mean",
        "1",
        "lower",
        "tokens that the admission rule charges (rules that grow: blocks held x block size) / pool; time-weighted",
    ),
    Metric("kv.used_share.mean", "1", None, "tokens whose keys and values are stored / pool; time-weighted"),
    Metric("kv.overreservation", "1", "lower", "integral of reserved tokens over time / integral of used tokens"),
    Metric("call.attempts.mean", "requests", "lower", "requests that a call made, the first included"),
    Metric(
        "call.reserved_token_s.mean",
        "token s",
        "lower",
        "integral over time of the tokens reserved for a call's requests",
    ),
    Metric("truncated.first_share", "1", "lower", "calls whose first response was cut by max_tokens / calls"),
    Metric("truncated.final_share", "1", "lower", "calls whose final response was cut by max_tokens / calls"),
    Metric("tokens.wasted_share", "1", "lower", "generated tokens that were discarded / generated tokens"),
    Metric("tokens.output_per_s", "tokens/s", "higher", "tokens delivered in final answers / length of the window"),
    Metric(
        "prefix.hit_rate",
        "1",
        "higher",
        "prompt tokens found in the cache / prompt tokens; null without a cache",
    ),
    Metric("abandoned_share", "1", "lower", "calls that their client gave up (patience, timeout) / calls"),
    Metric("refused_share", "1", "lower", "requests refused (queue full, or never fitting) / requests"),
    Metric("preemptions_per_request", "1", "lower", "times a running request was evicted for recomputation / requests"),
    Metric("slo.attainment", "1", "higher", "calls that meet every bound of [slo] / calls; null without [slo]"),
    Metric(
        "slo.goodput_per_s",
        "calls/s",
        "higher",
        "calls that meet every bound of [slo] / length of the window; null without",
    ),
    Metric("task.failed_share", "1", "lower", "tasks given up after too many rejected calls, or failed / tasks"),
    Metric("task.calls.mean", "calls", "lower", "calls that a task took, the rejected included"),
    Metric("task.requests.mean", "requests", "lower", "requests that a task took, those sent again included"),
    Metric("task.rejections.mean", "calls", "lower", "calls of a task that were rejected because they were cut"),
    Metric("task.generated_tokens.mean", "tokens", "lower", "tokens generated for a task"),
    Metric("task.wasted_share", "1", "lower", "tokens generated for tasks that wrote nothing / all generated for them"),
    Metric(
        "task.reserved_token_s.mean",
        "token s",
        "lower",
        "integral over time of the tokens reserved for a task's requests",
    ),
    Metric("makespan_s", "s", "lower", "from the first measured arrival to the end of the last measured call"),
)

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *(
            Metric(f"{name}.{statistic}", "s", "lower", f"{word} of: {definition}")
            for name, definition in {**DURATIONS, **TASK_DURATIONS}.items()
            for statistic, word in STATISTICS.items()
        ),
        *_OTHERS,
    )
}
"""Every metric by its name, in the order of reports."""


def better(name: str) -> Better | None:
    """Return the better direction of a metric; None where there is none."""
    return METRICS[name].better


def table() -> str:
    """Return the metrics as a Markdown table, the distributions' statistics in one row each."""
    rows = ["| metric | unit | better | definition |", "|---|---|---|---|"]
    statistics, times = ",".join(STATISTICS), {**DURATIONS, **TASK_DURATIONS}
    rows += [f"| `{name}.{{{statistics}}}` | s | lower | {text} |" for name, text in times.items()]
    rows += [f"| `{m.name}` | {m.unit} | {m.better or 'neither'} | {m.definition} |" for m in _OTHERS]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
