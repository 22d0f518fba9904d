"""Where the calls of a study come from: a recorded trace, or streams of synthetic calls.

A source has ``blocks(seed, replication)``, which yields traces in order of arrival, and ``users(seed, replication)``,
what each user of a closed loop calls one after the other. They depend on nothing else, so all arms of a study meet the
same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from scipy import special

from workloads import substreams
from workloads.arrivals import BLOCK, Arrivals, Closed
from workloads.checks import require
from workloads.durations import Duration
from workloads.errors import BadInput, Fault
from workloads.lengths import Length
from workloads.scripts import RATIO_SCATTER, ScriptMix, content_ratios
from workloads.trace import MAX_TOKENS, Floats, Ints, Labels, Trace

USER_BLOCK = 32  # calls of a user drawn at once; a constant, because it is part of the address of every random number
_COLUMNS = (
    "think",
    "prompt",
    "output",
    "script",
    "content",
    "patience",
    "timeout",
)  # of a user's block of uniforms, in this order
TINY = 2.0**-60  # below every uniform above 0, so that its normal score is finite


class Source(Protocol):
    """Anything that yields calls in order of arrival."""

    def blocks(self, seed: int, replication: int) -> Iterator[Trace]:
        """Yield the calls of one replication in order of arrival: the same for the same arguments, whoever asks."""
        ...

    def users(self, seed: int, replication: int) -> Sequence[Iterator[Trace]]:
        """Return, for each user of a closed loop, all calls in order, each after ``think_s`` seconds of thinking.

        There is no end to them, and ``arrival_s`` says nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Replay:
    """A recorded trace, played once.

    Attributes
    ----------
    trace
        The calls; times count from the first arrival.
    time_scale
        Factor on the arrival times: 0.5 doubles the rate.
    resample
        Play a block bootstrap of the trace (`Trace.resample`) drawn by the replication, instead of the trace itself.
    """

    trace: Trace
    time_scale: float = 1.0
    resample: bool = False

    def __post_init__(self) -> None:
        require(("time_scale", self.time_scale, 0 < self.time_scale < np.inf, "a finite number above 0"))

    def blocks(self, seed: int, replication: int) -> Iterator[Trace]:
        """Yield the trace as one block."""
        trace = self.trace
        if self.resample:
            trace = trace.resample(substreams.generator(seed, "replay", replication))
        yield trace.scaled(self.time_scale)

    def users(self, seed: int, replication: int) -> Sequence[Iterator[Trace]]:
        """Return nobody: recorded calls come when they were recorded."""
        return ()


@dataclass(frozen=True, slots=True)
class Stream:
    """Synthetic calls of one kind.

    Attributes
    ----------
    name
        Address of its random numbers, unique in a study.
    arrivals
        A process of `workloads.arrivals`, or the users of a closed loop.
    prompt, output
        Laws of `workloads.lengths`; the output is the true length.
    scripts
        Shares of calls by script.
    kind
        Kind of call, the stream's name when empty.
    correlation
        Of the normal scores of prompt and output of a call (a Gaussian copula), from -1 to 1.
    tokenizer
        Empty: lengths are as the laws say in every script. Else one of `workloads.scripts.TOKENIZERS`: the laws are
        those of English, and a call in another script takes as many times the tokens as the same content does
        (`RATIOS`), give or take `RATIO_SCATTER`.
    patience, timeout
        Laws of the seconds after which a client gives its call up if the first token, or the end of the answer, is not
        there. When left out: never.
    """

    name: str
    arrivals: Arrivals | Closed
    prompt: Length
    output: Length
    scripts: Mapping[str, float] = field(default_factory=lambda: {"latin": 1.0})
    kind: str = ""
    correlation: float = 0.0
    tokenizer: str = ""
    patience: Duration | None = None
    timeout: Duration | None = None

    def __post_init__(self) -> None:
        require(
            ("name", self.name, bool(self.name), "a name"),
            ("correlation", self.correlation, -1 <= self.correlation <= 1, "from -1 to 1"),
        )
        ScriptMix(self.scripts)
        if self.tokenizer:
            content_ratios((), self.tokenizer)

    def blocks(self, seed: int, replication: int) -> Iterator[Trace]:
        """Yield the stream's calls; each column has its own substream. Of a closed loop there are none."""
        if isinstance(self.arrivals, Closed):
            return
        address = ("stream", self.name, replication)
        times = self.arrivals.times(lambda k: substreams.generator(seed, *address, "arrivals", block=k))
        for block, arrival in enumerate(_rechunked(times)):

            def uniforms(column: str, block: int = block, n: int = len(arrival)) -> Floats:
                return substreams.generator(seed, *address, column, block=block).random(BLOCK)[:n]

            yield self._calls(arrival, uniforms)

    def users(self, seed: int, replication: int) -> Sequence[Iterator[Trace]]:
        """Return the users of a closed loop; what one calls depends on nothing but its number."""
        loop = self.arrivals
        return (
            [self._user(loop, seed, replication, k) for k in range(loop.concurrency)]
            if isinstance(loop, Closed)
            else ()
        )

    def _user(self, loop: Closed, seed: int, replication: int, number: int) -> Iterator[Trace]:
        address = ("stream", self.name, replication, "user", number)
        block = 0
        while True:
            # one generator for all columns: users are many, and most make few calls
            levels = substreams.generator(seed, *address, block=block).random((len(_COLUMNS), USER_BLOCK))
            uniforms = dict(zip(_COLUMNS, levels, strict=True))
            think = np.zeros(USER_BLOCK) if loop.think is None else loop.think.quantile(uniforms["think"])
            yield self._calls(np.zeros(USER_BLOCK), uniforms.__getitem__, think)
            block += 1

    def _calls(self, arrival: Floats, uniforms: Callable[[str], Floats], think: Floats | None = None) -> Trace:
        """Return the calls at these times or after this thinking, ``uniforms`` giving the levels of a column."""
        n = len(arrival)
        mix = ScriptMix(self.scripts)
        prompt, output, scripts = uniforms("prompt"), uniforms("output"), mix.codes(uniforms("script"))
        prompts = self.prompt.quantile(prompt)
        outputs = self.output.quantile(_tied(prompt, output, self.correlation))
        if self.tokenizer:
            factors = content_ratios(mix.names, self.tokenizer)[scripts]
            noise = special.ndtri(np.maximum(uniforms("content"), TINY))
            factors = np.where(factors == 1.0, 1.0, factors * np.exp(RATIO_SCATTER * noise))
            prompts, outputs = (_scaled(counts, factors) for counts in (prompts, outputs))
        return Trace(
            arrival_s=arrival,
            prompt_tokens=prompts,
            output_tokens=outputs,
            kind=Labels.constant(self.kind or self.name, n),
            script=Labels(scripts, mix.names),
            think_s=think,
            patience_s=None if self.patience is None else self.patience.quantile(uniforms("patience")),
            timeout_s=None if self.timeout is None else self.timeout.quantile(uniforms("timeout")),
        )


@dataclass(frozen=True, slots=True)
class Mixture:
    """Several streams together; adding one leaves the calls of the others as they were."""

    streams: Sequence[Stream]

    def __post_init__(self) -> None:
        names = [stream.name for stream in self.streams]
        if not names:
            raise BadInput(Fault("must hold at least one stream", key="streams"))
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BadInput(*(Fault(f"two streams are named {name!r}", key="streams") for name in twice))

    def blocks(self, seed: int, replication: int) -> Iterator[Trace]:
        """Yield the calls of all open streams merged by arrival; at equal times in the order of the streams."""
        if len(self.streams) == 1:
            yield from self.streams[0].blocks(seed, replication)
            return
        limits = [name for name in ("patience", "timeout") if any(getattr(stream, name) for stream in self.streams)]
        coming = [stream.blocks(seed, replication) for stream in self.streams]
        if limits:
            coming = [_limited(blocks, limits) for blocks in coming]
        held = [next(blocks, Trace.empty()) for blocks in coming]
        open_ = [len(part) > 0 for part in held]
        while any(open_):
            # all that is earlier than the last known call of every open stream can no longer be overtaken
            horizon = min(part.arrival_s[-1] for part, more in zip(held, open_, strict=True) if more)
            cuts = [int(np.searchsorted(part.arrival_s, horizon)) for part in held]
            if any(cuts):
                yield Trace.merge([part[:cut] for part, cut in zip(held, cuts, strict=True) if cut])
            held = [part[cut:] for part, cut in zip(held, cuts, strict=True)]
            for i, part in enumerate(held):
                if open_[i] and part.arrival_s[-1] <= horizon:
                    more = next(coming[i], None)
                    open_[i] = more is not None
                    held[i] = part if more is None else Trace.concat([part, more])
        if any(map(len, held)):
            yield Trace.merge([part for part in held if len(part)])

    def users(self, seed: int, replication: int) -> Sequence[Iterator[Trace]]:
        """Return the users of all closed loops."""
        return [user for stream in self.streams for user in stream.users(seed, replication)]


def until(blocks: Iterator[Trace], horizon_s: float | None) -> Trace:
    """Return the calls that arrive up to a time, all of a finite source if it is None."""
    taken = []
    for block in blocks:
        cut = len(block) if horizon_s is None else int(np.searchsorted(block.arrival_s, horizon_s, side="right"))
        if cut:
            taken.append(block[:cut])
        if cut < len(block):
            break
    return Trace.concat(taken)


def _limited(blocks: Iterator[Trace], limits: Sequence[str]) -> Iterator[Trace]:
    """Yield the calls with these limits, which never come for the calls that have none."""
    for block in blocks:
        never = np.full(len(block), np.nan)
        yield replace(
            block,
            patience_s=never if "patience" in limits and block.patience_s is None else block.patience_s,
            timeout_s=never if "timeout" in limits and block.timeout_s is None else block.timeout_s,
        )


def _rechunked(chunks: Iterator[Floats]) -> Iterator[Floats]:
    """Yield the same numbers in chunks of `BLOCK`, the last one shorter."""
    rest = np.empty(0)
    for chunk in chunks:
        rest = np.concatenate((rest, chunk)) if len(rest) else chunk
        while len(rest) >= BLOCK:
            yield rest[:BLOCK]
            rest = rest[BLOCK:]
    if len(rest):
        yield rest


def _scaled(counts: Ints, factors: Floats) -> Ints:
    return np.asarray(np.minimum(np.ceil(counts * factors), MAX_TOKENS).astype(np.int64))


def _tied(prompt: Floats, output: Floats, correlation: float) -> Floats:
    """Return levels whose normal scores have this correlation to those of ``prompt``."""
    if correlation == 0.0:
        return output
    scores = correlation * special.ndtri(prompt) + np.sqrt(1.0 - correlation**2) * special.ndtri(output)
    return np.asarray(np.minimum(special.ndtr(scores), np.nextafter(1.0, 0.0)))
