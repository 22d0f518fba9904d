"""The tables of a study: which keys they have, what may stand there, and what the values become.

The docstrings of the fields are the reference: ``docs/study.md`` and the JSON Schema are made from them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    StrictBool,
    StrictStr,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from policies.context import CONTEXT_POLICIES
from policies.output import POLICIES, ToolKind
from policies.profiles import PROFILES
from policies.retry import Backoff, Retry
from sim import metrics
from sim.clients.tools import Tool
from sim.quantities import DURATIONS, Duration, Number, Positive, Share, Size, parse
from sim.study.choices import (
    Choice,
    Nested,
    Table,
    again,
    built,
    choice_of,
    complaint,
    complaints,
    is_one_of,
    listing,
    one_of,
    refusals,
)
from sim.study.server import ServerTable
from sim.thresholds import Threshold
from workloads import durations
from workloads.agents import AGENTS, Agents
from workloads.arrivals import LOADS
from workloads.errors import BadInput, did_you_mean
from workloads.lengths import LENGTHS
from workloads.scripts import ScriptMix
from workloads.source import Mixture, Stream

NESTED: Nested = {durations.Duration: choice_of("law of durations", "kind", durations.DURATIONS)}
"""The tables of what arrival processes are made of."""
KNOWN = {name: profile.policy for name, profile in PROFILES.items() if name not in POLICIES}
"""What is known to run in the wild, by the names of ``policies.profiles``."""

if TYPE_CHECKING:
    OutputPolicyTable = Choice
    ContextPolicyTable = Choice
    AgentsTable = Choice
    ArrivalsTable = Choice
    DurationTable = Choice
    LengthTable = Choice
else:
    OutputPolicyTable = choice_of("output policy", "name", {**POLICIES, **KNOWN})
    ContextPolicyTable = choice_of("context policy", "name", CONTEXT_POLICIES)
    AgentsTable = choice_of("kind of agents", "kind", AGENTS)
    DurationTable = NESTED[durations.Duration]
    ArrivalsTable = choice_of("arrival process", "kind", LOADS, nested=NESTED)
    LengthTable = choice_of("length law", "kind", LENGTHS)


RETRY = Retry()

RANK_BY = ("call.e2e_s.mean", "call.e2e_s.p99", "truncated.final_share", "tokens.wasted_share")
"""What the arms of a case are ranked by unless the study says it."""


def _is_ranked(name: str) -> str:
    directed = [metric.name for metric in metrics.METRICS.values() if metric.better]
    if name in metrics.METRICS and name not in directed:
        raise ValueError(f"{name} has no better direction, so nothing is ranked by it")
    return is_one_of("metric", directed, name)


class Replications(Table):
    """How many replications: until a metric is precise enough."""

    min: Annotated[Size, Field(ge=2)] = 10
    """Replications that are run in any case."""
    max: Annotated[Size, Field(ge=2)] = 100
    """Replications after which the run ends, precise or not."""
    precision: Annotated[Number, Field(gt=0, lt=1)] = 0.05
    """Half-width of the 95 % interval over the mean that every arm must reach, and keep over 5 replications."""
    metric: Annotated[StrictStr, one_of("metric", metrics.METRICS)] = "call.e2e_s.p99"
    """The metric whose interval counts."""

    def _check(self) -> None:
        if self.max < self.min:
            raise complaints(complaint(f"must be at least min ({self.min}), got {self.max}", "max"))


def _auto_or_seconds(value: object) -> object:
    return value if value == "auto" else float(parse(value, DURATIONS))


NumberOrRule = Annotated[
    Annotated[Positive, Tag("<number>")] | Annotated[Replications, Tag("<table>")],
    Discriminator(lambda value: "<table>" if isinstance(value, dict | Replications) else "<number>"),
]


Horizon = Annotated[Duration, Field(gt=0)]
Warmup = Annotated[Literal["auto"] | Annotated[float, Field(ge=0)], BeforeValidator(_auto_or_seconds)]


class RunTable(Table):
    """How the study is simulated and judged."""

    kind: Literal["steady", "terminating"] | None = None
    """``steady`` asks for the long run and drops a warm-up; ``terminating`` asks for just this span, from an
    empty server. When left out: ``steady`` for drawn streams, ``terminating`` for a trace."""
    horizon: Horizon | None = None
    """Calls that arrive until then are measured; arrivals go on until the last of them has ended.
    When left out: 30 minutes, or the whole trace."""
    warmup: Warmup | None = None
    """Span at the start that is not measured, or ``auto``: MSER-5 on the baseline, applied to all arms.
    When left out: ``auto`` for a steady study, else 0."""
    replications: NumberOrRule | None = None
    """How often, with new random numbers that are the same for every arm.
    When left out: 10, or the trace once as recorded; a trace with more is resampled."""
    same_within: Annotated[Number, Field(ge=0, lt=1)] = 0.01
    """Share of the baseline's mean within which a difference counts as ``same``."""
    rank_by: Annotated[tuple[Annotated[StrictStr, AfterValidator(_is_ranked)], ...], Field(min_length=1)] | None = None
    """Metrics by which the arms are ranked in each of the ``[cases]``, or under each assumption of ``[sensitivity]``.
    When left out: mean and 99th percentile of the calls' time, share left truncated, share of tokens wasted."""


class CaseRunTable(Table):
    """The span of a case, where it is another than the study's: rare or slow calls need a longer one."""

    horizon: Horizon | None = None
    """As ``run.horizon``."""
    warmup: Warmup | None = None
    """As ``run.warmup``."""


class RetryTable(Table):
    """When a request that failed is sent again. The defaults are those of ``policies.retry``.

    The n-th wait after a refusal is ``first_wait`` doubled n - 1 times, at most ``longest_wait``, give or take the
    jitter; after a broken stream it is n times ``broken_wait``.
    """

    refused: Annotated[Size, Field(ge=0)] = RETRY.refused.retries
    """How often after a 429 or 5xx."""
    first_wait: Annotated[Duration, Field(ge=0)] = RETRY.refused.first_s
    """The first wait after a 429 or 5xx; it doubles."""
    longest_wait: Annotated[Duration, Field(ge=0)] = RETRY.refused.longest_s
    """The longest wait after a 429 or 5xx, but for the jitter."""
    jitter: Share = RETRY.refused.jitter
    """Largest relative deviation of these waits, drawn."""
    broken: Annotated[Size, Field(ge=0)] = RETRY.broken.retries
    """How often after a stream that broke off or was empty."""
    broken_wait: Annotated[Duration, Field(ge=0)] = RETRY.broken.first_s
    """The first wait after one; each later one is so much longer."""
    timeout: Annotated[Duration, Field(gt=0)] | None = None
    """How long a request may take to its last token; then it is broken off, and sent again as after a 5xx. When left
    out: as long as it takes."""

    def build(self) -> Retry:
        """Return the retry machine's constants."""
        return Retry(
            refused=Backoff(self.refused, self.first_wait, RETRY.refused.factor, 0.0, self.longest_wait, self.jitter),
            broken=Backoff(self.broken, self.broken_wait, step_s=self.broken_wait),
        )


class PolicyTable(Table):
    """What the client does."""

    output: OutputPolicyTable
    """Decides max_tokens, and what follows a truncated response (``slotsim list policies``)."""
    context: ContextPolicyTable | None = None
    """Decides what part of a session's history is sent. Calls that are drawn or replayed one by one have no history.
    When left out: all of it."""
    told: StrictBool = True
    """Whether an agent's instructions say that old results are cleared for it. One that was not told stops early, at
    its ``patience`` share of the budget, or of the window where the context policy has no budget."""
    retry: RetryTable | None = None
    """When a request is sent again after 429, 5xx, a broken or an empty stream. When left out: never; ``{}`` has the
    defaults."""


class ToolTable(Table):
    """The tool call that every answer of a stream is. The true length is the work if it is written in one call.

    A truncated call is rejected (see ``docs/policies.md``) and the next call follows at once, until all is written:
    calls so linked are a task, see the metrics ``task.*``.
    """

    kind: Annotated[StrictStr, one_of("kind of tool", [kind.value for kind in ToolKind])] = ToolKind.EDIT.value
    """What the tool does to the world."""
    splits: Share
    """Probability that the model splits its work after a rejected call; else it sends the same call again."""
    part: LengthTable
    """Tokens of each part."""
    rejections: Positive = 10
    """Rejected calls with which the task is given up."""
    result_tokens: Annotated[Size, Field(ge=0)] = 50
    """Tokens of what the tool answers to a call that ran."""

    def build(self) -> Tool:
        """Return the tool."""
        return Tool(ToolKind(self.kind), self.splits, self.part.build(), self.rejections, self.result_tokens)


def _is_mix(shares: dict[str, float]) -> dict[str, float]:
    try:
        ScriptMix(shares)
    except BadInput as error:
        raise complaints(*refusals(error, shares)) from None
    return shares


class StreamTable(Table):
    """One kind of calls, drawn."""

    name: Annotated[StrictStr, Field(min_length=1)]
    """Unique in the study; it also names the stream's random numbers."""
    arrivals: ArrivalsTable
    """When calls arrive."""
    prompt: LengthTable
    """Tokens of the prompt."""
    output: LengthTable
    """Tokens the model would write if nothing stopped it."""
    scripts: Annotated[dict[str, Number], AfterValidator(_is_mix)] = Field(default={"latin": 1.0})
    """Shares of the calls by script."""
    kind: StrictStr = ""
    """Kind of call; the stream's name when empty."""
    correlation: Annotated[Number, Field(ge=-1, le=1)] = 0.0
    """Correlation of the normal scores of prompt and output (a Gaussian copula)."""
    tokenizer: StrictStr = ""
    """Lengths are English and grow with the script as this tokenizer has it; when empty they are the same in all."""
    patience: DurationTable | None = None
    """Law of the seconds after which a client gives its call up if no token of the answer is there. When left out:
    never."""
    timeout: DurationTable | None = None
    """Law of the seconds after which a client gives its call up if the answer has not ended. When left out: never."""
    tool: ToolTable | None = None
    """The tool call that every answer is. When left out: answers are text, and each call stands by itself."""

    def _check(self) -> None:
        try:
            self.build()
        except BadInput as error:
            raise complaints(*refusals(error, type(self).model_fields)) from None

    def build(self) -> Stream:
        """Return the stream."""
        return Stream(**{name: built(getattr(self, name)) for name in type(self).model_fields if name != "tool"})


def _is_list(streams: object) -> object:
    if isinstance(streams, dict):
        raise ValueError("there are no streams to change here: the base has none, or replays a trace")
    return streams


def _is_format(name: str) -> str:
    if name == "auto":
        return name
    from workloads.readers import NAMES  # brings pyarrow: only a recorded workload has to pay for it

    return is_one_of("format", NAMES, name)


class WorkloadTable(Table):
    """What users do: streams of calls that are drawn, a recorded trace, or agents. Each replaces the others."""

    streams: Annotated[tuple[StreamTable, ...], BeforeValidator(_is_list)] = ()
    """Calls that are drawn."""
    path: StrictStr | None = None
    """A recorded trace; in a file relative to it, on the command line to the working directory."""
    format: Annotated[StrictStr, AfterValidator(_is_format)] = "auto"
    """How the trace is written; ``auto`` recognises it."""
    time_scale: Annotated[Number, Field(gt=0)] = 1.0
    """Factor on the trace's arrival times: 0.5 doubles the rate."""
    agents: Annotated[tuple[AgentsTable, ...], BeforeValidator(_is_list)] = ()
    """Whole sessions, closed loop: the next request waits for the answer, the tool and the user."""
    together: StrictBool = False
    """Whether the agents' sessions share one simulated server, or each has an idle one to itself."""

    def _check(self) -> None:
        names = [stream.name for stream in self.streams]
        if self.agents:
            self._check_agents()
            return
        if not self.path and not names:
            way = "set it with --set workload.path=FILE, or give [[workload.streams]] or [[workload.agents]]"
            raise complaints(complaint(f"missing: the trace to replay; {way}", "path", kind="missing"))
        if self.path and not Path(self.path).is_file():
            raise complaints(complaint(f"no such file: {self.path}", "path"))
        if not self.path:
            twice = [i for i, name in enumerate(names) if name in names[:i]]
            if twice:
                raise complaints(
                    *(complaint(f"{names[i]!r} is taken by another stream", "streams", i, "name") for i in twice)
                )
            tools = {stream.kind or stream.name: stream.tool for stream in reversed(self.streams)}
            other = [i for i, stream in enumerate(self.streams) if stream.tool != tools[stream.kind or stream.name]]
            if other:
                text = "streams of one kind need the same tool: give this one another kind"
                raise complaints(*(complaint(text, "streams", i, "kind") for i in other))

    def _check_agents(self) -> None:
        missing = [
            (i, path)
            for i, table in enumerate(self.agents)
            if (path := table.constants.get("path")) is not None and not Path(path).is_file()
        ]
        if missing:
            raise complaints(*(complaint(f"no such file: {path}", "agents", i, "path") for i, path in missing))

    def sessions(self) -> list[Agents]:
        """Return where the agents' sessions come from."""
        return [table.build() for table in self.agents]

    def tools(self) -> dict[str, Tool]:
        """Return what calls end in, by kind of call."""
        return {stream.kind or stream.name: stream.tool.build() for stream in self.streams if stream.tool}

    def mixture(self) -> Mixture:
        """Return the source of the calls that are drawn."""
        return Mixture([stream.build() for stream in self.streams])


class Arm(Table):
    """One alternative: a server, a client and its users."""

    server: ServerTable
    """The model server."""
    policy: PolicyTable
    """What the client does."""
    workload: WorkloadTable
    """What users do."""

    def _check(self) -> None:
        beyond = built(self.policy.output).beyond(self.server.settle().window)
        if beyond:
            key, _, text = beyond.partition(": ")
            raise complaints(complaint(text, "policy", "output", key))

    @property
    def policy_output(self) -> Choice:
        """The table of the output policy; its ``build()`` is the policy."""
        return self.policy.output

    @property
    def policy_context(self) -> Choice | None:
        """The table of the context policy, None for whoever sends the whole history."""
        return self.policy.context


def _known(what: str, allowed: Collection[str]) -> WrapValidator:
    """Check that the keys of a table are known, besides its values."""

    def check(table: object, handler: ValidatorFunctionWrapHandler) -> object:
        if not isinstance(table, dict):
            raise ValueError(f"must be a table of {what}s, got {table!r}")
        faults = [
            complaint(f"unknown {what}, {listing(what, allowed)}{did_you_mean(name, allowed)}", name)
            for name in table
            if name not in allowed
        ]
        try:
            values = handler({name: value for name, value in table.items() if name in allowed})
        except ValidationError as error:
            raise complaints(*faults, *map(again, error.errors(include_url=False))) from None
        if faults:
            raise complaints(*faults)
        return values

    return WrapValidator(check)


def _threshold(text: object) -> Threshold:
    if not isinstance(text, str):
        raise ValueError(f'must be a text such as "<= 60", got {text!r}')
    return Threshold.parse(text)


def _is_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise ValueError(f"must be letters, digits, dots, dashes and underscores, as it names files; got {text!r}")
    return text


Name = Annotated[StrictStr, AfterValidator(_is_name)]
Bound = Annotated[Threshold, PlainValidator(_threshold), WithJsonSchema({"type": "string"})]


class Head(Table):
    """The keys of a study that hold for all of its arms."""

    format: Annotated[Literal[1], Field(alias="schema")] = 1
    """Version of the study file."""
    name: Name = ""
    """Name of the study and of its result folder; the file's name when left out."""
    seed: Annotated[Size, Field(ge=0)] = 0
    """Root of all random numbers."""
    run: RunTable = RunTable()
    """How the study is simulated and judged."""
    server: Any = None
    """The model server; see ``[server]``."""
    policy: Any = None
    """What the client does; see ``[policy.output]``."""
    workload: Any = None
    """What users do; see ``[workload]``."""
    arms: dict[Name, Any] = Field(default={})
    """The alternatives, in order; the first is the baseline.
    Each is the base with its own ``server``, ``policy`` and ``workload`` over it."""
    cases: dict[Name, Any] = Field(default={})
    """Circumstances in which all arms are compared, each with a ranking of its own: tables like an arm's, laid over
    every arm, and ``run`` for another span."""
    sensitivity: dict[Name, Any] = Field(default={})
    """Other assumptions under which the comparison is repeated to see what survives: tables like a case's. Not beside
    cases."""
    slo: Annotated[dict[str, Annotated[Duration, Field(gt=0)]], _known("duration", metrics.DURATIONS)] = Field(
        default={}
    )
    """Bounds that a call must meet to count in ``slo.attainment`` and ``slo.goodput_per_s``: on durations, of each of
    its requests or of the call."""
    thresholds: Annotated[dict[str, Bound], _known("metric", metrics.METRICS)] = Field(default={})
    """Bounds on metrics that every arm must meet, on the interval's end.
    Exit code 3 if one fails, 4 if one is undecided."""

    def _check(self) -> None:
        if self.run.rank_by is not None and not self.cases and not self.sensitivity:
            text = "only the arms of [cases] and [sensitivity] are ranked, and there are none"
            raise complaints(complaint(text, "run", "rank_by"))
