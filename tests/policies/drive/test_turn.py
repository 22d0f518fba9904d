"""What a front end clears on a retry, and what it keeps."""

import pytest

from policies.drive import Answered, Called, Cited, Ended, Retried, Said, Turn
from policies.exchange import Answer, Finished, Requested
from policies.output import Done, ErrorKind, Fail, FinishReason, Outcome, Reject
from policies.output.machine import initial

CALL = Requested("1", "read_file", "{}")


def half_way() -> Turn:
    turn = Turn()
    cut = Answer("half an answer", finish=FinishReason.LENGTH)
    for event in (Said("half "), Said("an answer"), Cited("page 3"), Called(CALL), Answered(initial(8_000), cut)):
        turn.feed(event)
    assert (turn.text, turn.citations, turn.pending_calls, turn.answers) == (
        "half an answer",
        ["page 3"],
        [CALL],
        [cut],
    )
    assert turn.finish is FinishReason.LENGTH
    return turn


@pytest.mark.parametrize(("kept", "text"), [(0, ""), (14, "half an answer"), (5, "half ")])
def test_a_retry_clears_all_but_the_text_that_goes_on(kept: int, text: str) -> None:
    turn = half_way()
    turn.feed(Retried(is_continuation=bool(kept), kept=kept, max_tokens=64_000))
    assert turn == Turn(text=text)


@pytest.mark.parametrize(
    ("decision", "finish"),
    [
        (Done(Outcome.COMPLETE, FinishReason.TOOL_CALLS), FinishReason.TOOL_CALLS),
        (Done(Outcome.PARTIAL, FinishReason.LENGTH), FinishReason.LENGTH),
        (Reject((CALL.use,), "split"), FinishReason.LENGTH),
        (Fail(ErrorKind.SERVER), FinishReason.ERROR),
    ],
)
def test_the_end_tells_the_text_and_why(decision: Done | Reject | Fail, finish: FinishReason) -> None:
    turn = half_way()
    turn.feed(Ended(Finished(decision, (), "the answer", ())))
    assert (turn.text, turn.finish) == ("the answer", finish)
