"""A server simulated the naive way: one iteration at a time, every request looked at, no SimPy, no sums kept.

It shares the admission rule's formula and the step-time model's first value with the replica, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from sim.replica.server import Server
from tests.sim.blocks import BlockPool, block_names


@dataclass(eq=False)
class Job:
    prompt: int
    max_tokens: int
    true: int
    submitted: float = 0.0
    scheduled: float | None = None
    first: float | None = None
    finished: float | None = None
    made: int = 0
    todo: int = 0
    past: int = 0
    blocks: int = 0
    stayed: int = 0
    preemptions: int = 0
    refusal: str = ""
    leaves: float = math.inf  # when its client gives up
    last: float = 0.0
    attempt: int = 0
    entered: tuple[int, int] = (0, 0)
    text: list | None = None  # the prompt's tokens, by name
    said: list = field(default_factory=list)  # the answer's, where its client keeps it
    kept: list = field(default_factory=list)  # names of the shared blocks it uses
    cached: int = 0

    @property
    def decoding(self) -> bool:
        return self.todo == 0


@dataclass
class Outcome:
    finished: list[Job] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    running: float = 0.0
    waiting: float = 0.0
    reserved: float = 0.0
    used: float = 0.0
    end: float = 0.0
    iterations: int = 0


# ruff: noqa: B023 - what is defined in the loop is used in the same turn of it


def serve(
    server: Server, arrivals: list[tuple[float, Job]], resend: Callable[[Job], Job | None] = lambda job: None
) -> Outcome:
    rule, size = server.rule, server.block_tokens
    pool = server.kv_tokens // size
    out, waiting, running, now = Outcome(), [], [], 0.0
    todo = sorted(arrivals, key=lambda pair: pair[0])

    def answer(job: Job, at: float) -> None:
        job.finished = at
        out.finished.append(job)
        follow = resend(job)
        if follow is not None:
            submit(follow, at)

    def limit(job: Job) -> int:
        return rule.told(job.true, job.max_tokens) if rule.knows else job.max_tokens

    piecewise = rule.piecewise and server.chunked_prefill

    def submit(job: Job, at: float) -> None:
        job.submitted = at
        if job.prompt + job.max_tokens > server.window:
            job.refusal = "beyond the window"
        elif rule.need(job.prompt, limit(job), limit(job) - 1, size) > pool:
            job.refusal = "beyond the pool"
        if job.refusal:
            answer(job, at)
        else:
            waiting.append(job)

    cache = BlockPool(size)

    def held() -> int:
        return sum(job.blocks for job in running) + len(cache.count) - len(cache.free)

    def reclaim() -> None:
        cache.evict(max(0, held() + len(cache.free) - pool))

    def let_go(job: Job, ended: bool) -> None:
        if server.prefix_cache and job.text is not None:
            if ended:
                cache.insert((job.text + job.said)[: job.prompt + job.made - 1], job.kept)
            cache.release(job.kept)
            job.kept = []

    guess = getattr(rule, "estimate", None)
    share, decoded = guess.first_share if guess else 0.0, 0

    def still_to_come(job: Job) -> int:
        return min(job.max_tokens - job.made, guess.clip_tokens)

    choose = {
        "last": lambda: running[-1],
        "least-computed": lambda: min(
            running[::-1], key=lambda job: job.prompt + job.made if job.decoding else job.past
        ),
        "shortest-answer": lambda: min(running[::-1], key=lambda job: (job.made, -job.prompt)),
    }[server.victim or rule.victim]

    def preempt(job: Job) -> None:
        running.remove(job)
        job.blocks, job.todo = 0, 0
        job.preemptions += 1
        let_go(job, ended=False)
        waiting.insert(len(waiting) if rule.to_tail else 0, job)

    def give_up(job: Job, at: float) -> None:
        job.finished, job.refusal = at, "given up"
        out.finished.append(job)

    def drop(job: Job) -> None:
        running.remove(job)
        if job.todo:
            cache.release(job.kept)
            job.kept = []
        else:
            let_go(job, ended=True)

    while todo or waiting or running:
        if not waiting and not running and todo[0][0] > now:
            now = todo[0][0]
            share, decoded = guess.first_share if guess else 0.0, 0
        while todo and todo[0][0] <= now:
            at, job = todo.pop(0)
            submit(job, at)
        for job in [job for job in waiting + running if job.leaves <= now]:
            give_up(job, now)
            if job in running:
                drop(job)
            else:
                waiting.remove(job)
        short = False
        while rule.grows:
            growing = [
                job
                for job in running
                if job.decoding and -(-(job.prompt + job.made) // size) > job.blocks + len(job.kept)
            ]
            if len(growing) <= pool - held():
                for job in growing:
                    job.blocks += 1
                break
            short = True
            preempt(choose())
        if short and guess:
            while len(running) > 1 and (pool - held()) * size < guess.retract_tokens * len(running):
                preempt(choose())
            made, most = sum(job.made for job in running), sum(job.max_tokens for job in running)
            share, decoded = min(1.0, (made + guess.retract_tokens * len(running)) / (most + 1)), 0
        if piecewise and running and not running[-1].decoding:
            job = running[-1]
            piece = min(job.todo, server.max_num_batched_tokens - sum(other.decoding for other in running))
            more = rule.need(job.past + piece, limit(job), 0, size) - len(job.kept) - job.blocks
            if more <= pool - held():
                job.blocks += more
            else:
                short = True
                preempt(job)
        reclaim()
        budget = server.max_num_batched_tokens - sum(job.decoding for job in running)
        pieces = []
        for job in running:
            if not job.decoding:
                pieces.append((job, min(job.todo, budget)))
                budget -= pieces[-1][1]
        short = short or (rule.closed and bool(running))
        if guess:
            fall = (guess.first_share - guess.least_share) / guess.fall_steps
            now_share = max(guess.least_share, share - fall * decoded)
            expected = now_share * sum(map(still_to_come, running))
        while waiting and not short and budget > 0 and len(running) < server.max_num_seqs:
            job = waiting[0]
            found = loose = 0
            if server.prefix_cache and job.text is not None:
                for name in block_names(job.text[: job.prompt + job.made - 1], size):
                    if name not in cache.count:
                        break
                    found += size
                    loose += not cache.count[name]
            need = rule.need(job.prompt, limit(job), job.made, size)
            if piecewise:
                need = rule.need(min(job.prompt + job.made, found + budget), limit(job), 0, size)
            if need - found // size + loose + (rule.spare(pool) if running else 0) > pool - held():
                break
            if guess:
                free = (pool - held() - (need - found // size + loose + 1)) * size - still_to_come(job) - expected
                if running and free <= 0:
                    break
                expected += still_to_come(job)
            whole = job.prompt + job.made - found
            if whole > budget and not server.chunked_prefill and pieces:
                break
            waiting.pop(0)
            job.todo, job.past, job.blocks = whole, found, need - found // size
            if job.scheduled is None:
                job.scheduled, job.cached = now, found
            running.append(job)
            if found:
                job.kept = cache.acquire(job.text, found)
            reclaim()
            pieces.append((job, min(whole, budget) if server.chunked_prefill else whole))
            budget -= pieces[-1][1]
        refused = []
        if server.max_waiting is not None:
            fresh = [job for job in waiting if job.scheduled is None]
            excess = len(waiting) - server.max_waiting
            refused = fresh[::-1][: max(0, excess)]
            waiting = [job for job in waiting if all(job is not other for other in refused)]
        for job in refused:
            job.refusal = "queue is full"
            answer(job, now)
        if not running:
            continue
        decoding = [job for job in running if job.decoding]
        decoded += bool(decoding)
        chunks = [(tokens, job.past) for job, tokens in pieces]
        context = sum(job.prompt + job.made for job in decoding)
        cost = server.step_time.segment(len(decoding), context, chunks)[0]
        end = now + cost
        out.iterations += 1
        out.running += len(running) * cost
        out.reserved += held() * size * cost
        out.used += (context + sum(tokens + past for tokens, past in chunks)) * cost
        out.waiting += len(waiting) * cost
        while todo and todo[0][0] < end:
            at, job = todo.pop(0)
            submit(job, at)
            out.waiting += 0 if job.refusal else end - at
        leaving = sorted((job for job in waiting + running if job.leaves < end), key=lambda job: job.leaves)
        for job in leaving:
            give_up(job, job.leaves)
            if job in waiting:
                waiting.remove(job)
                out.waiting -= end - job.leaves
        now = end

        def finish(job: Job) -> None:
            running.remove(job)
            answer(job, now)
            let_go(job, ended=True)

        for job in leaving:
            if job in running:
                if job.decoding:
                    out.gaps.append(now - job.last)  # its last token is made, for nobody
                job.todo -= sum(tokens for other, tokens in pieces if other is job)
                drop(job)
        decoding = [job for job in decoding if job in running]
        pieces = [(job, tokens) for job, tokens in pieces if job in running]
        for job in sorted(decoding, key=lambda job: job.entered):
            job.made += 1
            out.gaps.append(now - job.last)
            job.last = now
            job.stayed += 1
            if job.made == min(job.true, job.max_tokens):
                finish(job)
            elif job.stayed == rule.stay:
                running.remove(job)
                let_go(job, ended=False)
                waiting.append(job)
        for place, (job, tokens) in enumerate(pieces):
            job.past += tokens
            job.todo -= tokens
            if job.todo == 0:
                if server.prefix_cache and job.text is not None:
                    before = len(job.kept)
                    cache.insert(job.text[: job.prompt], job.kept)
                    job.blocks -= len(job.kept) - before
                if job.made:
                    out.gaps.append(now - job.last)
                else:
                    job.first = now
                job.made += 1
                job.stayed = 1
                job.last = now
                job.entered = out.iterations, place
                if job.made == min(job.true, job.max_tokens):
                    finish(job)
    out.end = now
    return out
