"""Prefix caches of hosted APIs: what a request finds there, and what it costs in units of an uncached input token.

Minimums, steps, lives and price factors are those of the providers' documentation as of 2026-11 (Anthropic prompt
caching; OpenAI prompt caching before and from GPT-5.6; Gemini implicit caching; Alibaba Model Studio explicit and
implicit; DeepSeek context caching, its V4 read price from a secondary source).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from sim.replica.prefix_cache import PrefixCache, Prompt


class Bill(NamedTuple):
    """One request's input.

    Attributes
    ----------
    read, written, plain
        Tokens found in the cache, newly written to it, and neither.
    cost
        All of them in units of an uncached input token.
    """

    read: int
    written: int
    plain: int
    cost: float


@dataclass(frozen=True, slots=True)
class HostedCache:
    """A provider's prefix cache.

    Attributes
    ----------
    name
        Whose.
    minimum
        Shortest prefix, tokens, that is cached at all.
    step
        Prefixes are found in steps of so many tokens beyond the minimum.
    life_s
        Seconds after the last use at which an entry is gone.
    write, read
        Price of a token written and read, in units of an uncached input token.
    lookback
        Where prefixes are found only at marks: how many segments (messages) before the end of the request a mark may
        lie. The system prompt has a mark of its own. None: no marks, any prefix is found.
    """

    name: str
    minimum: int
    step: int
    life_s: float
    write: float
    read: float
    lookback: int | None = None

    def found(self, shared: int, prompt: Prompt) -> int:
        """Return the tokens read from the cache when so many leading tokens are there.

        Parameters
        ----------
        shared
            Longest prefix, in tokens, that this request shares with one sent within the life.
        prompt
            The request.
        """
        if self.lookback is not None:
            # A mark is written at the end of every request and of the system prompt. Here every segment's end counts
            # as one: at most one round more than the real marks are found.
            place = bisect_right(prompt.ends, shared) - 1
            if place < len(prompt.ends) - 1 - self.lookback:
                place = min(place, 0)
            shared = prompt.ends[place] if place >= 0 else 0
        if shared < self.minimum:
            return 0
        return self.minimum + (shared - self.minimum) // self.step * self.step


HOSTED_CACHES: Mapping[str, HostedCache] = MappingProxyType(
    {
        cache.name: cache
        for cache in (
            HostedCache("anthropic-5min", 1024, 1, 300.0, 1.25, 0.1, lookback=20),
            HostedCache("anthropic-1h", 1024, 1, 3600.0, 2.0, 0.1, lookback=20),
            HostedCache("openai", 1024, 128, 600.0, 1.0, 0.1),
            HostedCache("openai-half", 1024, 128, 600.0, 1.0, 0.5),
            HostedCache("openai-5.6", 1024, 128, 1800.0, 1.25, 0.1),
            HostedCache("gemini-implicit", 4096, 1, 600.0, 1.0, 0.1),
            HostedCache("model-studio-explicit", 1024, 1, 300.0, 1.25, 0.1, lookback=20),
            HostedCache("model-studio-implicit", 256, 1, 300.0, 1.0, 0.2),
            HostedCache("deepseek", 64, 64, math.inf, 1.0, 0.02),
            HostedCache("none", 1, 1, 0.0, 1.0, 1.0),
        )
    }
)
"""By name. Where a provider does not state a life (Gemini and Model Studio implicit) it is set to 5 or 10 minutes."""


@dataclass(slots=True)
class Account:
    """What requests cost at one provider, one after the other."""

    cache: HostedCache
    read: int = 0
    sent: int = 0
    cost: float = 0.0
    _kept: PrefixCache = field(init=False)

    def __post_init__(self) -> None:
        self._kept = PrefixCache(1, None, self.cache.life_s)

    def charge(self, prompt: Prompt, now_s: float) -> Bill:
        """Send a prompt; return its bill and add it up."""
        cache, tokens = self.cache, prompt.tokens
        shared = min(self._kept.use(prompt, now_s), max(tokens - 1, 0))
        read = cache.found(shared, prompt)
        new = tokens - read
        written = new if tokens >= cache.minimum else 0
        plain = new - written
        cost = cache.read * read + cache.write * written + plain
        self.read += read
        self.sent += tokens
        self.cost += cost
        return Bill(read, written, plain, cost)
