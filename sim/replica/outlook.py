"""SGLang's guess of what the running requests will still need: a share of what they may still generate.

Source: sglang 0.5.23, ``schedule_policy.py`` (admission), ``new_token_ratio_tracker.py`` (the share and its fall),
``schedule_batch.py`` (retraction). What a request may still generate counts up to a clip; the share falls by a fixed
amount with every decode step, to a floor, and starts anew when the server is idle or has had to retract somebody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True)
class Estimate:
    """The constants of the guess.

    Attributes
    ----------
    clip_tokens
        Most tokens that a request counts for: ``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``.
    first_share, least_share
        Share of them when the server is idle, and its floor: 0.7 and 0.14 of that.
    fall_steps
        Decode steps from the one to the other.
    retract_tokens
        Tokens a request that a retraction makes room for, and that the new share counts for each.
    """

    clip_tokens: int = 4096
    first_share: float = 0.7
    least_share: float = 0.7 * 0.14
    fall_steps: int = 600
    retract_tokens: int = 20


class Outlook:
    """The sum over requests of what they may still generate, clipped, without a look at any of them.

    A request that may still generate more than the clip counts for the clip, until the iteration in which it no longer
    may; from then on for one token less with every iteration. Prompts being computed stand still.

    Parameters
    ----------
    constants
        The constants of the guess.
    """

    __slots__ = (
        "_constants",
        "_decoded",
        "_falling",
        "_falling_sum",
        "_flat",
        "_flat_until",
        "_share",
        "_still",
        "_turns",
    )

    def __init__(self, constants: Estimate) -> None:
        self._constants = constants
        self._share = constants.first_share  # when `_decoded` was 0
        self._decoded = 0  # decode steps since
        self._still = 0
        self._flat = 0
        self._flat_until: list[tuple[int, int]] = []  # heap of (iteration in which a request begins to fall, number)
        self._turns: dict[int, int] = {}  # by number, for those in the heap that have not left
        self._falling = 0
        self._falling_sum = 0  # of the iterations in which their answers would be as long as they may get

    @property
    def retract_tokens(self) -> int:
        """Tokens that a retraction leaves free for each request that stays."""
        return self._constants.retract_tokens

    def count(self, left: int) -> int:
        """Return what a request counts for that may still generate ``left`` tokens."""
        return min(left, self._constants.clip_tokens)

    def enter(self, left: int) -> None:
        """Count in a request whose prompt is to be computed."""
        self._still += self.count(left)

    def withdraw(self, left: int) -> None:
        """Count out a request whose prompt was to be computed."""
        self._still -= self.count(left)

    def decode(self, number: int, left: int, iteration: int) -> None:
        """Let a request decode from ``iteration`` on, when it may generate ``left`` tokens more; it was counted out."""
        clip = self._constants.clip_tokens
        if left > clip:
            self._flat += 1
            self._turns[number] = turn = iteration + left - clip
            heappush(self._flat_until, (turn, number))
        else:
            self._falling += 1
            self._falling_sum += iteration + left

    def leave(self, number: int, left: int, iteration: int) -> None:
        """Count out a request that decodes, which may generate ``left`` tokens more at ``iteration``."""
        self._turn(iteration)
        if self._turns.pop(number, None) is not None:
            self._flat -= 1
        else:
            self._falling -= 1
            self._falling_sum -= iteration + left

    def _turn(self, iteration: int) -> None:
        while self._flat_until and self._flat_until[0][0] <= iteration:
            turn, number = heappop(self._flat_until)
            if self._turns.get(number) == turn:
                del self._turns[number]
                self._flat -= 1
                self._falling += 1
                self._falling_sum += turn + self._constants.clip_tokens

    @property
    def share(self) -> float:
        """The share now."""
        return self._share_after(0)

    def _share_after(self, steps: int) -> float:
        constants = self._constants
        fall = (constants.first_share - constants.least_share) / constants.fall_steps
        return max(constants.least_share, self._share - fall * (self._decoded + steps))

    def tokens(self, iteration: int) -> float:
        """Return what the running requests are expected to need beyond what they hold."""
        self._turn(iteration)
        clipped = self._still + self._flat * self._constants.clip_tokens
        return self.share * (clipped + self._falling_sum - self._falling * iteration)

    def pass_by(self, steps: int) -> None:
        """Let decode steps pass."""
        self._decoded += steps

    def rest(self) -> None:
        """Begin anew, since nothing runs."""
        self._share, self._decoded = self._constants.first_share, 0

    def retract(self, decoded: int, limits: int, requests: int) -> None:
        """Begin anew after a retraction, from what those who stay have generated of what they may.

        Parameters
        ----------
        decoded, limits, requests
            Tokens they have generated; the sum of their ``max_tokens``, not clipped; their number.
        """
        share = (decoded + self._constants.retract_tokens * requests) / (limits + 1)
        self._share, self._decoded = min(1.0, share), 0

    def earliest(self, lacking: float, taken: int, iteration: int) -> int:
        """Return a number of decode steps, at least 1, before whose end a request cannot be admitted.

        Parameters
        ----------
        lacking
            Tokens that are missing for it now, or a lower bound of them.
        taken
            Tokens that a step takes out of the pool.
        iteration
            The present iteration.
        """
        if lacking <= 0:
            return 1
        self._turn(iteration)
        clipped = self._still + self._flat * self._constants.clip_tokens
        tokens = clipped + self._falling_sum - self._falling * iteration
        constants = self._constants
        fall = (constants.first_share - constants.least_share) / constants.fall_steps
        floor = math.ceil((self._share - constants.least_share) / fall) - self._decoded
        if floor <= 0:
            fall, floor = 0.0, 1 << 60
        bound = min(floor, self._flat_until[0][0] - iteration if self._flat_until else 1 << 60)
        # After k steps it lacks lacking + taken k - (share tokens - (share - fall k) (tokens - falling k)), a parabola.
        gain = fall * tokens + self.share * self._falling - taken
        bend = fall * self._falling
        if bend == 0:
            steps = lacking / gain if gain > 0 else math.inf
        else:
            root = gain * gain - 4 * bend * lacking
            steps = (gain - math.sqrt(root)) / (2 * bend) if gain > 0 and root >= 0 else math.inf
        return max(1, math.floor(min(steps, bound)))
