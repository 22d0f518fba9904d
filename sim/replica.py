"""One model server: continuous batching, simulated iteration by iteration in meaning and run by run in cost.

While the set of requests does not change, the k-th iteration costs ``base + k * slope``: an arithmetic series. So a
whole run of iterations is one event, its time and its time integrals are closed forms, and the cost of a request does
not depend on how many tokens it generates. A run ends at the earliest of: a request finishing; a prompt (or its last
piece) computed; an arrival that may be admitted (at the next boundary); the pool running short; the step-time model's
next breakpoint. ``stepped`` makes every run one iteration long; it exists so that tests can compare.

At a boundary: completions, then the clients' immediate resends, then arrivals of that instant, then scheduling.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

import simpy

from policies.output import ErrorKind, FinishReason, Response
from sim.admission import AdmissionRule
from sim.clock import COMPLETION, SCHEDULING, Clock, Moment
from sim.kv import LONGEST_RUN, UNBOUNDED, Growth, Pool
from sim.steptime import StepTime
from sim.timeline import BLOCK, Series, Timeline


@dataclass(frozen=True, slots=True)
class Server:
    """What one replica is: the values that the engine's preset and the study give it.

    Attributes
    ----------
    rule
        Admission rule.
    step_time
        What an iteration costs.
    kv_tokens
        Size of the KV pool, tokens.
    window
        Most tokens of prompt and answer together.
    block_tokens
        Tokens in a block of the pool.
    max_num_seqs
        Most requests in the batch.
    max_num_batched_tokens
        Token budget of an iteration, at least ``max_num_seqs``, so that every decoding request advances in each one.
    chunked_prefill
        Whether a prompt may be computed in pieces. If not, one that exceeds what is left of the budget waits, unless
        it would be the iteration's only prompt.
    max_waiting
        Requests that may wait when the scheduler has looked; the newest beyond are refused. None: any number.
    """

    rule: AdmissionRule
    step_time: StepTime
    kv_tokens: int
    window: int
    block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    max_waiting: int | None = None

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens = {self.max_num_batched_tokens} is below max_num_seqs = {self.max_num_seqs}: "
                "not every decoding request could advance in each iteration"
            )


PENDING = Response(FinishReason.ERROR, error=ErrorKind.EMPTY)
"""What a client would get that did not wait: nothing has been said yet."""


Answer = Callable[["Work"], None]


class Work:
    """A request on the server. The length its answer is going to have is not here: no rule can read it.

    Attributes
    ----------
    number
        Counts the requests of a replica.
    prompt, max_tokens
        As the client sent them, tokens.
    generated
        Tokens made up to the last time it entered the batch of decoding requests, or left it.
    preemptions
        How often it lost its place.
    reserved_token_s
        Tokens charged, integrated over the time in the batch; for a growing rule blocks count with their mean fill.
    submitted_s, scheduled_s, first_token_s, finished_s
        When, seconds from 0; nan where it has not happened. ``scheduled_s`` is the first admission.
    refusal
        Why the server refused it; an empty string if it did not.
    answer
        Called with the request when its response is there.
    response
        What the client gets.
    """

    generated = 0
    todo = 0  # prompt tokens still to compute
    past = 0  # prompt tokens computed
    blocks = 0  # charged at the admission
    entry = -1  # number of its present stay among the decoding requests, -1 while there is none
    since = 0  # iteration at which that began
    preemptions = 0
    reserved_token_s = 0.0
    scheduled_s = math.nan
    first_token_s = math.nan
    last_token_s = math.nan
    finished_s = math.nan
    refusal = ""

    def __init__(self, number: int, prompt: int, max_tokens: int, now: float, answer: Answer) -> None:
        self.number = number
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.submitted_s = now
        self.answer = answer
        self.response = PENDING


BEYOND_WINDOW = "beyond the window"
BEYOND_POOL = "beyond the pool"
QUEUE_FULL = "queue is full"
REFUSALS = {BEYOND_WINDOW: ErrorKind.INVALID, BEYOND_POOL: ErrorKind.INVALID, QUEUE_FULL: ErrorKind.RATE_LIMITED}
"""Why a server refuses a request, and what its client hears."""


class Replica:
    """A SimPy process that serves requests under one admission rule and one step-time model.

    Parameters
    ----------
    clock
        The simulated time.
    server
        What the replica is.
    tick_s
        Grid of the timeline, seconds.
    stepped
        Advance one iteration at a time: the same results, slowly.

    Attributes
    ----------
    timeline
        What happened over time.
    most_running
        Largest batch so far.
    preemptions
        Times a request lost its place so far.
    iterations
        Iterations so far.
    """

    def __init__(self, clock: Clock, server: Server, tick_s: float = 60.0, stepped: bool = False) -> None:
        self.clock = clock
        self.server = server
        self.timeline = Timeline(tick_s, server.block_tokens)
        self.most_running = 0
        self.preemptions = 0
        self.iterations = 0

        self._pool = Pool(server.kv_tokens, server.block_tokens)
        self._growth = Growth(server.block_tokens) if server.rule.grows else None
        self._spare = server.rule.spare(self._pool.blocks)
        self._longest = 1 if stepped else LONGEST_RUN if server.rule.grows else UNBOUNDED
        self._submitted = 0
        self._entries = count()

        self._waiting: deque[Work] = deque()
        self._running: dict[int, Work] = {}  # in the order of admission
        self._lengths: dict[int, int] = {}  # true lengths, tokens; read only to end a response
        self._ends: list[tuple[int, int, Work]] = []  # heap of (iteration that ends the answer, entry, work)
        self._decoding = 0
        self._context = 0  # sum over decoding requests of prompt + generated
        self._partial: Work | None = None  # the one prompt that is computed in pieces
        self._moment = 0.0  # sum over iterations of their time, weighted by their number

        # The run in progress: its iterations, 0 if there is none, their affine cost, the prompts in it.
        self._steps = 0
        self._started_s = 0.0
        self._base = self._slope = 0.0
        self._prompts: list[tuple[Work, int]] = []
        self._levels = (0, 0, 0, 0)  # requests, tokens stored in the first iteration, more in each further, blocks held
        self._taken = 0  # blocks taken for its first iteration
        self._still = Growth(server.block_tokens).classes(0) if server.rule.grows else None  # nobody grows within it
        self._room = False  # whether an arrival could join at the run's next boundary
        self._idle = False
        self._alarm: simpy.Event = simpy.Event(clock)
        clock.process(self._serve())

    # ------------------------------------------------------------------ what clients see

    def submit(self, prompt: int, max_tokens: int, true_tokens: int, answer: Answer) -> None:
        """Take a request and call ``answer`` with it, at the time its response is there.

        Parameters
        ----------
        prompt
            Prompt tokens, at least 1.
        max_tokens
            Most tokens of the answer, at least 1.
        true_tokens
            Tokens of the answer if nothing stops it, at least 1. Kept apart from everything that decides.
        answer
            Gets the :class:`Work`. An impossible request is refused before this method returns.
        """
        server = self.server
        now = self.clock.now
        self._submitted = number = self._submitted + 1
        work = Work(number, prompt, max_tokens, now, answer)
        if prompt + max_tokens > server.window:
            self._refuse(work, BEYOND_WINDOW)
        elif server.rule.need(prompt, max_tokens, max_tokens - 1, server.block_tokens) > self._pool.blocks:
            self._refuse(work, BEYOND_POOL)
        else:
            self._lengths[work.number] = true_tokens
            waiting = self._waiting
            waiting.append(work)
            self.timeline.queue.append((now, len(waiting)))
            if self._idle:
                self._idle = False
                Moment.instead(self._alarm, now, SCHEDULING)
            elif self._steps > 1 and (
                (self._room and len(waiting) == 1 and self._fits(work))
                or (server.max_waiting is not None and len(waiting) > server.max_waiting)
            ):
                self._end_run_at_next_boundary(now)

    def close(self) -> Series:
        """Return what happened over time, up to the end of the run in progress. The replica is of no use afterwards."""
        if self._steps:
            self._log(self._steps)
        return self.timeline.close(self._time_after(self._steps) if self._steps else self.clock.now)

    @property
    def submitted(self) -> int:
        """Requests submitted so far."""
        return self._submitted

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Requests in the batch now."""
        return len(self._running)

    # ------------------------------------------------------------------ the process

    def _serve(self) -> Generator[simpy.Event, None, None]:
        clock = self.clock
        while True:
            self._schedule(clock.now)
            if self._steps:
                end = self._time_after(self._steps)
                if not clock.skip(end):
                    self._alarm = Moment(clock, end, COMPLETION)
                    yield self._alarm
                self._complete(clock.now)
                if not clock.quiet():
                    yield Moment(clock, clock.now, SCHEDULING)
            else:
                self._idle = True
                self._alarm = simpy.Event(clock)
                yield self._alarm

    def _schedule(self, now: float) -> None:
        """Decide the next run: who advances, who enters, how many equal iterations follow."""
        server, waiting, running = self.server, self._waiting, self._running
        preempted = self._growth is not None and self._grow(self._growth, now)
        budget = server.max_num_batched_tokens - self._decoding
        prompts: list[tuple[Work, int]] = []
        refused: list[Work] = []
        if self._partial is not None:
            work = self._partial
            tokens = min(work.todo, budget)
            budget -= tokens
            prompts.append((work, tokens))
        if waiting:
            if not preempted:
                while waiting and budget > 0 and len(running) < server.max_num_seqs:
                    work = waiting[0]
                    if not self._fits(work):
                        break
                    tokens = todo = work.prompt + work.generated
                    if todo > budget:
                        if server.chunked_prefill:
                            tokens = budget
                            self._partial = work
                        elif prompts:
                            break
                    budget -= tokens
                    waiting.popleft()
                    self._admit(work, todo, now)
                    prompts.append((work, tokens))
                if len(running) > self.most_running:
                    self.most_running = len(running)
            if server.max_waiting is not None:
                while len(waiting) > server.max_waiting:
                    refused.append(waiting.pop())
            self.timeline.queue.append((now, len(waiting)))
        if self._decoding or prompts:
            self._plan(prompts, budget, now)
        for work in refused:  # whose clients may send again at once, into the next iteration
            self._refuse(work, QUEUE_FULL)

    def _plan(self, prompts: list[tuple[Work, int]], budget: int, now: float) -> None:
        """Set the run: its iterations, their cost, what they hold."""
        decoding, context = self._decoding, self._context
        steps = self._longest
        used, rise = context, decoding
        if prompts:
            chunks = []
            for work, tokens in prompts:
                chunks.append((tokens, work.past))
                used += tokens + work.past
                rise += tokens
            base, slope, valid = self.server.step_time.segment(decoding, context, chunks)
            work, tokens = prompts[0]
            # Equal pieces of one prompt that fill the budget: nobody else enters before it is computed.
            alike = work.todo // tokens if budget <= 0 and len(prompts) == 1 else 1
            if alike < steps:
                steps = alike
        else:
            base, slope, valid = self.server.step_time.segment(decoding, context)
        if valid < steps:
            steps = valid
        if decoding and steps > 1:
            ends = self._ends
            while ends[0][1] != ends[0][2].entry:  # of a stay that a preemption ended
                heappop(ends)
            left = ends[0][0] - self.iterations
            if left < steps:
                steps = left
            if self._growth is not None and steps > 1:
                free = self._pool.free
                if free < decoding * (steps // self._pool.block_tokens + 1):
                    steps = min(steps, self._growth.reach(self.iterations, decoding, free + self._taken))
        self._prompts = prompts
        self._steps = steps
        self._started_s = now
        self._base, self._slope = base, slope
        self._levels = (len(self._running), used, rise, self._pool.held)
        self._room = budget > 0 and len(self._running) < self.server.max_num_seqs

    def _complete(self, now: float) -> None:
        """Account for the run that ends now; end answers, turn computed prompts into decoding requests."""
        steps, iteration = self._steps, self.iterations
        self._log(steps)
        growth = self._growth
        if growth is not None:
            if steps > 1 and self._decoding:
                self._pool.held += growth.demand(iteration, steps) - self._taken
            base, slope, pairs = self._base, self._slope, steps * (steps - 1) >> 1
            self._moment += iteration * (steps * base + pairs * slope) + pairs * (base + (2 * steps - 1) / 3 * slope)
        if len(self.timeline.runs) >= BLOCK:
            self.timeline.settle()
        self.iterations = iteration = iteration + steps
        self._context += self._decoding * steps
        self._steps = 0

        ends = self._ends
        while ends and ends[0][0] <= iteration:
            _, entry, work = heappop(ends)
            if entry == work.entry:
                self._leave(work, now)
                self._respond(work, now)
        for work, tokens in self._prompts:
            work.past += tokens * steps
            work.todo -= tokens * steps
            if not work.todo:
                self._produce(work, now)

    def _log(self, steps: int) -> None:
        """Log the first ``steps`` iterations of the run in progress."""
        classes = None
        if self._growth is not None:
            classes = self._growth.classes(self.iterations) if steps > 1 and self._decoding else self._still
        self.timeline.runs.append(
            (self._started_s, self._base, self._slope, steps, self._decoding, *self._levels, classes)
        )

    # ------------------------------------------------------------------ a request's life

    def _fits(self, work: Work) -> bool:
        pool = self._pool
        need = self.server.rule.need(work.prompt, work.max_tokens, work.generated, pool.block_tokens)
        return need + (self._spare if self._running else 0) <= pool.blocks - pool.held

    def _admit(self, work: Work, todo: int, now: float) -> None:
        """Put a waiting request into the batch, its prompt still to compute."""
        pool = self._pool
        work.blocks = blocks = self.server.rule.need(work.prompt, work.max_tokens, work.generated, pool.block_tokens)
        pool.held += blocks
        work.todo = todo
        work.past = 0
        self._running[work.number] = work
        if work.scheduled_s != work.scheduled_s:  # nan: for the first time
            work.scheduled_s = now
        work.reserved_token_s -= now * (blocks * pool.block_tokens)

    def _produce(self, work: Work, now: float) -> None:
        """Let the computed prompt bring its token; the request decodes from the next iteration on."""
        if work is self._partial:
            self._partial = None
        if work.generated:
            self.timeline.stalls.append((now, now - work.last_token_s))
        else:
            work.first_token_s = now
        work.generated += 1
        left = min(self._lengths[work.number], work.max_tokens) - work.generated
        if not left:
            self._withdraw(work, now)
            self._respond(work, now)
            return
        context = work.prompt + work.generated
        work.since = iteration = self.iterations
        work.entry = entry = next(self._entries)
        self._decoding += 1
        self._context += context
        heappush(self._ends, (iteration + left, entry, work))
        if self._growth is not None:
            self._growth.join(context, iteration)
            tokens = work.blocks * self._pool.block_tokens
            work.reserved_token_s += now * tokens - self._charged(context - iteration, now)

    def _withdraw(self, work: Work, now: float) -> None:
        """Take a request that does not decode out of the batch."""
        pool = self._pool
        pool.held -= work.blocks
        work.reserved_token_s += now * (work.blocks * pool.block_tokens)
        del self._running[work.number]

    def _leave(self, work: Work, now: float) -> None:
        """Take a decoding request out of the batch."""
        iteration = self.iterations
        work.generated += iteration - work.since
        work.entry = -1
        context = work.prompt + work.generated
        self._decoding -= 1
        self._context -= context
        if self._growth is None:
            self._withdraw(work, now)
        else:
            self._growth.leave(context, iteration)
            self._pool.held += (1 - context) // self._pool.block_tokens  # less ceil((context - 1) / b): the last token
            work.reserved_token_s += self._charged(context - iteration, now)  # is not stored
            del self._running[work.number]

    def _charged(self, fill: int, now: float) -> float:
        """Return the integral since 0 of ``fill`` + iteration + half a block less one token: tokens times seconds."""
        return (fill + (self._pool.block_tokens - 1) / 2) * now + self._moment

    def _respond(self, work: Work, now: float) -> None:
        work.finished_s = now
        truncated = self._lengths.pop(work.number) > work.max_tokens
        work.response = Response(FinishReason.LENGTH if truncated else FinishReason.STOP, work.generated)
        work.answer(work)

    def _refuse(self, work: Work, reason: str) -> None:
        self._lengths.pop(work.number, None)
        work.refusal = reason
        work.finished_s = self.clock.now
        work.response = Response(FinishReason.ERROR, error=REFUSALS[reason])
        work.answer(work)

    def _grow(self, growth: Growth, now: float) -> bool:
        """Take the decoding requests' next blocks; preempt the last in while they do not fit. Return if any was."""
        pool, iteration = self._pool, self.iterations
        preempted = False
        while (taken := growth.now(iteration)) > pool.blocks - pool.held:
            self._preempt(now)
            preempted = True
        pool.held += taken
        self._taken = taken
        return preempted

    def _preempt(self, now: float) -> None:
        """Put the last admitted request back to the head of the queue; it is recomputed, its answer so far included."""
        work = self._running[next(reversed(self._running))]
        if work is self._partial:
            self._withdraw(work, now)
            self._partial = None
        else:
            self._leave(work, now)
            work.last_token_s = now
        work.preemptions += 1
        self.preemptions += 1
        self._waiting.appendleft(work)

    # ------------------------------------------------------------------ closed forms of the run

    def _time_after(self, steps: int) -> float:
        """Return when the run's first ``steps`` iterations have ended."""
        return self._started_s + (steps * self._base + (steps * (steps - 1) >> 1) * self._slope)

    def _end_run_at_next_boundary(self, now: float) -> None:
        """Cut the run after its first iteration that ends at ``now`` or later."""
        linear = self._base - self._slope / 2
        spent = now - self._started_s
        root = math.sqrt(linear * linear + 2 * self._slope * spent)
        steps = max(1, min(self._steps, math.ceil(2 * spent / (linear + root))))
        while steps < self._steps and self._time_after(steps) < now:  # rounding of the root
            steps += 1
        while steps > 1 and self._time_after(steps - 1) >= now:
            steps -= 1
        if steps < self._steps:
            self._steps = steps
            self._alarm = Moment.instead(self._alarm, self._time_after(steps), COMPLETION)
