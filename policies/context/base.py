"""What all context policies share: the memo of their fold, checked constants, the fit itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from policies.context.fitted import Fitted, Refused
from policies.context.fold import Fold
from policies.messages import History, Message, Text, tool_result, user
from policies.tokens import Estimator, estimator_named, estimator_names

F = TypeVar("F", bound=Fold)

ESTIMATORS: dict[str, Estimator] = {name: estimator_named(name) for name in estimator_names()}
"""Estimators that a study names; a program may pass any other object."""


class BadConstants(ValueError):
    """Constants of a context policy that lie out of range: all of them in one line."""


def cleared_with(note: str) -> Message:
    """Return what replaces a cleared result; its call's id is filled in where it is sent."""
    return tool_result("", Text(note))


def left_out_with(note: str) -> Message:
    """Return the user message that stands for messages left out."""
    return user(Text(note))


@dataclass(frozen=True, slots=True)
class ContextPolicy(Generic[F]):
    """Decides what part of a history is sent.

    A fit is a function of the history alone, the stored history is never changed, and a history that grew by a message
    costs the message.

    Attributes
    ----------
    estimator
        Counts tokens: the name of one of `ESTIMATORS`, or an estimator.
    """

    estimator: Estimator | str = "by-script"

    def __post_init__(self) -> None:
        faults = self.faults()
        if isinstance(self.estimator, str):
            if self.estimator in ESTIMATORS:
                object.__setattr__(self, "estimator", ESTIMATORS[self.estimator])
            else:
                faults = [*faults, f"estimator: no {self.estimator!r}, there are {', '.join(ESTIMATORS)}"]
        if faults:
            raise BadConstants("; ".join(faults))

    def faults(self) -> list[str]:
        """Return what is wrong with the constants, one entry each."""
        return []

    @property
    def counts(self) -> Estimator:
        """The estimator, whatever way it was named."""
        assert not isinstance(self.estimator, str)
        return self.estimator

    def fold(self) -> F:
        """Return a fold over no messages yet."""
        raise NotImplementedError

    def shape(self, fold: F, history: History) -> Fitted | Refused:
        """Return what to send, from a fold that knows the whole history."""
        raise NotImplementedError

    def fit(self, history: History) -> Fitted | Refused:
        """Return the messages to send, or a refusal with its reason.

        Raises
        ------
        policies.messages.HistoryError
            If a tool call of the history still lacks its result: no API would accept it.
        """
        if history.open:
            history.check_complete()
        log = history.log
        policy, fold = log.latest
        if policy is not self:
            fold = log.memo.get(self)
            if fold is None:
                fold = log.memo[self] = self.fold()
            log.latest = (self, fold)
        length = len(history)
        if len(fold.raw) <= length:
            fold.extend(log, length)
        return self.shape(fold, history)
