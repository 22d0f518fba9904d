"""What goes wrong by chance between a client and a server: refusals, server errors, broken and empty streams."""

from __future__ import annotations

from dataclasses import dataclass

from policies.output import ErrorKind


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of the requests that go wrong. Each request is drawn by itself.

    Attributes
    ----------
    rate_limited
        Answered 429 before the server looks at them.
    server_error
        Answered 5xx before the server looks at them.
    cut
        Whose stream breaks off: at a token drawn evenly from those before the last one.
    empty
        Whose stream holds nothing: the prompt is computed, the first token ends the answer.
    """

    rate_limited: float = 0.0
    server_error: float = 0.0
    cut: float = 0.0
    empty: float = 0.0

    def of(self, uniform: float) -> ErrorKind | None:
        """Return what happens to a request, given a number drawn from [0, 1); None: nothing.

        The shares are stacked: a study that raises one of them hits the requests it hit before, and others.
        """
        level = 0.0
        for kind, share in (
            (ErrorKind.RATE_LIMITED, self.rate_limited),
            (ErrorKind.SERVER, self.server_error),
            (ErrorKind.CUT, self.cut),
            (ErrorKind.EMPTY, self.empty),
        ):
            level += share
            if uniform < level:
                return kind
        return None
