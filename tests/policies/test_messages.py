"""Messages and histories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.messages import (
    Blend,
    History,
    HistoryError,
    Known,
    Message,
    Role,
    Sample,
    Text,
    ToolCall,
    assistant,
    system,
    tool_result,
    user,
)
from policies.tokens import ByScript, CharsPerFour, Counts, count_classes


class Counting:
    name = "counting"

    def __init__(self):
        self.asked = 0

    def estimate(self, text):
        return self.estimate_counts(count_classes(text))

    def estimate_counts(self, counts):
        self.asked += 1
        return counts.characters


def test_an_estimate_is_made_once():
    estimator = Counting()
    message = assistant("abc", ToolCall("1", "read", Text("path")))
    assert [message.tokens(estimator) for _ in range(3)] == [7, 7, 7]
    assert estimator.asked == 2
    assert message == assistant("abc", ToolCall("1", "read", Text("path")))


def test_contents_know_their_tokens():
    assert user("ab" * 10).tokens(CharsPerFour()) == 5
    assert user("привет").tokens(ByScript()) == 3
    russian = Blend("russian", count_classes("привет мир " * 100))
    assert Sample(russian, 1_100).tokens(ByScript()) == Text("привет мир " * 100).tokens(ByScript())
    assert Sample(russian, 1).tokens(ByScript()) == 1
    assert Known(17).tokens(CharsPerFour()) == 17
    with pytest.raises(ValueError, match="no characters"):
        Blend("nothing", Counts())


def test_a_history_only_grows_into_new_ones():
    first = History([system("s"), user("u")])
    second = first.append(assistant("a"))
    other = first.append(assistant("b"))
    assert (len(first), len(second), len(other)) == (2, 3, 3)
    assert (second[2], other[2]) == (assistant("a"), assistant("b"))
    assert second.log is first.log
    assert other.log is not first.log
    assert list(first) == [system("s"), user("u")]
    assert first == History(first)
    assert second != other
    assert first.append(second[2]).log is first.log
    assert second[-1] == second[1:][1] == assistant("a")


CALL = ToolCall("c")


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([user("u"), tool_result("c", "r")], "message 1: result of the tool call 'c', which is not open"),
        ([assistant("", CALL), user("u")], "message 1: the tool call 'c' has no result"),
        ([assistant("", CALL), tool_result("c", "r"), tool_result("c", "r")], "message 2: result of the tool call 'c'"),
        ([assistant("", CALL, ToolCall("d")), tool_result("d", "r"), assistant("x")], "message 2: the tool call 'c'"),
    ],
)
def test_calls_and_results_belong_together(messages, what):
    with pytest.raises(HistoryError, match=what):
        History(messages)


def test_a_call_without_result_cannot_be_sent():
    history = History([user("u"), assistant("", CALL)])
    with pytest.raises(HistoryError, match="message 2: the tool call 'c' has no result"):
        history.check_complete()


def test_messages_that_mean_nothing_are_refused():
    with pytest.raises(HistoryError, match="cannot call tools"):
        Message(Role.USER, Text("u"), (CALL,))
    with pytest.raises(HistoryError, match="which call"):
        Message(Role.TOOL, Text("r"))


@pytest.mark.parametrize(
    ("messages", "head"),
    [
        ([], 0),
        ([system("s")], 1),
        ([system("s"), system("t"), user("u"), user("v")], 3),
        ([user("u"), system("s")], 1),
        ([assistant("a"), user("u")], 0),
        ([system("s"), assistant("a"), user("u"), system("s")], 1),
    ],
)
def test_the_head_is_the_system_messages_and_the_first_message(messages, head):
    assert History(messages).head == head


@given(st.lists(st.text(max_size=3), max_size=6), st.integers(0, 6))
def test_branching_leaves_every_branch_as_it_was(words, at):
    history = History(map(user, words))
    stem = History(map(user, words[:at]))
    branch = History(history[:at]).append(user("branch"))
    assert list(history) == [user(word) for word in words]
    assert list(branch) == [*stem, user("branch")]
