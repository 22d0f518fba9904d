"""A list of requests sent to the simulated server: at given times, or at a constant concurrency."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from sim.clock import Clock, Moment
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replica.timeline import Series
from sim.replica.work import Work

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """When requests passed through a server, seconds from the first one's arrival; one element a request.

    Attributes
    ----------
    prompt_tokens, output_tokens
        Tokens sent and received.
    queued_s, scheduled_s, first_token_s, last_token_s
        When.
    """

    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    queued_s: Floats
    scheduled_s: Floats
    first_token_s: Floats
    last_token_s: Floats

    def head(self, requests: int) -> Passage:
        """Return the first requests."""
        return Passage(*(getattr(self, column)[:requests] for column in self.__slots__))

    def metrics(self) -> dict[str, float]:
        """Return makespan, throughput, TTFT, TPOT (of answers longer than a token), E2E and running requests.

        TTFT and E2E count from ``queued_s``; a request runs from ``scheduled_s`` to its last token.
        """
        makespan = float(self.last_token_s.max() - self.queued_s.min())
        long = self.output_tokens > 1
        latencies = {
            "ttft_s": self.first_token_s - self.queued_s,
            "tpot_s": (self.last_token_s - self.first_token_s)[long] / (self.output_tokens[long] - 1),
            "e2e_s": self.last_token_s - self.queued_s,
        }
        metrics = {"makespan_s": makespan, "output_tokens_per_s": float(self.output_tokens.sum()) / makespan}
        for name, values in latencies.items():
            if values.size:
                metrics[f"{name}.mean"] = float(values.mean())
                metrics[f"{name}.p50"], metrics[f"{name}.p99"] = map(float, np.quantile(values, (0.5, 0.99)))
        metrics["running.mean"] = float((self.last_token_s - self.scheduled_s).sum()) / makespan
        return metrics


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What is sent, in order; one element a request.

    Attributes
    ----------
    prompt_tokens, max_tokens, output_tokens
        Tokens sent, allowed, and what the model would write.
    """

    prompt_tokens: Ints
    max_tokens: Ints
    output_tokens: Ints

    def rows(self) -> list[tuple[int, int, int]]:
        """Return prompt, ``max_tokens`` and output of each request."""
        columns = (self.prompt_tokens.tolist(), self.max_tokens.tolist(), self.output_tokens.tolist())
        return list(zip(*columns, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a load test measured.

    Attributes
    ----------
    passage
        When the requests passed, in the order they were sent; those refused are left out.
    series
        What happened over time.
    preemptions, refused
        Times a request lost its place; requests refused.
    """

    passage: Passage
    series: Series
    preemptions: int
    refused: int


def open_loop(server: Server, load: Load, times_s: Floats) -> Outcome:
    """Send each request at its time, seconds from 0 and rising."""
    clock = Clock()
    replica = Replica(clock, server)
    done: list[Work] = []

    def arrivals() -> Generator[simpy.Event, None, None]:
        for time, (prompt, allowed, output) in zip(times_s.tolist(), load.rows(), strict=True):
            yield Moment(clock, time)
            replica.submit(prompt, allowed, output, done.append)

    clock.process(arrivals())
    clock.run()
    return _outcome(replica, done)


def closed_loop(server: Server, load: Load, concurrency: int) -> Outcome:
    """Keep `concurrency` requests in flight: whoever gets an answer sends the next one at once."""
    clock = Clock()
    replica = Replica(clock, server)
    done: list[Work] = []
    rest = iter(load.rows())

    def send() -> None:
        request = next(rest, None)
        if request is not None:
            prompt, allowed, output = request
            replica.submit(prompt, allowed, output, answered)

    def answered(work: Work) -> None:
        done.append(work)
        send()

    for _ in range(concurrency):
        send()
    clock.run()
    return _outcome(replica, done)


def _outcome(replica: Replica, done: list[Work]) -> Outcome:
    served = sorted((work for work in done if not work.refusal), key=lambda work: work.number)
    stamps = [[work.submitted_s, work.scheduled_s, work.first_token_s, work.finished_s] for work in served]
    tokens = [[work.prompt, work.generated] for work in served]
    columns = [*np.array(tokens, dtype=np.int64).reshape(-1, 2).T, *np.array(stamps).reshape(-1, 4).T]
    return Outcome(Passage(*columns), replica.close(), replica.preemptions, len(done) - len(served))
