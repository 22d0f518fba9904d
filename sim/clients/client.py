"""The clients: each call runs its output policy's machine against the server, as it would against a real one."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import count, repeat
from math import inf, isnan

import numpy as np
import simpy

from policies.output import (
    Call,
    Carried,
    Done,
    Fail,
    FinishReason,
    Kind,
    Oracle,
    Outcome,
    OutputPolicy,
    Partial,
    Reject,
    Response,
    Send,
)
from sim.clients.users import Limits, Row, User
from sim.clock import COMPLETION, Clock, Moment
from sim.records import CALL, FINISHES, KINDS, OUTCOMES, REFUSALS, REQUEST, Table
from sim.replica.prefix_cache import Prompt
from sim.replica.replica import Replica
from sim.replica.work import Work
from sim.rows import BLOCK
from workloads.trace import Floats, Labels, Segments, Trace

_KIND = {kind: code for code, kind in enumerate(KINDS)}
_FINISH = {finish: code for code, finish in enumerate(FINISHES)}
_REFUSAL = {reason: code for code, reason in enumerate(REFUSALS)}
COMPLETE, TRUNCATED, REJECTED, FAILED, ABANDONED = range(len(OUTCOMES))
_OUTCOME = {Outcome.COMPLETE: COMPLETE, Outcome.TRUNCATED: TRUNCATED, Outcome.PARTIAL: TRUNCATED}
_INITIAL, _LENGTH = Kind.INITIAL, FinishReason.LENGTH  # of every request: a look into an enumeration takes its time
_NO_ROOM = _REFUSAL["no room for an answer"]


class Clients:
    """Everybody who calls: opens a call for every row of the workload and records what becomes of it.

    Parameters
    ----------
    clock
        The simulated time.
    replica
        The server.
    policy
        Decides ``max_tokens`` and what follows a truncation.
    model, window
        What a call tells its policy of the model: name, context window in tokens.

    Attributes
    ----------
    requests, calls
        The records, see :mod:`sim.records`.
    kinds, scripts
        Names of the categories that the calls' columns ``kind`` and ``script`` count.
    open
        Measured calls that have begun and not ended.
    measuring
        Whether calls that begin now are measured.
    numbers
        Of the calls to come, in the order in which they begin.
    """

    def __init__(self, clock: Clock, replica: Replica, policy: OutputPolicy, model: str, window: int) -> None:
        self.clock = clock
        self.replica = replica
        self.policy = policy
        self.model = model
        self.window = window
        self.requests = Table(REQUEST)
        self.calls = Table(CALL)
        self.kinds: tuple[str, ...] = ()
        self.scripts: tuple[str, ...] = ()
        self.open = 0
        self.measuring = True
        self.numbers = count()
        self._users: list[User] = []
        self._templates: dict[tuple[int, int], Call] = {}
        self._finished = simpy.Event(clock)

    def run(
        self, workload: Iterator[Trace], horizon_s: float, limit_s: float, users: Sequence[Iterator[Trace]] = ()
    ) -> None:
        """Simulate until every call that arrives before the horizon has ended.

        Calls that arrive later keep the server as busy as before and are not recorded; nothing is cut off.

        Parameters
        ----------
        workload
            Calls in order of arrival; may be endless.
        horizon_s
            Arrivals before it are measured.
        limit_s
            No more arrivals from here on, so that a server that never catches up comes to an end.
        users
            What each user of a closed loop calls one after the other.
        """
        self._users = [
            User(self.clock, number, self._rows(calls), self.serve, limit_s) for number, calls in enumerate(users)
        ]
        if users:  # they call whether somebody else arrives or not, so the horizon has a moment of its own
            Moment(self.clock, horizon_s, COMPLETION).callbacks.append(self._close)
        self.clock.process(self._arrive(workload, horizon_s, limit_s))
        self.clock.run(until=self._finished)

    def _arrive(
        self, workload: Iterator[Trace], horizon_s: float, limit_s: float
    ) -> Generator[simpy.Event, None, None]:
        clock = self.clock
        number = 0
        for block in workload:
            columns = zip(block.arrival_s.tolist(), self.rows(block), self._segments(block, number), strict=True)
            for arrival_s, row, segments in columns:
                if arrival_s >= horizon_s:
                    self.measuring = False
                    if not self.open or arrival_s >= limit_s:
                        break
                if not clock.skip(arrival_s):
                    yield Moment(clock, arrival_s)
                if not self.measuring and not self.open:
                    break
                self._open(number, arrival_s, row, segments)
                number += 1
            else:
                continue
            break
        if not self._users:
            self._close()

    def _close(self, _: simpy.Event | None = None) -> None:
        """Measure no more calls that begin."""
        self.measuring = False
        if not self.open and not self._finished.triggered:
            self._finished.succeed()

    def rows(self, block: Trace) -> Iterator[Row]:
        """Return each call's row; the kinds and scripts in them are known from now on."""
        kinds, scripts = _codes(block.kind), _codes(block.script)
        self.kinds, kind_of = _merged(self.kinds, kinds[1])
        self.scripts, script_of = _merged(self.scripts, scripts[1])
        return zip(
            np.maximum(block.prompt_tokens, 1).tolist(),
            np.maximum(block.output_tokens, 1).tolist(),
            [kind_of[code] for code in kinds[0]] or [kind_of[0]] * len(block),
            [script_of[code] for code in scripts[0]] or [script_of[0]] * len(block),
            _limits(block),
            strict=True,
        )

    def _open(self, number: int, arrival_s: float, row: Row, segments: Prompt | None) -> None:
        """Begin the call of a row of the workload, the ``number``-th from 0."""
        prompt, true_tokens, kind, script, limits = row
        call = OpenCall(self, next(self.numbers), arrival_s, prompt, true_tokens, kind, script)
        call.segments = segments
        call.begin()
        if limits is not None:
            call.limit(*limits)

    def _rows(self, blocks: Iterator[Trace]) -> Iterator[tuple[float, Row]]:
        for block in blocks:
            assert block.think_s is not None
            yield from zip(block.think_s.tolist(), self.rows(block), strict=True)

    def serve(self, user: User, row: Row) -> None:
        """Begin the call of a user of a closed loop, who thinks again when it has ended."""
        *what, limits = row
        call = UserCall(self, user, *what)
        call.begin()
        if limits is not None:
            call.limit(*limits)

    def prompt_of(self, user: User, tokens: int) -> Prompt | None:
        """Return what the prompt of a user's call is made of: all its own."""
        return Prompt([(("user", user.number, user.calls_made), tokens)]) if self.replica.server.prefix_cache else None

    def _segments(self, block: Trace, number: int) -> Iterable[Prompt | None]:
        """Return what each prompt is made of, for a server that keeps beginnings; else None for each.

        What the trace does not tell is the call's own, found again only when the call itself is sent again.
        """
        if not self.replica.server.prefix_cache:
            return repeat(None, len(block))
        return _prompts(block, number)

    def describe(self, kind: int, script: int) -> Call:
        """Return what a client knows of a call of this kind in this script, but for its prompt."""
        call = self._templates.get((kind, script))
        if call is None:
            call = Call(model=self.model, window=self.window, kind=self.kinds[kind], script=self.scripts[script])
            self._templates[kind, script] = call
        return call

    def ended(self) -> None:
        """Count a measured call out; the last one ends the simulation."""
        self.open -= 1
        if not self.open and not self.measuring and not self._finished.triggered:
            self._finished.succeed()


def _codes(labels: Labels | None) -> tuple[list[int], tuple[str, ...]]:
    return ([], ("",)) if labels is None else (labels.codes.tolist(), labels.names)


def _limits(block: Trace) -> Iterable[Limits | None]:
    if block.patience_s is None and block.timeout_s is None:
        return repeat(None, len(block))
    return zip(_known(block.patience_s, len(block)), _known(block.timeout_s, len(block)), strict=True)


def _known(limits: Floats | None, n: int) -> list[float]:
    """Return limits in seconds, infinite where there is none."""
    return [inf] * n if limits is None else np.where(np.isnan(limits), inf, limits).tolist()


def _merged(known: tuple[str, ...], names: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
    """Return the categories with new ones appended, and the code of each of ``names`` among them."""
    known = known + tuple(name for name in names if name not in known)
    return known, [known.index(name) for name in names]


def _prompts(trace: Trace, number: int) -> Iterator[Prompt]:
    """Yield what each call's prompt is made of, the first call being the ``number``-th."""
    tokens = trace.prompt_tokens
    segments = Segments.none(len(trace)) if trace.segments is None else trace.segments
    own = np.maximum(tokens, 1) - np.minimum(segments.totals(), tokens)
    for call, (prompt, rest) in enumerate(zip(Prompt.of_rows(segments), own.tolist(), strict=True), number):
        prompt.append(("own", call), rest)
        yield prompt


class OpenCall:
    """One logical call while it lasts: its machine, and what the engine alone knows about the answer.

    The true length is drawn once a call. A request that regenerates the answer has all of it still before it; one
    that continues a kept answer has what is left.
    """

    task = -1
    """Number of the task that it belongs to; -1 for a call of its own."""

    __slots__ = (
        "arrival_s",
        "attempts",
        "clients",
        "discarded",
        "dropped",
        "first_truncated",
        "kept",
        "kind",
        "machine",
        "measured",
        "number",
        "over",
        "prompt",
        "prompt_tokens",
        "reserved",
        "script",
        "segments",
        "sent",
        "true_tokens",
        "work",
    )

    def __init__(
        self, clients: Clients, number: int, arrival_s: float, prompt: int, true_tokens: int, kind: int, script: int
    ) -> None:
        self.clients = clients
        self.number = number
        self.prompt_tokens = self.prompt = prompt
        self.true_tokens = true_tokens
        self.kind = kind
        self.script = script
        self.arrival_s = arrival_s
        self.attempts = 0
        self.kept = 0  # tokens of the answer that are in the history
        self.dropped = 0  # tokens of a truncated answer that an escalation is to replace
        self.discarded = 0
        self.reserved = 0.0
        self.first_truncated = False
        self.segments: Prompt | None = None  # what the prompt is made of, where the server keeps beginnings
        self.work: Work | None = None  # the last request that the server took
        self.over = False
        self.measured = clients.measuring
        clients.open += self.measured

    def begin(self, estimate: int | None = None) -> None:
        """Send the first request; the policy is told the estimate of the prompt's tokens, else their true number."""
        policy, known = self.clients.policy, self._known()
        told = self.prompt if estimate is None else estimate
        if isinstance(policy, Oracle):
            self.machine = policy.begin(known, told, true_tokens=self.true_tokens)
        else:
            self.machine = policy.begin(known, told)
        decision = self.machine.first()
        if isinstance(decision, Send):
            self._send(decision)
        else:
            self._refuse()

    def _known(self) -> Call:
        return self.clients.describe(self.kind, self.script)

    def _send(self, send: Send) -> None:
        self.sent = send
        self._submit(self.true_tokens - self.kept)

    def _submit(self, true_tokens: int) -> None:
        work = self.clients.replica.submit(
            self.prompt, self.sent.max_tokens, true_tokens, self._answered, self.segments
        )
        if not work.refusal:  # else the next one may already be on its way
            self.work = work

    def _answered(self, work: Work) -> None:
        self._note(work, work.response.finish)
        self._hear(work.response)

    def _note(self, work: Work, finish: FinishReason) -> None:
        """Record what became of a request."""
        if self.measured:
            requests = self.clients.requests
            requests.rows.append(
                requests.pack(
                    self.number,
                    self.attempts,
                    _KIND[self.sent.kind],
                    work.prompt,
                    work.cached,
                    work.max_tokens,
                    work.response.output_tokens,
                    _FINISH[finish],
                    _REFUSAL[work.refusal],
                    work.preemptions,
                    work.submitted_s,
                    work.scheduled_s,
                    work.first_token_s,
                    work.finished_s,
                    work.reserved_token_s,
                )
            )
        if self.sent.kind is _INITIAL:
            self.first_truncated = finish is _LENGTH
        self.attempts += 1
        self.reserved += work.reserved_token_s

    def _hear(self, response: Response) -> None:
        """Do what the machine decides after a response."""
        output = response.output_tokens
        if self.dropped and response.error is None:  # the answer that replaces the dropped one is in
            self.discarded += self.dropped
            self.dropped = 0
        decision = self.machine.after(response)
        if isinstance(decision, Send):
            if decision.history is Carried.DROP_PARTIAL:
                self.dropped = output
            else:
                self.kept += output
                self.prompt += output + decision.message_tokens
                if self.segments is not None:
                    self._keep(output, decision.message_tokens)
            self._send(decision)
        else:
            self._end(decision, output)

    def _keep(self, output: int, message_tokens: int) -> None:
        """Append a kept partial answer and the recovery message to what the prompt is made of."""
        assert self.segments is not None
        self.segments.append(("said", self.number, self.attempts), output)
        self.segments.append(("asked", self.number, self.attempts), message_tokens)

    def _end(self, decision: Done | Reject | Fail, output: int) -> None:
        if isinstance(decision, Done):
            self._record(_OUTCOME[decision.outcome], self.kept + output)
        elif isinstance(decision, Reject):
            self.discarded += self.kept + output
            self._record(REJECTED, 0)
        else:
            kept = (self.dropped or output) if decision.partial is Partial.KEPT else 0
            self.discarded += self.dropped + output - kept
            delivered = self.kept + kept
            self._record(TRUNCATED if delivered else FAILED, delivered)

    def _refuse(self) -> None:
        """Record the request that the policy itself refused to send: no room for a useful answer."""
        if self.measured:
            now, nan = self.arrival_s, float("nan")
            requests = self.clients.requests
            requests.rows.append(
                requests.pack(
                    self.number,
                    0,
                    0,
                    self.prompt,
                    0,
                    0,
                    0,
                    _FINISH[FinishReason.ERROR],
                    _NO_ROOM,
                    0,
                    now,
                    nan,
                    nan,
                    now,
                    0.0,
                )
            )
        self.attempts = 1
        self._record(FAILED, 0)

    def limit(self, patience_s: float, timeout_s: float) -> None:
        """Give the call up so many seconds after it began if its first token, or its answer's end, is not there."""
        if self.over:
            return
        clock = self.clients.clock
        if patience_s < timeout_s:
            Moment(clock, self.arrival_s + patience_s).callbacks.append(self._lose_patience)
        if timeout_s < inf:
            Moment(clock, self.arrival_s + timeout_s).callbacks.append(self._give_up)

    def _lose_patience(self, event: simpy.Event) -> None:
        seen = self.kept or self.dropped or self.discarded
        if not seen and (self.work is None or isnan(self.work.first_token_s)):
            self._give_up(event)

    def _give_up(self, _: simpy.Event) -> None:
        if self.over:
            return
        output = 0
        work = self.work
        if work is not None and self.clients.replica.cancel(work):
            self._note(work, work.response.finish)
            output = work.response.output_tokens
        self.discarded += self.kept + self.dropped + output
        self._record(ABANDONED, 0)

    def _record(self, outcome: int, delivered: int) -> None:
        self.over = True
        if not self.measured:
            return
        clients = self.clients
        calls = clients.calls
        calls.rows.append(
            calls.pack(
                self.number,
                self.kind,
                self.script,
                self.attempts,
                outcome,
                self.first_truncated,
                outcome in (TRUNCATED, REJECTED),
                self.prompt_tokens,
                self.true_tokens,
                delivered,
                self.discarded,
                self.task,
                self.arrival_s,
                clients.clock.now,
                self.reserved,
            )
        )
        if len(calls.rows) >= BLOCK:
            calls.flush()
            clients.requests.flush()
        clients.ended()


class UserCall(OpenCall):
    """A call of a user of a closed loop."""

    __slots__ = ("user",)

    def __init__(self, clients: Clients, user: User, prompt: int, true_tokens: int, kind: int, script: int) -> None:
        super().__init__(clients, next(clients.numbers), clients.clock.now, prompt, true_tokens, kind, script)
        self.segments = clients.prompt_of(user, self.prompt)
        self.user = user

    def _record(self, outcome: int, delivered: int) -> None:
        super()._record(outcome, delivered)
        self.user.think()
