"""Drawn sessions are whole, repeatable, and about as near to recorded ones as those are to each other."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from workloads.agents import FittedAgents, plans_of
from workloads.errors import BadInput
from workloads.readers.weka import read_sessions
from workloads.readers.weka_trace import columns
from workloads.sessions import SessionLaw, distances, fit_sessions, prefix_reuse
from workloads.sessions.model import LEVELS, WINDOW, Table
from workloads.sessions.study import judge
from workloads.trace import Trace

LAW = SessionLaw.named("claude-code")


@pytest.fixture(scope="module")
def drawn() -> list:
    return list(LAW.sessions(seed=1, replication=0, count=200))


def test_a_law_survives_json() -> None:
    assert SessionLaw.from_plain(json.loads(json.dumps(LAW.to_plain()))) == LAW


def test_sessions_do_not_depend_on_how_many_are_drawn(drawn: list) -> None:
    assert list(LAW.sessions(1, 0, 20)) == drawn[:20]
    assert next(LAW.sessions(2, 0, 1)) != drawn[0]
    assert next(LAW.sessions(1, 1, 1)) != drawn[0]


def test_drawn_sessions_are_whole(drawn: list) -> None:
    for session in drawn:
        assert session.requests[0].input_types == ("text",)
        for request in session.requests:
            assert request.blocks == request.input_tokens // session.block
            assert len(request.run_ids) == len(request.run_ends)
            assert list(request.run_ends) == sorted(set(request.run_ends))
            assert request.output_tokens >= 1
            assert request.api_s > 0
        for a, b in pairwise(session.requests):
            assert b.start_s == pytest.approx(a.start_s + a.api_s + b.think_s)
        assert [plan.name for plan in plans_of(session)] == [session.name]


def test_equal_block_ids_stand_for_equal_prefixes(drawn: list) -> None:
    """An id has one predecessor in a session: a prefix cache may take it for the hash of all before it."""
    for session in drawn[:40]:
        before: dict[int, int] = {}
        for request in session.requests[:60]:
            ids = []
            start = 0
            for first, end in zip(request.run_ids, request.run_ends, strict=True):
                ids += range(first, first + end - start)
                start = end
            for a, b in pairwise([-1, *ids]):
                assert before.setdefault(b, a) == a


def test_common_windows_are_not_overrun(drawn: list) -> None:
    longest = [max(request.input_tokens for request in session.requests) for session in drawn]
    assert sum(size > WINDOW for size in longest) / len(longest) == pytest.approx(0.2, abs=0.12)
    assert max(longest) <= 1_000_000


def test_a_refit_of_drawn_sessions_draws_alike() -> None:
    many = list(LAW.sessions(5, 0, 400))
    again = list(fit_sessions(many, "drawn").sessions(6, 0, 400))
    found = distances(many, again)
    assert found["input"] < 0.12
    assert found["output"] < 0.05
    assert found["requests"] < 0.12
    assert prefix_reuse(again) == pytest.approx(prefix_reuse(many), abs=0.01)


def test_tables_are_monotone_and_meet_their_quantiles() -> None:
    table = Table.of([-50.0, 0.0, 1.0, 5.0, 1e5] * 100)
    assert list(table.values) == sorted(table.values)
    assert table.quantile([0.0, 1.0]).tolist() == pytest.approx([-50.0, 1e5])
    assert len(LEVELS) == len(table.values)


def test_too_few_sessions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 20"):
        fit_sessions(list(LAW.sessions(1, 0, 5)), "few")


def test_the_shipped_law_is_the_one_that_the_file_gives(shared) -> None:
    sessions = list(read_sessions(shared / "data/files/weka-claude-code/weka_sessions_dev.jsonl.gz"))
    assert fit_sessions(sessions, LAW.source) == LAW


def test_drawn_sessions_meet_those_they_were_not_fitted_to(shared) -> None:
    """Median distance over ten random halves within 1.5 times the published noise floor, and most single ones."""
    sessions = list(read_sessions(shared / "data/files/weka-claude-code/weka_sessions_dev.jsonl.gz"))
    summary = judge(sessions, splits=10, seed=100, source="test").summary()
    for name, row in summary["distances"].items():
        assert row["median"] <= row["bar"], name
        assert row["within"] >= 0.8, name
    assert summary["prefix_reuse"]["drawn"] == pytest.approx(summary["prefix_reuse"]["recorded"], abs=0.01)
    assert summary["prefix_reuse"]["recorded"] == pytest.approx(0.963498, abs=1e-6)  # facts: 41,695,004 of 43,274,596


def test_drawn_sessions_are_a_trace(drawn: list) -> None:
    trace = Trace(**columns(drawn))
    assert len(trace) == sum(len(session.requests) for session in drawn)
    assert trace.segments.totals().tolist() == (trace.prompt_tokens // 64 * 64).tolist()


def test_studies_draw_from_a_law_by_name_or_file(tmp_path) -> None:
    path = tmp_path / "law.json"
    path.write_text(json.dumps(LAW.to_plain()))
    shipped, read = (list(FittedAgents(count=3, path=where).plans(1, 0)) for where in (None, str(path)))
    assert shipped == read
    assert len(shipped) == 3
    assert shipped != list(FittedAgents(count=3).plans(1, 1))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "JSON"),
        ("[]", "keys differ"),
        ("{}", "keys differ"),
        ('{"source": 1}', "keys differ"),
        (None, "is no law"),
    ],
)
def test_what_is_no_law_is_refused(tmp_path, text: str | None, word: str) -> None:
    path = tmp_path / "law.json"
    path.write_text(json.dumps({**LAW.to_plain(), "first": "x"}) if text is None else text)
    with pytest.raises(BadInput, match=word):
        SessionLaw.read(path)
