"""The reader of WEKA's Claude Code sessions."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.errors import BadInput
from workloads.readers.weka import read_sessions


def request(t=0.0, tokens=200, runs=None, **more):
    runs = [[1, tokens // 64]] if runs is None else runs
    return {"t": t, "in": tokens, "out": 5, "stop": "tool_use", "runs": runs, **more}


def session(*requests, **more):
    return {"id": "s", "block_size": 64, "tool_tokens": 9, "system_tokens": 7, "requests": list(requests), **more}


def write(path, *lines):
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def faults(path, **options):
    with pytest.raises(BadInput) as caught:
        list(read_sessions(path, **options))
    return [str(fault).removeprefix(str(path)) for fault in caught.value.faults]


def test_reads_times_runs_and_subagents(tmp_path):
    sub = {"t": 3.5, "subagent_type": "Explore", "requests": [request(tokens=64, runs=[[50, 1]])]}
    path = write(
        tmp_path / "w.jsonl",
        session(request(think_time=1.5, api_time=2.0), sub, request(9, 260, [[1, 2], [7, 2]], input_types=["text"])),
    )
    (read,) = read_sessions(path)
    assert (read.name, read.block, read.tool_tokens, read.system_tokens) == ("s", 64, 9, 7)
    first, second = read.requests
    assert (first.think_s, first.api_s, first.run_ids, first.run_ends, first.blocks) == (1.5, 2.0, [1], [3], 3)
    assert (second.think_s, second.input_types, second.run_ids, second.run_ends) == (None, ("text",), [1, 7], [2, 4])
    (agent,) = read.subagents
    assert (agent.start_s, agent.kind, agent.requests[0].input_tokens) == (3.5, "Explore", 64)


def test_the_same_blocks_are_the_same_runs(tmp_path):
    path = write(tmp_path / "w.jsonl", session(request(tokens=320, runs=[[1, 2], [3, 1], [5, 2]])))
    (read,) = read_sessions(path)
    assert (read.requests[0].run_ids, read.requests[0].run_ends) == ([1, 5], [3, 5])


def test_names_every_fault_by_line_and_place(tmp_path):
    good = session(request())
    path = write(
        tmp_path / "w.jsonl",
        good,
        json.dumps(good)[:50] + "\n",
        session(request(), request(tokens=640, runs=[[1, 9]])),
        session(request(5), request(4)),
        session({"t": 0, "requests": [request(tokens=-1, runs=[])]}),
        {"id": "x", "requests": []},
        session(request(runs=[[1, 0]])),
        session(3),
        good,
    )
    said = faults(path)
    assert [fault.split(": ")[0] for fault in said] == [":2", ":3", ":4", ":5", ":6", ":7", ":8"]
    assert "is no JSON" in said[0]
    assert "requests[1].runs: 640 tokens hold 10 whole blocks of 64, not 9" in said[1]
    assert "requests[1].t: must not run backwards" in said[2]
    assert "requests[0].requests[0].in: must be a whole number" in said[3]
    assert "block_size: is missing" in said[4]
    assert "requests[0].runs: must hold pairs" in said[5]
    assert "requests[0]: must be an object" in said[6]


def test_nothing_follows_a_fault_and_bad_sessions_can_be_skipped(tmp_path):
    path = write(tmp_path / "w.jsonl", session(request()), "{\n", session(request(), id="after"))
    seen = []
    with pytest.raises(BadInput):
        seen.extend(read_sessions(path))
    assert [each.name for each in read_sessions(path, skip_bad=True)] == ["s", "after"]
    assert [each.name for each in read_sessions(path, first=1)] == ["s"]


def test_a_cut_archive_is_one_clear_error(tmp_path):
    path = tmp_path / "w.jsonl.gz"
    lines = "".join(json.dumps(session(request(), id=str(n))) + "\n" for n in range(50))
    path.write_bytes(gzip.compress(lines.encode())[:-40])
    (said,) = faults(path)
    assert "the file was cut" in said


def test_endless_nesting_is_refused(tmp_path):
    inner = request()
    for _ in range(6):
        inner = {"t": 0, "requests": [inner]}
    assert any("nested deeper" in fault for fault in faults(write(tmp_path / "w.jsonl", session(inner))))


def outcome(path):
    """Return the sessions of a file and what was said about it; anything but a fault is an error of the reader."""
    sessions = []
    try:
        sessions.extend(read_sessions(path))
    except BadInput as error:
        return sessions, error.faults
    return sessions, ()


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@settings(max_examples=200)
@given(key=st.sampled_from(["t", "in", "out", "runs", "stop", "input_types", "think_time", "requests"]), value=ANYTHING)
def test_any_value_is_read_or_named(tmp_path_factory, key, value):
    path = tmp_path_factory.mktemp("weka") / "w.jsonl"
    line = json.dumps(session(request() | {key: value}, request(1)))
    path.write_text(line + "\n")
    sessions, said = outcome(path)
    assert bool(sessions) != bool(said)
    assert all(fault.line == 1 for fault in said)
    assert all(each.blocks == each.input_tokens // 64 for read in sessions for each in read.requests)


@given(cut=st.integers(0, 400), noise=st.binary(max_size=4))
def test_damaged_bytes_are_one_fault_a_line(tmp_path_factory, cut, noise):
    path = tmp_path_factory.mktemp("weka") / "w.jsonl"
    data = json.dumps(session(request(), request(1))).encode()
    path.write_bytes(data[:cut] + noise + data[cut + len(noise) :] + b"\n")
    sessions, said = outcome(path)
    assert bool(sessions) != bool(said)


def test_reads_the_handed_sessions(shared):
    sessions = list(read_sessions(shared / "data/files/weka-claude-code/weka_sessions_dev.jsonl.gz"))
    requests = [each for session in sessions for each in session.requests]
    agents = [agent for session in sessions for agent in session.subagents]
    assert (len(sessions), len(requests), len(agents)) == (346, 22_368, 48)
    assert sum(len(agent.requests) for agent in agents) == 524
    assert sum(each.api_s is None for each in requests) == 2_051
    assert sum(each.think_s is None for each in requests) == 52
    assert sum(each.blocks for each in requests) == 43_274_596
