"""The verb on folders made here: it needs no recording of anybody."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sim.conformance import run
from workloads.errors import BadInput


def request(max_tokens, messages: int, kind: str = "main") -> dict:
    return {"kind": kind, "max_tokens": max_tokens, "messages_count": messages}


def case(version: str = "0.15.10", *, steps=None, requests=None, turns=1, **generation) -> dict:
    return {
        "scenario": "made_here",
        "version": version,
        "config": {
            "model": "my-model",
            "auth_type": "openai",
            "settings_overrides": {"model": {"generationConfig": generation}} if generation else {},
            "env": {},
            "user_turns": turns,
        },
        "server": {
            "prompt_tokens_reported": 1_200,
            "steps": steps or [],
            "after_last_step": {"text": "done", "finish_reason": "stop"},
        },
        "observed": {"requests": requests or []},
    }


CUT = {"text_chars": 400, "finish_reason": "length"}
DONE = {"text_chars": 40, "finish_reason": "stop"}
EMPTY_CUT = {"text": "", "finish_reason": "length"}


def folder(tmp_path: Path, *cases: dict, models: dict | None = None) -> Path:
    (tmp_path / "recorded").mkdir()
    for number, each in enumerate(cases):
        (tmp_path / f"recorded/case{number}.json").write_text(json.dumps(each))
    (tmp_path / "model_limits.json").write_text(json.dumps({"models": models or {}}))
    return tmp_path


def verb(*arguments: str) -> subprocess.CompletedProcess:
    program = "import sys; from sim.cli import main; sys.argv[0] = 'slotsim'; main()"
    return subprocess.run([sys.executable, "-c", program, "conformance", *arguments], capture_output=True, text=True)


def test_pass_fail_and_skip(tmp_path: Path) -> None:
    good = case(steps=[CUT, DONE], requests=[request(8_000, 4), request(64_000, 4)])
    bad = case(steps=[CUT, DONE], requests=[request(8_000, 4), request(32_000, 4)])
    other = case("0.21.2", requests=[request(32_000, 2)])
    models = {"gpt-5": {"0.15.10": {"output_limit": 131_072}}, "kimi-k3": {"0.24.4": {"output_limit": 1}}}
    path = folder(tmp_path, good, bad, other, models=models)
    done = verb(str(path), "--json")
    assert done.returncode == 3
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert (report["passed"], report["failed"], report["skipped"]) == (1, 1, 1)
    assert report["cases"][1] == {
        "case": "made_here.0.15.10",
        "status": "failed",
        "reason": "main request 2: recorded max_tokens 32000, 4 messages; replayed max_tokens 64000, 4 messages",
    }
    assert report["cases"][2]["reason"] == "no profile for this version"
    assert report["models"]["matched"] == 1
    assert report["models"]["mismatched"] == ["kimi-k3 (0.24.4): output_limit: recorded 1, here 131072"]
    text = verb(str(path), "--version", "0.21.2")
    assert text.returncode == 3  # the model table still differs
    assert text.stdout.splitlines()[-1] == "0 passed, 0 failed, 1 skipped; model names: 1 matched, 1 not"


def test_every_fault_at_once(tmp_path: Path) -> None:
    path = folder(tmp_path, case())
    (path / "recorded/broken.json").write_text("{")
    (path / "recorded/other.json").write_text('{"scenario": "x"}')
    (path / "recorded/list.json").write_text("[]")
    (path / "model_limits.json").write_text("[]")
    done = verb(str(path), "--version", "9.9.9")
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("error: ") for line in lines)
    for part in (
        "broken.json: is no JSON",
        "other.json: config: is missing",
        "list.json",
        "model_limits.json",
        "0.15.10",
    ):
        assert any(part in line for line in lines), part


def test_an_empty_or_absent_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no recordings[\s\S]*model_limits"):
        run(tmp_path / "absent")


def test_an_absent_folder_is_missed_once_and_an_empty_one_for_what_it_lacks(tmp_path: Path) -> None:
    for place, faults in ((tmp_path / "absent", 1), (tmp_path, 2)):
        with pytest.raises(BadInput, match=r"no recordings[\s\S]*model_limits") as raised:
            run(place)
        assert len(raised.value.faults) == faults


def replayed(tmp_path: Path, **of_case) -> str:
    """Return the first difference between what a case sends and the requests that it is expected to send."""
    return run(folder(tmp_path, case(**of_case))).cases[0].reason


def test_an_empty_first_answer_cut_by_the_limit(tmp_path: Path) -> None:
    """0.15 takes it for a broken stream and sends the same again, twice at most; 0.24 escalates."""
    old = case(steps=[EMPTY_CUT, EMPTY_CUT, EMPTY_CUT], requests=[request(8_000, 4)] * 3)
    new = case("0.24.4", steps=[EMPTY_CUT, DONE], requests=[request(32_000, 2), request(64_000, 2)])
    assert [each.reason for each in run(folder(tmp_path, old, new)).cases] == ["", ""]


def test_nothing_is_sticky(tmp_path: Path) -> None:
    expected = [request(8_000, 4), request(64_000, 4), request(8_000, 6), request(64_000, 6)]
    assert replayed(tmp_path, steps=[CUT, DONE, CUT, DONE], turns=2, requests=expected) == ""


def test_a_null_limit_goes_out_as_it_stands(tmp_path: Path) -> None:
    expected = [request(None, 4), request(None, 4)]
    assert replayed(tmp_path, steps=[CUT, DONE], requests=expected, samplingParams={"max_tokens": None}) == ""


def test_ceiling_follows(tmp_path: Path) -> None:
    """A recovery squeezed by the window keeps the next ones there, whatever room the server's count then shows.

    The estimate of the first recovery is 1,200 + 64,000 + ceil(1.5 ceil(833 / 4)) = 65,514 of a room of 90,000 tokens.
    """
    limits = [(32_000, 2), (64_000, 2), (24_486, 4), (24_486, 6), (24_486, 8)]
    expected = [request(*each) for each in limits]
    assert replayed(tmp_path, version="0.24.4", steps=[CUT] * 5, requests=expected, contextWindowSize=100_000) == ""
