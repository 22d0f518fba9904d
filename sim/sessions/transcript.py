"""A conversation in true tokens: the prompts that a context policy makes of it, as prefix caches see them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

from policies.context import Fitted, Shape
from sim.replica.prefix_cache import Prompt


class Transcript:
    """One conversation and the prompt that was last sent of it.

    A request that only adds messages continues the prompt before it. A policy that changes what is sent makes a new
    one: what the two share is the same segments, and building it costs slices and the results cleared anew, whatever
    was cleared before.

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

    __slots__ = ("_built", "_cleared", "_name", "_places", "_whole", "prompt", "shape")

    def __init__(self, name: Hashable) -> None:
        self.shape = Shape()
        self.prompt = Prompt()
        self._name = name
        self._whole = Prompt()  # every message as it is
        self._places = [0]  # segments of it before each message and behind the last: an empty message has none
        self._built = 0  # segments of it that the prompt stands for
        self._cleared = self.prompt  # with results cleared, nothing left out: equally many segments, maybe not yet all

    def __len__(self) -> int:
        return len(self._places) - 1

    def say(self, tokens: int, segment: Hashable = None) -> None:
        """Add a message; ``segment`` names it where other conversations begin with the same one."""
        whole = self._whole
        whole.append((self._name, len(self._places)) if segment is None else segment, tokens)
        self._places.append(len(whole.ids))

    @property
    def unchanged(self) -> int:
        """Tokens of the prompt with all messages, if its shape stayed as it is."""
        return self.prompt.tokens + self._whole.tokens - self._whole.upto(self._built)

    def go_on(self) -> None:
        """Add the messages that the prompt does not have yet at its end."""
        self.prompt.extend(self._whole, self._built)
        self._built = len(self._whole.ids)

    def leave(self) -> None:
        """Go on with a copy of the prompt: what is generated now is not what will be sent."""
        self.prompt = self.prompt.copy()
        if not self.shape.start:
            self._cleared = self.prompt

    def change(self, fitted: Fitted, note: int) -> int:
        """Make a prompt of another shape; return the tokens sent before that are new to any cache behind the change.

        Parameters
        ----------
        fitted
            What the policy sends.
        note
            Tokens of what stands for a cleared result.
        """
        old, new = self.shape, fitted.shape
        whole, places, sent = self._whole, self._places, self._built
        same = sent  # segments that both prompts stand for in the same way
        if new.cleared > old.cleared:  # what was cleared stays cleared
            changed = bisect_left(fitted.clearable, new.start, old.cleared, new.cleared)  # the first that is sent
            if changed < new.cleared:
                same = min(same, places[fitted.clearable[changed]])
            self._clear(fitted, old.cleared, note)
        cleared = self._cleared
        cleared.extend(whole, len(cleared.ids))
        if new.start:
            prompt, head, start = Prompt(), places[new.head], places[new.start]
            prompt.extend(cleared, 0, head)
            prompt.append((self._name, "left out", new.start), new.lead)
            prompt.extend(cleared, start)
        else:
            prompt = cleared
            head = start = len(whole.ids)
        if new.start != old.start:
            same = min(same, places[new.head or old.head])
        self.prompt, self.shape, self._built = prompt, new, len(whole.ids)

        def tokens(segments: int) -> int:
            return prompt.upto(segments if segments <= head else head + 1 + max(segments - start, 0))

        return tokens(sent) - tokens(same)

    def _clear(self, fitted: Fitted, before: int, note: int) -> None:
        """Clear further results than the ``before`` oldest."""
        places, clearable, cleared = self._places, fitted.clearable, Prompt()
        cleared.extend(self._cleared, 0, places[clearable[before]])
        for at in clearable[before : fitted.shape.cleared]:  # a result that can be cleared is not empty
            cleared.extend(self._whole, len(cleared.ids), places[at])
            cleared.append((self._name, ~at), note)
        self._cleared = cleared
