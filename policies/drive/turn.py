"""What a front end shows of a call, kept straight through retries.

A front end that does not listen to ``Retried`` shows texts twice and runs the tool calls of discarded attempts; this
one listens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.drive.events import Answered, Called, Cited, Ended, Event, Retried, Said
from policies.exchange import Answer, Requested
from policies.output import Done, Fail, FinishReason, Reject


@dataclass(slots=True)
class Turn:
    """The state of a call as it is shown.

    A retry clears what the abandoned request left (documents, "state cleanup on a RETRY"): pending tool calls,
    citations, the answers kept for debugging, and the finish reason. The text stays as far as the retry says.

    Attributes
    ----------
    text
        The text shown.
    pending_calls
        Tool calls to run.
    citations
        Citations shown.
    answers
        The answers since the last retry.
    finish
        Why the answer ended; None while it has not.
    """

    text: str = ""
    pending_calls: list[Requested] = field(default_factory=list)
    citations: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    finish: FinishReason | None = None

    def feed(self, event: Event) -> None:
        """Take in an event."""
        match event:
            case Said(text):
                self.text += text
            case Cited(text):
                self.citations.append(text)
            case Answered(_, answer):
                self.answers.append(answer)
                self.finish = answer.finish
            case Called(call):
                self.pending_calls.append(call)
            case Retried():
                self.text = self.text[: event.kept]
                self.pending_calls.clear()
                self.citations.clear()
                self.answers.clear()
                self.finish = None
            case Ended(finished):
                self.text = finished.text
                self.finish = _reported(finished.decision)


def _reported(decision: Done | Reject | Fail) -> FinishReason:
    match decision:
        case Done(finish=finish):
            return finish
        case Reject():
            return FinishReason.LENGTH
        case Fail():
            return FinishReason.ERROR
