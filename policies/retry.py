"""Sending a request again after a transient error: a small machine of its own; truncation is no error.

A truncated answer is a success that ended early, so the output policies know nothing of this loop and it nothing of
them. The one link is ``Send.retry``, which says what errors of a request may be met by sending it again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from policies.output.values import ErrorKind, Retries

REFUSED = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.SERVER})
"""Errors before the first byte: nothing was generated."""

BROKEN = frozenset({ErrorKind.CUT, ErrorKind.EMPTY})
"""Streams that began and came to nothing."""

MENDABLE: Mapping[Retries, frozenset[ErrorKind]] = MappingProxyType(
    {Retries.NONE: frozenset(), Retries.REFUSED: REFUSED, Retries.ALL: REFUSED | BROKEN}
)
"""What a request's ``Send.retry`` lets a retry mend: never what a server calls invalid or too long."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often one sort of error is retried, and how long to wait before.

    The n-th wait is ``min(longest_s, first_s * factor**(n - 1) + step_s * (n - 1))``, times a random factor of 1 +-
    ``jitter``.

    Attributes
    ----------
    retries
        How often the request is sent again.
    first_s, factor, step_s, longest_s
        The waits in seconds.
    jitter
        Largest relative deviation of a wait.
    """

    retries: int
    first_s: float
    factor: float = 1.0
    step_s: float = 0.0
    longest_s: float = float("inf")
    jitter: float = 0.0

    def wait(self, n: int, uniform: float) -> float:
        """Return the n-th wait in seconds, given a number drawn from [0, 1)."""
        even = min(self.longest_s, self.first_s * self.factor ** (n - 1) + self.step_s * (n - 1))
        return even * (1 + self.jitter * (2 * uniform - 1))


@dataclass(frozen=True, slots=True)
class Retry:
    """When requests are sent again.

    The defaults are the waits of the client that the documents describe (version 0.15.10) with fewer retries: it
    nests two loops and sends up to 28 requests, over a minute and a half, before anybody hears of an outage.

    Attributes
    ----------
    refused
        For 429 and 5xx.
    broken
        For streams that were cut off or empty.
    """

    refused: Backoff = Backoff(retries=6, first_s=1.5, factor=2.0, longest_s=30.0, jitter=0.3)
    broken: Backoff = Backoff(retries=2, first_s=2.0, step_s=2.0)

    def begin(self, allowed: Retries, seed: object = 0) -> Retrying:
        """Return the machine of one request; equal seeds (text, number or bytes) give equal waits."""
        return Retrying(self, MENDABLE[allowed], seed)


@dataclass(slots=True)
class Retrying:
    """The retries of one request. Each sort of error is counted apart.

    Attributes
    ----------
    retry
        Its constants.
    mendable
        The errors that may be met by sending again.
    seed
        What its jitter is drawn from.
    """

    retry: Retry
    mendable: frozenset[ErrorKind]
    seed: object
    _counts: dict[Backoff, int] = field(default_factory=dict)

    def after(self, error: ErrorKind, retry_after_s: float = 0.0) -> float | None:
        """Return how many seconds to wait before sending again, or None to give up.

        Parameters
        ----------
        error
            What the request came to.
        retry_after_s
            The least wait that the server asked for, in seconds.
        """
        if error not in self.mendable:
            return None
        backoff = self.retry.refused if error in REFUSED else self.retry.broken
        n = self._counts.get(backoff, 0) + 1
        if n > backoff.retries:
            return None
        self._counts[backoff] = n
        draw = random.Random(f"{self.seed}/{error.value}/{n}").random()  # noqa: S311 - jitter, not cryptography
        return max(retry_after_s, backoff.wait(n, draw))
