"""Tasks: calls that follow one another until a piece of work is written, through refusals, retries and rejected writes.

A call whose answer is a tool call may be truncated; then nothing is written, the model is told to split its work, and
the next call follows at once. What that costs shows in the whole task, not in a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from math import ceil, inf

import numpy as np
import simpy

from policies.output import Call, ErrorKind, FinishReason, Kind, OutputPolicy, Response, Send, ToolUse
from policies.output.sticky import Since
from policies.prompts import SPLIT_WORK
from policies.retry import Retry, Retrying
from sim.clients.client import COMPLETE, REJECTED, Clients, OpenCall
from sim.clients.faults import Faults
from sim.clients.tools import Tool
from sim.clients.users import Limits, Row, User
from sim.clock import Clock, Moment
from sim.records import REFUSALS, TASK, TASK_OUTCOMES, Table
from sim.replica.prefix_cache import Prompt
from sim.replica.replica import Replica
from sim.replica.work import Work
from sim.rows import BLOCK
from workloads import substreams

GUIDANCE_TOKENS = ceil(len(SPLIT_WORK) / 4)
"""Tokens of the advice to split the work, at four characters each."""

_DONE, _GIVEN_UP, _FAILED = range(len(TASK_OUTCOMES))
_REFUSAL = {ErrorKind.RATE_LIMITED: "rate limited", ErrorKind.SERVER: "server error"}
_NO_RESULT = "tool call without a result"
assert {*_REFUSAL.values(), _NO_RESULT} <= set(REFUSALS)
_ERROR = {kind: Response(FinishReason.ERROR, error=kind) for kind in ErrorKind}
_NO_TOOLS: Mapping[str, Tool] = {}


class TaskClients(Clients):
    """Clients whose calls may end in tools and meet faults: opens a task for every row of the workload.

    Parameters
    ----------
    clock, replica, policy, model, window
        See :class:`sim.clients.client.Clients`.
    tools
        By kind of call; calls of other kinds are single.
    faults
        What goes wrong by chance; None: nothing.
    retry
        When requests are sent again; None: never.
    timeout_s
        Seconds after which a request whose answer has not ended is broken off, as if the server could not be reached.
    seed, replication
        Where the random numbers of faults and tasks are found.

    Attributes
    ----------
    tasks
        The records of the measured tasks, see :mod:`sim.records`.
    task_numbers
        Of the tasks to come, in the order in which they begin.
    """

    def __init__(
        self,
        clock: Clock,
        replica: Replica,
        policy: OutputPolicy,
        model: str,
        window: int,
        *,
        tools: Mapping[str, Tool] = _NO_TOOLS,
        faults: Faults | None = None,
        retry: Retry | None = None,
        timeout_s: float = inf,
        seed: int = 0,
        replication: int = 0,
    ) -> None:
        super().__init__(clock, replica, policy, model, window)
        self.tools = tools
        self.faults = faults
        self.retry = retry
        self.timeout_s = timeout_s
        self.seed = seed
        self.replication = replication
        self.tasks = Table(TASK)
        self.task_numbers = count()

    def _open(self, number: int, arrival_s: float, row: Row, segments: Prompt | None) -> None:
        Task(self, number, arrival_s, *row, segments).begin()

    def serve(self, user: User, row: Row) -> None:
        """Begin the task of a user of a closed loop, who thinks again when it has ended."""
        UserTask(self, user, row).begin()

    def draws(self, *what: str | int, row: int) -> Iterator[float]:
        """Yield numbers from [0, 1): the same for the same row of the workload, whatever the policy."""
        generator = substreams.generator(self.seed, *what, self.replication, block=row)
        while True:
            yield generator.random()


class Task:
    """One piece of work while it lasts.

    Parameters
    ----------
    clients
        Whose task it is.
    row
        The row of the workload that it is made of, which also names its random numbers.
    arrival_s
        When its first call begins.
    prompt, work
        Tokens of the first call's prompt; tokens to write.
    kind, script
        Codes of its calls.
    limits
        What the client of each of its calls gives up after.
    segments
        What the first prompt is made of, where the server keeps beginnings.
    """

    __slots__ = (
        "arrival_s",
        "calls",
        "clients",
        "generated",
        "kind",
        "limits",
        "measured",
        "next",
        "number",
        "parts",
        "prompt",
        "rejections",
        "requests",
        "reserved",
        "row",
        "script",
        "segments",
        "since",
        "splits",
        "tool",
        "work",
        "written",
    )

    def __init__(
        self,
        clients: TaskClients,
        row: int,
        arrival_s: float,
        prompt: int,
        work: int,
        kind: int,
        script: int,
        limits: Limits | None,
        segments: Prompt | None,
    ) -> None:
        self.clients = clients
        self.row = row
        self.number = next(clients.task_numbers)
        self.arrival_s = arrival_s
        self.prompt = prompt
        self.work = self.next = work  # the next call writes so many tokens if nothing stops it
        self.kind = kind
        self.script = script
        self.limits = limits
        self.segments = segments
        self.tool = clients.tools.get(clients.kinds[kind])
        self.since = Since(clients.policy)
        self.calls = self.requests = self.rejections = 0
        self.written = self.generated = 0
        self.reserved = 0.0
        self.splits = self.draws("splits")
        self.parts = self.draws("parts")
        self.measured = clients.measuring
        clients.open += self.measured

    @property
    def name(self) -> str:
        """What tells it from all others, whatever the policy."""
        return str(self.row)

    def draws(self, what: str) -> Iterator[float]:
        """Yield numbers from [0, 1) that depend on the row alone."""
        return self.clients.draws(what, row=self.row)

    def begin(self) -> None:
        """Make the next call."""
        call = TaskCall(self)
        call.begin()
        if self.limits is not None:
            call.limit(*self.limits)

    def answered(self, call: TaskCall, outcome: int, delivered: int) -> None:
        """Take the outcome of a call in and go on, or end."""
        self.calls += 1
        self.requests += call.attempts
        self.generated += delivered + call.discarded
        self.reserved += call.reserved
        tool = self.tool
        if tool is None:
            self._end(_DONE)
        elif outcome == COMPLETE:
            self.written += delivered
            left = self.work - self.written
            if left:
                self._append(("wrote", self.number, self.calls), delivered)
                self._append(("result", self.number, self.calls), tool.result_tokens)
                self.next = min(left, self._part(tool))
                self.begin()
            else:
                self._end(_DONE)
        elif outcome != REJECTED:
            self._end(_FAILED)
        else:
            self.rejections += 1
            if self.rejections >= tool.rejections:
                self._end(_GIVEN_UP)
                return
            self._append(("guidance", self.number, self.calls), GUIDANCE_TOKENS)
            if next(self.splits) < tool.splits:
                self.next = min(self.work - self.written, self._part(tool))
            self.begin()

    def _part(self, tool: Tool) -> int:
        return max(1, int(tool.part.quantile(np.array([next(self.parts)]))[0]))

    def _append(self, what: tuple[str, int, int], tokens: int) -> None:
        self.prompt += tokens
        if self.segments is not None:
            self.segments.append(what, tokens)

    def _end(self, outcome: int) -> None:
        clients = self.clients
        if not self.measured:
            return
        if self.tool is not None:
            tasks = clients.tasks
            tasks.rows.append(
                tasks.pack(
                    self.number,
                    self.kind,
                    self.script,
                    outcome,
                    self.calls,
                    self.requests,
                    self.rejections,
                    self.work,
                    self.written,
                    self.generated,
                    self.arrival_s,
                    clients.clock.now,
                    self.reserved,
                )
            )
            if len(tasks.rows) >= BLOCK:
                tasks.flush()
        clients.ended()


class UserTask(Task):
    """A task of a user of a closed loop."""

    __slots__ = ("user",)

    def __init__(self, clients: TaskClients, user: User, row: Row) -> None:
        self.user = user
        super().__init__(clients, user.calls_made, clients.clock.now, *row, clients.prompt_of(user, row[0]))

    @property
    def name(self) -> str:
        """What tells it from all others, whatever the policy."""
        return f"user {self.user.number}/{self.row}"

    def draws(self, what: str) -> Iterator[float]:
        """Yield numbers from [0, 1) that depend on the user and the number of the task alone."""
        return self.clients.draws(what, "user", self.user.number, row=self.row)

    def _end(self, outcome: int) -> None:
        super()._end(outcome)
        self.user.think()


class TaskCall(OpenCall):
    """A call of a task: its requests may meet faults, and its truncated answer holds a cut tool call."""

    __slots__ = ("fault", "of_task", "retrying", "task", "trials")

    clients: TaskClients

    def __init__(self, of_task: Task) -> None:
        clients = of_task.clients
        super().__init__(
            clients,
            next(clients.numbers),
            clients.clock.now,
            of_task.prompt,
            of_task.next,
            of_task.kind,
            of_task.script,
        )
        clients.open += of_task.measured - self.measured  # a task that began in time is measured to its end
        self.measured = of_task.measured
        self.of_task = of_task
        self.task = -1 if of_task.tool is None else of_task.number
        self.segments = None if of_task.segments is None else of_task.segments.copy()
        self.fault: ErrorKind | None = None
        self.retrying: Retrying | None = None
        self.trials = of_task.draws(f"faults/{of_task.calls}")

    def _known(self) -> Call:
        return self.of_task.since.tell(super()._known())

    def _send(self, send: Send) -> None:
        clients, task = self.clients, self.of_task
        task.since.heard(send)
        self.sent = send
        if clients.retry is not None:
            seed = f"{clients.seed}/{clients.replication}/{task.name}/{task.calls}/{self.attempts}"
            self.retrying = clients.retry.begin(send.retry, seed)
        if send.kind is Kind.RECOVERY and task.tool is not None:
            self._refused(_NO_RESULT, ErrorKind.INVALID)  # as servers do: the cut call has no result
        else:
            self._try()

    def _try(self, _: simpy.Event | None = None) -> None:
        """Send the request, for the first time or again."""
        if self.over:  # given up while it waited to be sent again
            return
        clients, sent = self.clients, self.sent
        left = self.true_tokens - self.kept
        if clients.faults is not None:
            self.fault = fault = clients.faults.of(next(self.trials))
            where = next(self.trials)
            if fault in _REFUSAL:
                self._refused(_REFUSAL[fault], fault)
                return
            if fault is ErrorKind.CUT:
                left = 1 + int(where * (min(left, sent.max_tokens) - 1))
            elif fault is ErrorKind.EMPTY:
                left = 1
        before = self.work
        self._submit(left)
        work = self.work
        if clients.timeout_s < inf and work is not None and work is not before:
            moment = Moment(clients.clock, clients.clock.now + clients.timeout_s)
            moment.callbacks.append(lambda _: self._break_off(work))

    def _break_off(self, work: Work) -> None:
        """Wait no longer for a request; one that has ended stays as it is."""
        if self.clients.replica.cancel(work):
            work.response = replace(work.response, error=ErrorKind.SERVER)
            self._answered(work)

    def _refused(self, reason: str, error: ErrorKind) -> None:
        """Answer a request that never reached the server."""
        now = self.clients.clock.now
        work = Work(0, self.prompt, self.sent.max_tokens, now, None)
        work.finished_s = now
        work.refusal = reason
        work.response = _ERROR[error]
        self._answered(work)

    def _answered(self, work: Work) -> None:
        response, tool = work.response, self.of_task.tool
        if response.error is None and self.fault is not None:
            received = 0 if self.fault is ErrorKind.EMPTY else response.output_tokens
            response = Response(FinishReason.ERROR, received, error=self.fault)
        elif response.finish is FinishReason.LENGTH and tool is not None:
            response = replace(response, tool_calls=(ToolUse("", tool.kind, complete=False),))
        self._note(work, response.finish)
        wait_s = None
        if response.error is not None and self.retrying is not None:
            wait_s = self.retrying.after(response.error)
        if wait_s is None:
            self.discarded += work.response.output_tokens - response.output_tokens
            self._hear(response)
        else:
            self.discarded += work.response.output_tokens
            Moment(self.clients.clock, self.clients.clock.now + wait_s).callbacks.append(self._try)

    def _record(self, outcome: int, delivered: int) -> None:
        super()._record(outcome, delivered)
        self.of_task.answered(self, outcome, delivered)
