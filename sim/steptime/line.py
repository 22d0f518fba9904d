"""A step that costs a constant and so much a request and a token: what regressions give and closed forms assume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sim.steptime.base import FOREVER, Chunk, Provenance, Segment

GIVEN = Provenance("line", "constants given by the study")


@dataclass(frozen=True, slots=True)
class Line:
    """A plain line, in seconds.

    Attributes
    ----------
    base_s
        Every step.
    per_request_s
        Every request in it, decoding or with a prompt piece.
    per_context_token_s
        Every stored token of the decoding requests.
    per_prompt_token_s
        Every token of a prompt piece.
    per_attended_token_s
        Every pair of a prompt token and a token before it: ``tokens * (past + tokens / 2)`` a piece.
    provenance
        Where the constants are from.
    """

    base_s: float = 0.0
    per_request_s: float = 0.0
    per_context_token_s: float = 0.0
    per_prompt_token_s: float = 0.0
    per_attended_token_s: float = 0.0
    provenance: Provenance = GIVEN

    def __post_init__(self) -> None:
        """Refuse lines on which time would stand still or run backwards.

        Raises
        ------
        ValueError
            A constant is negative or no number, or all are zero.
        """
        values = {word: value for word, value in asdict(self).items() if word != "provenance"}
        wrong = [f"{word}: must be >= 0, got {value!r}" for word, value in values.items() if not 0.0 <= value < 1e9]
        if not (wrong or self.base_s or self.per_request_s):
            wrong = ["base_s: must be above 0 where per_request_s is 0, else a step takes no time"]
        if wrong:
            raise ValueError("; ".join(wrong))
        if self.provenance is GIVEN:
            object.__setattr__(self, "provenance", replace(GIVEN, constants=values))

    def segment(self, decodes: int, context: int, chunks: Sequence[Chunk] = ()) -> Segment:
        """Return ``(base, slope, steps)`` as `StepTime` says; the line never breaks."""
        base = self.base_s + self.per_request_s * (decodes + len(chunks)) + self.per_context_token_s * context
        slope = self.per_context_token_s * decodes
        for tokens, past in chunks:
            base += tokens * (self.per_prompt_token_s + self.per_attended_token_s * (past + tokens / 2))
            slope += self.per_attended_token_s * tokens * tokens
        return base, slope, FOREVER
