"""A conversation in true tokens: the prompts that a context policy makes of it, as prefix caches see them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from itertools import accumulate

from policies.context import Fitted, Shape
from sim.replica.prefix_cache import Prompt


class Transcript:
    """One conversation and the prompt that was last sent of it.

    A request that only adds messages continues the prompt before it. A policy that changes what is sent makes a new
    one: what the two share is the same segments, and building it costs the results cleared anew, and slices and sums of
    what is sent.

    Parameters
    ----------
    name
        Tells its messages from those of other conversations in a shared cache.

    Attributes
    ----------
    shape
        How the prompt differs from the conversation.
    prompt
        What was last sent, and where `go_on` was called, what was generated.
    """

    __slots__ = ("_built", "_ids", "_name", "_pending", "_places", "_tokens", "prompt", "shape")

    def __init__(self, name: Hashable) -> None:
        self.shape = Shape()
        self.prompt = Prompt()
        self._name = name
        self._ids: list[Hashable] = []  # segments of all messages with results cleared, nothing left out
        self._tokens: list[int] = []  # of each segment
        self._places = [0]  # segments before each message and behind the last: an empty message has none
        self._built = 0  # segments that the prompt stands for
        self._pending = 0  # tokens of the others

    def __len__(self) -> int:
        return len(self._places) - 1

    def say(self, tokens: int, segment: Hashable = None) -> None:
        """Add a message; ``segment`` names it where other conversations begin with the same one."""
        ids, places = self._ids, self._places
        if tokens:
            ids.append((self._name, len(places)) if segment is None else segment)
            self._tokens.append(tokens)
            self._pending += tokens
        places.append(len(ids))

    @property
    def unchanged(self) -> int:
        """Tokens of the prompt with all messages, if its shape stayed as it is."""
        return self.prompt.tokens + self._pending

    def go_on(self) -> None:
        """Add the messages that the prompt does not have yet at its end."""
        built, ends, end = self._built, self.prompt.ends, self.prompt.tokens
        self.prompt.ids += self._ids[built:]
        for tokens in self._tokens[built:]:
            end += tokens
            ends.append(end)
        self._built, self._pending = len(self._ids), 0

    def leave(self) -> None:
        """Go on with a copy of the prompt: what is generated now is not what will be sent."""
        self.prompt = self.prompt.copy()

    def change(self, fitted: Fitted, note: int) -> int:
        """Make a prompt of another shape; return the tokens sent before that are new to any cache behind the change.

        Parameters
        ----------
        fitted
            What the policy sends.
        note
            Tokens of what stands for a cleared result.
        """
        old, new, places, sent = self.shape, fitted.shape, self._places, self._built
        same = sent  # segments that both prompts stand for in the same way
        if new.cleared > old.cleared:  # what was cleared stays cleared
            changed = bisect_left(fitted.clearable, new.start, old.cleared, new.cleared)  # the first that is sent
            if changed < new.cleared:
                same = min(same, places[fitted.clearable[changed]])
            for at in fitted.clearable[old.cleared : new.cleared]:  # a result that can be cleared is not empty
                self._ids[places[at]] = (self._name, ~at)
                self._tokens[places[at]] = note
        if new.start != old.start:
            same = min(same, places[new.head or old.head])
        ids, tokens = self._ids, self._tokens
        head = start = len(ids)
        if new.start:
            head, start = places[new.head], places[new.start]
            ids = [*ids[:head], (self._name, "left out", new.start), *ids[start:]]
            tokens = [*tokens[:head], new.lead, *tokens[start:]]
        else:
            ids = ids.copy()
        self.prompt = prompt = Prompt.of(ids, list(accumulate(tokens)))
        self.shape, self._built, self._pending = new, len(self._ids), 0

        def upto(segments: int) -> int:
            return prompt.upto(segments if segments <= head else head + 1 + max(segments - start, 0))

        return upto(sent) - upto(same)
