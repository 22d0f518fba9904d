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
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

import simpy

from policies.output import ErrorKind, FinishReason, Response
from sim.clock import SCHEDULING, Clock, Moment
from sim.replica.kv import LONGEST_RUN, UNBOUNDED, Growth, Pool
from sim.replica.prefix_cache import Found, Lease, PrefixCache, Prompt
from sim.replica.server import Server
from sim.replica.timeline import Series, Timeline
from sim.replica.victims import VICTIMS
from sim.replica.work import BEYOND_POOL, BEYOND_WINDOW, GIVEN_UP, QUEUE_FULL, REFUSALS, Answer, Work
from sim.rows import BLOCK

NOBODY: Sequence[tuple[Work, int]] = ()


class Replica:
    """Serves requests in simulated time under one admission rule and one step-time model.

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

    __slots__ = (
        "_base",
        "_boundary",
        "_budget",
        "_cache",
        "_certain",
        "_changes",
        "_choose",
        "_closed",
        "_context",
        "_cut",
        "_decoding",
        "_done",
        "_ends",
        "_entries",
        "_given_up",
        "_growth",
        "_idle",
        "_knows",
        "_lacking",
        "_longest",
        "_most_tokens",
        "_need",
        "_outlook",
        "_partial",
        "_piecewise",
        "_pool",
        "_prompts",
        "_queue",
        "_running",
        "_runs",
        "_sealed",
        "_segment",
        "_slope",
        "_spare",
        "_started_s",
        "_stay",
        "_steps",
        "_submitted",
        "_waiting",
        "_whole",
        "clock",
        "iterations",
        "most_running",
        "preemptions",
        "server",
        "timeline",
    )

    def __init__(self, clock: Clock, server: Server, tick_s: float = 60.0, stepped: bool = False) -> None:
        self.clock = clock
        self.server = server
        self.most_running = 0
        self.preemptions = 0
        self.iterations = 0

        self._pool = Pool(server.kv_tokens, server.block_tokens)
        self._cache = PrefixCache(server.block_tokens) if server.prefix_cache else None
        self._growth = Growth(server.block_tokens) if server.rule.grows else None
        self._changes = [] if self._growth is None else self._growth.changes
        self.timeline = Timeline(tick_s, server.block_tokens, None if self._growth is None else self._changes)
        least = server.rule.need(1, 1, 0, server.block_tokens)
        self._certain = 0 if least > self._pool.blocks else self._pool.blocks * server.block_tokens
        self._spare = server.rule.spare(self._pool.blocks)
        self._choose = VICTIMS[server.victim or server.rule.victim]
        self._runs, self._queue, self._done = self.timeline.runs, self.timeline.queue, self.timeline.steps
        self._outlook = server.rule.outlook()
        self._lacking: float | None = None  # tokens that the head of the queue lacks beside the outlook
        self._need = server.rule.need
        self._closed = server.rule.closed
        self._knows = server.rule.knows
        self._stay = server.rule.stay
        self._piecewise = server.rule.piecewise and server.chunked_prefill
        self._most_tokens = server.max_num_batched_tokens
        self._longest = 1 if stepped else LONGEST_RUN if server.rule.grows else UNBOUNDED
        self._submitted = 0
        self._cut: dict[int, Response] = {}  # responses are values: equal ones are shared
        self._whole: dict[int, Response] = {}
        self._segment = server.step_time.segment
        self._entries = count()

        self._waiting: deque[Work] = deque()
        self._running: dict[int, Work] = {}  # in the order of admission
        self._sealed: dict[int, tuple[int, Answer]] = {}  # true lengths, read only to end a response; the clients
        self._ends: list[tuple[int, int, Work]] = []  # heap of (iteration that ends the answer, entry, work)
        self._decoding = 0
        self._context = 0  # sum over decoding requests of prompt + generated
        self._given_up: list[Work] = []  # in the batch until the run ends
        self._partial: Work | None = None  # the one prompt that is computed in pieces

        # The run in progress: its iterations, 0 if there is none, their affine cost, the prompts in it.
        self._steps = 0
        self._started_s = 0.0
        self._base = self._slope = 0.0
        self._prompts: Sequence[tuple[Work, int]] = NOBODY
        self._budget = 0  # tokens that its iterations leave free
        self._idle = True
        self._boundary = clock.timer(self._end_run)

    # ------------------------------------------------------------------ what clients see

    def submit(
        self, prompt: int, max_tokens: int, true_tokens: int, answer: Answer, segments: Prompt | None = None
    ) -> Work:
        """Take a request, return it, and call ``answer`` with it, at the time its response is there.

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
        segments
            What the prompt is made of. If the answer appends itself to it when it is called, the generated tokens are
            kept for the next request that begins so.
        """
        server = self.server
        now = self.clock.now
        self._submitted = number = self._submitted + 1
        work = Work(number, prompt, max_tokens, now, None if self._cache is None else segments)
        if self._knows:
            work.limit = server.rule.told(true_tokens, max_tokens)
        if prompt + max_tokens > server.window:
            self._refuse(work, BEYOND_WINDOW, answer)
        elif (
            prompt + max_tokens > self._certain  # what is not larger fits an empty pool
            and self._need(prompt, work.limit, work.limit - 1, server.block_tokens) > self._pool.blocks
        ):
            self._refuse(work, BEYOND_POOL, answer)
        else:
            self._sealed[number] = (true_tokens, answer)
            waiting = self._waiting
            waiting.append(work)
            queue = self._queue
            queue.rows.append(queue.pack(now, len(waiting)))
            if self._idle:
                self._idle = False
                Moment(self.clock, now, SCHEDULING).callbacks.append(self._go_on)
            elif self._steps > 1 and (
                # Whether it fits is seen there; one boundary too many costs less than to look twice.
                (self._budget > 0 and len(waiting) == 1 and len(self._running) < server.max_num_seqs)
                or (server.max_waiting is not None and len(waiting) > server.max_waiting)
            ):
                self._end_run_at_next_boundary(now)
        return work

    def cancel(self, work: Work) -> bool:
        """Give a request up; return whether it was still there.

        Its client hears no more of it: ``answer`` is not called, ``response`` has the tokens received so far. One that
        waits is gone at once; one in the batch holds its blocks, and makes its tokens, to the end of the iteration.
        """
        if self._sealed.pop(work.number, None) is None:
            return False
        work.finished_s = now = self.clock.now
        work.refusal = GIVEN_UP
        more = 0  # tokens made in this stay, and received
        if work.number not in self._running:
            self._forget(work, now)
        elif not self._steps:  # between an iteration's end and the next one
            self._oust(work, now)
        else:
            if self._steps > 1:
                self._end_run_at_next_boundary(now)
            end, iteration = self._time_after(self._steps), self.iterations + self._steps
            if work.entry >= 0:
                more = iteration - work.since - (end > now)
            if work.entry < 0 or self._growth is None:
                work.reserved_token_s += end * (work.blocks * self._pool.block_tokens)
            else:
                work.reserved_token_s += self._grown(work, end, iteration)
            self._given_up.append(work)
        work.response = Response(FinishReason.ERROR, work.generated + more, error=ErrorKind.CUT)
        return True

    def close(self) -> Series:
        """Return what happened over time, up to the end of the run in progress. The replica is of no use afterwards."""
        if not self._steps:
            return self.timeline.close(self.clock.now)
        self._done.append(self._steps)
        return self.timeline.close(self._time_after(self._steps))

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

    # ------------------------------------------------------------------ from run to run

    def _end_run(self) -> None:
        """Account for the run that ends now, and go on."""
        now = self.clock.now
        self._complete(now)
        if self.clock.quiet():
            self._go_on()
        else:
            Moment(self.clock, now, SCHEDULING).callbacks.append(self._go_on)

    def _go_on(self, _: simpy.Event | None = None) -> None:
        """Schedule run after run until one ends after something else has happened, or there is nothing to do."""
        clock = self.clock
        now = clock.now
        while (end := self._schedule(now)) is not None:
            if not clock.skip(end):
                self._boundary.set(end)
                return
            now = end
            self._complete(now)
            if not clock.quiet():
                Moment(clock, now, SCHEDULING).callbacks.append(self._go_on)
                return
        self._idle = True

    def _schedule(self, now: float, short: bool = False) -> float | None:
        """Decide the next run: who advances, who enters, how many equal iterations follow.

        Parameters
        ----------
        now
            When it begins, seconds.
        short
            Whether the pool is known to be short of blocks for the next iteration.

        Returns
        -------
        float or None
            When it ends, seconds; None if there is nothing to do.
        """
        growth, pool = self._growth, self._pool
        prompts: Sequence[tuple[Work, int]] = NOBODY
        steps = self._longest
        if short or self._waiting or self._partial is not None:
            preempted = growth is not None and (short or self._lacks(0))
            if preempted:
                self._make_room(now)
            if self._piecewise and self._partial is not None and not self._extend(self._partial, now):
                self._preempt(self._partial, now)
                preempted = True
            self._lacking = None
            prompts = self._gather(now, not preempted)
            # Who was preempted may enter at the very next look, without a completion: a first piece needs little room,
            # and a beginning that others share or the cache still holds needs none.
            if preempted and (self._piecewise or self._cache is not None or self._outlook is not None):
                steps = 1
        decoding, context = self._decoding, self._context
        stored = rise = 0
        if prompts:
            chunks = []
            for work, tokens in prompts:
                past = work.past
                chunks.append((tokens, past))
                stored += tokens + past
                rise += tokens
            base, slope, valid = self._segment(decoding, context, chunks)
            # Equal pieces of one prompt that fill the budget: nobody else enters before it is computed.
            alone = self._budget <= 0 and len(prompts) == 1 and not self._piecewise
            alike = work.todo // tokens if alone else 1
            if alike < steps:
                steps = alike
        elif decoding:
            base, slope, valid = self._segment(decoding, context)
            self._budget = self._most_tokens - decoding
        else:
            if self._outlook is not None:
                self._outlook.rest()
            return None
        if valid < steps:
            steps = valid
        if decoding and steps > 1:
            ends = self._ends
            while ends[0][1] != ends[0][2].entry:  # of a stay that a preemption ended
                heappop(ends)
            left = ends[0][0] - self.iterations
            if left < steps:
                steps = left
            if self._outlook is not None and self._waiting and self._lacking is not None:
                lacking = self._lacking - decoding * (pool.block_tokens - 1)  # blocks may take so much later
                steps = min(steps, self._outlook.earliest(lacking, decoding, self.iterations))
        if growth is not None:
            # Far from the end of the pool a bound will do, here and below: no last block has more free than its tokens.
            size = pool.block_tokens
            if context + decoding * (steps + size) > (pool.blocks - pool.held) * size:
                free = pool.blocks - pool.held - growth.held(self.iterations, context)
                reach = growth.reach(self.iterations, decoding, free + growth.now(self.iterations))
                if reach < 1:
                    return self._schedule(now, short=True)
                if reach < steps:
                    steps = reach
        self._prompts = prompts
        self._steps = steps
        self._started_s = now
        self._base = base
        self._slope = slope
        runs = self._runs
        runs.rows.append(
            runs.pack(
                now,
                base,
                slope,
                decoding,
                len(self._running),
                context,
                stored,
                rise,
                pool.held,
                len(self._changes),
            )
        )
        return now + (steps * base + (steps * (steps - 1) >> 1) * slope)

    def _gather(self, now: float, open_: bool) -> Sequence[tuple[Work, int]]:
        """Return the prompts that the next iteration computes, each with its tokens in it; let requests enter.

        First the rest of the prompt that is computed in pieces, then who waits, first come first served, up to the
        first that does not fit; nobody enters when the scheduler has just preempted somebody (``open_`` is false).
        """
        server, waiting, running, pool = self.server, self._waiting, self._running, self._pool
        cache, piecewise, need, size = self._cache, self._piecewise, self._need, pool.block_tokens
        budget = self._most_tokens - self._decoding
        prompts: list[tuple[Work, int]] = []
        if self._partial is not None:
            work = self._partial
            tokens = min(work.todo, budget)
            budget -= tokens
            prompts.append((work, tokens))
        open_ = open_ and not (self._closed and running)
        outlook, expected, may = self._outlook, 0.0, 0
        if outlook is not None and open_:
            expected = outlook.tokens(self.iterations)
        while open_ and waiting and budget > 0 and len(running) < server.max_num_seqs:
            work = waiting[0]
            if cache is None and not piecewise:
                blocks, loose, found = need(work.prompt, work.limit, work.generated, size), 0, None
            else:
                blocks, loose, found = self._needed(work, budget)
            if self._lacks(blocks + loose + (self._spare if running else 0)):
                break
            if outlook is not None:
                may = outlook.count(work.max_tokens - work.generated)
                self._lacking = self._free_tokens() - (blocks + loose + 1) * pool.block_tokens - may - expected
                self._lacking = None if self._lacking > 0 or not running else -self._lacking
                if self._lacking is not None:
                    break
            work.found = 0 if found is None else found.tokens
            tokens = todo = work.prompt + work.generated - work.found
            if todo > budget:
                if server.chunked_prefill:
                    tokens = budget
                    self._partial = work
                elif prompts:
                    break
            if outlook is not None:
                outlook.enter(work.max_tokens - work.generated)
                expected += may  # in full until the next look
            budget -= tokens
            waiting.popleft()
            prompts.append((work, tokens))
            running[work.number] = work
            pool.held += blocks
            work.blocks = blocks
            work.todo = todo
            work.past = work.found
            if found is not None:
                self._hold(work, found)
            work.reserved_token_s -= now * (blocks * pool.block_tokens)
            if work.scheduled_s != work.scheduled_s:  # nan: for the first time
                work.scheduled_s = now
        self._budget = budget
        if len(running) > self.most_running:
            self.most_running = len(running)
        if server.max_waiting is not None:
            self._turn_away(server.max_waiting)
        queue = self._queue
        queue.rows.append(queue.pack(now, len(waiting)))
        return prompts

    def _turn_away(self, most: int) -> None:
        """Refuse the newest of those who wait beyond ``most``, but nobody who has been in the batch before.

        A client that sends again at once waits for the next look.
        """
        waiting = self._waiting
        excess = len(waiting) - most
        refused: list[Work] = []
        kept: list[Work] = []
        while len(refused) < excess and waiting:
            work = waiting.pop()
            (kept if work.scheduled_s == work.scheduled_s else refused).append(work)  # not nan: it has been
        waiting.extend(reversed(kept))
        for work in refused:
            self._refuse(work, QUEUE_FULL, self._sealed.pop(work.number)[1])

    def _complete(self, now: float) -> None:
        """Account for the run that ends now; end answers, turn computed prompts into decoding requests."""
        steps, iteration = self._steps, self.iterations
        done = self._done
        done.append(steps)
        if len(done) >= BLOCK:
            self.timeline.settle()
        if self._cache is not None:  # what grew in the run took the oldest blocks before anybody gives some back
            self._reclaim(self._cache, iteration + steps - 1, self._context + self._decoding * (steps - 1))
        self.iterations = iteration = iteration + steps
        if self._outlook is not None and self._decoding:
            self._outlook.pass_by(steps)
        self._context += self._decoding * steps
        self._steps = 0
        if self._given_up:
            self._drop(steps, now)
        ends = self._ends
        while ends and ends[0][0] <= iteration:
            _, entry, work = heappop(ends)
            if entry == work.entry:
                self._leave(work, now)
                if self._stay is not None and work.generated < min(self._sealed[work.number][0], work.max_tokens):
                    self._requeue(work, now)
                else:
                    self._respond(work, now)
                    if work.lease is not None:
                        self._let_go(work)
        for work, tokens in self._prompts:
            work.past += tokens * steps
            work.todo -= tokens * steps
            if not work.todo:
                self._produce(work, now)

    # ------------------------------------------------------------------ a request's life

    def _forget(self, work: Work, now: float) -> None:
        """Take a request that waits out of the queue."""
        waiting = self._waiting
        first = waiting[0] is work
        waiting.remove(work)
        queue = self._queue
        queue.rows.append(queue.pack(now, len(waiting)))
        if first and waiting and self._steps > 1:  # whether the next one fits is seen there
            self._end_run_at_next_boundary(now)

    def _drop(self, steps: int, now: float) -> None:
        """Take the requests that were given up in the run that ends now out of the batch."""
        for work in self._given_up:
            charged = work.reserved_token_s  # to the end of this run, as it was known then
            if work.entry < 0:
                work.todo -= sum(tokens for other, tokens in self._prompts if other is work) * steps
            self._oust(work, now)
            work.reserved_token_s = charged
        self._prompts = [(work, tokens) for work, tokens in self._prompts if work not in self._given_up]
        self._given_up.clear()

    def _oust(self, work: Work, now: float) -> None:
        """Take a request out of the batch before its answer is complete."""
        if work.entry < 0:  # some of its prompt is still to compute
            self._withdraw(work, now)
            if work is self._partial:
                self._partial = None
            if self._outlook is not None:
                self._outlook.withdraw(work.max_tokens - work.generated)
        else:
            self._leave(work, now)
            work.last_token_s = now
        self._let_go(work)

    def _needed(self, work: Work, budget: int) -> tuple[int, int, Found | None]:
        """Return the blocks that a waiting request would be charged, those it would take out of the free ones, and why.

        The second are blocks of its beginning that are in the cache and in nobody's use. ``budget`` are the tokens that
        the next iteration has left for its prompt.
        """
        size = self._pool.block_tokens
        found = None
        kept = loose = 0
        if work.segments is not None and self._cache is not None:
            self._reclaim(self._cache, self.iterations, self._context)
            # At least the last token is computed, else there is nothing to generate from.
            found = self._cache.probe(work.segments, work.prompt + work.generated - 1)
            kept, loose = found.tokens, found.loose
        if self._piecewise:
            piece = min(work.prompt + work.generated, kept + budget)
            blocks = self._need(piece, work.limit, 0, size)
        else:
            blocks = self._need(work.prompt, work.limit, work.generated, size)
        return blocks - kept // size, loose, found

    def _extend(self, work: Work, now: float) -> bool:
        """Charge the next piece of a prompt; return whether the pool had the blocks."""
        pool, size = self._pool, self._pool.block_tokens
        tokens = min(work.todo, self._most_tokens - self._decoding)
        whole = self._need(work.past + tokens, work.limit, 0, size)
        more = whole - work.found // size - work.blocks
        if self._lacks(more):
            return False
        pool.held += more
        work.blocks += more
        work.reserved_token_s -= now * (more * size)
        return True

    def _requeue(self, work: Work, now: float) -> None:
        """Put a request whose stay is over to the tail of the queue; its answer so far is recomputed."""
        work.last_token_s = now
        self._let_go(work)
        self._waiting.append(work)
        queue = self._queue
        queue.rows.append(queue.pack(now, len(self._waiting)))

    def _hold(self, work: Work, found: Found) -> None:
        """Take the found blocks of an admitted request into use."""
        cache = self._cache
        assert cache is not None
        before = cache.pinned
        work.lease = cache.hold(found)
        self._pool.held += cache.pinned - before
        if work.scheduled_s != work.scheduled_s:  # nan: for the first time
            work.cached = work.found

    def _share(self, work: Work, lease: Lease) -> None:
        """Offer the blocks of a computed prompt to others; they are charged to the cache's users from now on."""
        cache, pool = self._cache, self._pool
        assert cache is not None
        assert work.segments is not None
        before, shared = cache.pinned, lease.tokens
        cache.insert(work.segments, lease, work.prompt)
        pool.held += cache.pinned - before - (lease.tokens - shared) // pool.block_tokens

    def _let_go(self, work: Work) -> None:
        """Give back the shared blocks; a finished answer that its client appended to the prompt is kept with it."""
        lease, cache = work.lease, self._cache
        if lease is None:
            return
        assert cache is not None
        assert work.segments is not None
        before = cache.pinned
        stored = min(work.prompt + work.generated - 1, work.segments.tokens)  # the last token is not stored
        ended = work.finished_s == work.finished_s and not work.todo  # not nan, and its prompt was computed
        if ended and stored >= lease.tokens + cache.block:
            cache.insert(work.segments, lease, stored)
        cache.release(lease)
        self._pool.held += cache.pinned - before
        work.lease = None

    def _reclaim(self, cache: PrefixCache, iteration: int, context: int) -> None:
        """Evict what the requests of an iteration, with ``context`` tokens decoding in it, have taken.

        The oldest blocks go first, so when they go matters only to who looks for them and who gives others back.
        """
        pool, growth = self._pool, self._growth
        room = pool.blocks - pool.held - cache.held + cache.pinned
        if growth is not None:
            size = pool.block_tokens
            if context + self._decoding * (size - 1) <= room * size:  # enough even if every last block were empty
                return
            room -= growth.held(iteration, context)
        if room < 0:
            cache.evict(-room)

    def _lacks(self, blocks: int) -> bool:
        """Return whether the pool has fewer free blocks than these, after what the next iteration takes."""
        pool, growth = self._pool, self._growth
        free = pool.blocks - pool.held - blocks
        if growth is None:
            return free < 0
        size = pool.block_tokens
        if self._context + self._decoding * (size - 1) <= free * size:  # enough even if every last block were empty
            return False
        return growth.held(self.iterations, self._context) > free

    def _free_tokens(self) -> int:
        """Return the tokens of the blocks that nobody holds, after what the next iteration takes."""
        pool, growth = self._pool, self._growth
        held = pool.held if growth is None else pool.held + growth.held(self.iterations, self._context)
        return (pool.blocks - held) * pool.block_tokens

    def _produce(self, work: Work, now: float) -> None:
        """Let the computed prompt bring its token; the request decodes from the next iteration on."""
        if work is self._partial:
            self._partial = None
        if work.generated:
            stalls = self.timeline.stalls
            stalls.rows.append(stalls.pack(now, now - work.last_token_s))
        else:
            work.first_token_s = now
        if work.lease is not None:
            self._share(work, work.lease)
        if self._outlook is not None:
            self._outlook.withdraw(work.max_tokens - work.generated)
        work.generated += 1
        left = min(self._sealed[work.number][0], work.max_tokens) - work.generated
        if not left:
            self._withdraw(work, now)
            self._respond(work, now)
            self._let_go(work)
            return
        context = work.prompt + work.generated
        work.since = iteration = self.iterations
        work.entry = entry = next(self._entries)
        self._decoding += 1
        self._context += context
        if self._stay is not None and left >= self._stay:
            left = self._stay - 1
        heappush(self._ends, (iteration + left, entry, work))
        if self._outlook is not None:
            self._outlook.decode(work.number, work.max_tokens - work.generated, iteration)
        if self._growth is not None:
            self._growth.join(context, iteration)
            size = self._pool.block_tokens
            self._pool.held -= work.blocks + work.found // size  # from here on counted by its class, the shared too
            work.reserved_token_s += now * (work.blocks * size)
            work.decoded_s = now

    def _withdraw(self, work: Work, now: float) -> None:
        """Take a request that does not decode out of the batch."""
        pool = self._pool
        pool.held -= work.blocks
        if work.lease is not None:  # less what it offered to others since: that is charged with the cache
            pool.held += (work.lease.tokens - work.found) // pool.block_tokens
        work.reserved_token_s += now * (work.blocks * pool.block_tokens)
        del self._running[work.number]

    def _leave(self, work: Work, now: float) -> None:
        """Take a decoding request out of the batch."""
        iteration = self.iterations
        if self._growth is not None:
            work.reserved_token_s += self._grown(work, now, iteration)
        work.generated += iteration - work.since
        work.entry = -1
        if self._outlook is not None:
            self._outlook.leave(work.number, work.max_tokens - work.generated, iteration)
        context = work.prompt + work.generated
        self._decoding -= 1
        self._context -= context
        if self._growth is None:
            self._withdraw(work, now)
        else:
            self._growth.leave(context, iteration)
            if work.lease is not None:
                self._pool.held += work.lease.tokens // self._pool.block_tokens
            del self._running[work.number]

    def _grown(self, work: Work, now: float, iteration: int) -> float:
        """Return the token-seconds of a stay among the decoding requests that ends now, under a rule that grows."""
        made = iteration - work.since
        # Half a block less one token is the mean fill; the context grows evenly but for the steps' lengths.
        mean = work.prompt + work.generated + made - work.found - (made - self._pool.block_tokens + 2) / 2
        return mean * (now - work.decoded_s)

    def _respond(self, work: Work, now: float) -> None:
        work.finished_s = now
        true_tokens, answer = self._sealed.pop(work.number)
        truncated = true_tokens > work.max_tokens
        responses = self._cut if truncated else self._whole
        response = responses.get(work.generated)
        if response is None:
            finish = FinishReason.LENGTH if truncated else FinishReason.STOP
            response = responses[work.generated] = Response(finish, work.generated)
        work.response = response
        answer(work)

    def _refuse(self, work: Work, reason: str, answer: Answer) -> None:
        work.refusal = reason
        work.finished_s = self.clock.now
        work.response = Response(FinishReason.ERROR, error=REFUSALS[reason])
        answer(work)

    def _make_room(self, now: float) -> None:
        """Preempt the last in while the next iteration lacks blocks."""
        while self._lacks(0):
            self._preempt(self._choose(self._running, self.iterations), now)
        outlook = self._outlook
        if outlook is None:
            return
        while len(self._running) > 1 and self._free_tokens() < outlook.retract_tokens * len(self._running):
            self._preempt(self._choose(self._running, self.iterations), now)
        running = self._running.values()  # looked at one by one, but only when somebody has been preempted
        generated = sum(work.generated if work.todo else self._generated(work) for work in running)
        outlook.retract(generated, sum(work.max_tokens for work in running), len(running))

    def _generated(self, work: Work) -> int:
        """Return the tokens that a decoding request has generated."""
        return work.generated + self.iterations - work.since

    def _preempt(self, work: Work, now: float) -> None:
        """Put a request back into the queue; it is recomputed, its answer so far included."""
        self._oust(work, now)
        work.preemptions += 1
        self.preemptions += 1
        if self.server.rule.to_tail:
            self._waiting.append(work)
        else:
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
        steps = math.ceil(2 * spent / (linear + root)) or 1
        if steps > self._steps:
            steps = self._steps
        end = self._time_after(steps)
        while end < now:  # rounding of the root, here and below
            steps += 1
            end = self._time_after(steps)
        while steps > 1 and (before := self._time_after(steps - 1)) >= now:
            steps -= 1
            end = before
        if steps < self._steps:
            self._steps = steps
            self._boundary.set(end)
