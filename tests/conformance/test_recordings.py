"""The recordings of the real client, replayed; and that each rule of its profiles is pinned by one of them."""

from collections import Counter
from dataclasses import replace

import pytest

from policies import precedence
from policies.output import Raises, Retries
from policies.profiles import PROFILES
from policies.retry import Backoff, Retry
from policies.wire import OPENAI
from sim.conformance import client as clients
from sim.conformance import run
from sim.conformance.replay import replay


@pytest.fixture(scope="module")
def recordings(shared):
    from sim.conformance.recording import read

    return [read(path) for path in sorted((shared / "conformance/recorded").glob("*.json"))]


def test_every_case_of_the_known_versions_passes(shared) -> None:
    report = run(shared / "conformance")
    assert {case.case: case.reason for case in report.cases if case.status == "failed"} == {}
    skipped = Counter(case.reason for case in report.cases if case.status == "skipped")
    assert set(skipped) == {"no profile for this version"}
    assert report.count("passed") >= 167
    assert report.mismatched == ()
    assert report.conforms


def mutated(version: str, *, policy=None, retry=None, openai=None, **changes):
    """Return a client one thing of which is not as the real one."""
    client = clients.CLIENTS[version]
    profile = client.profile
    if policy:
        profile = replace(profile, policy=policy(profile.policy))
    if retry:
        profile = replace(profile, retry=retry)
    if openai:
        profile = replace(profile, dialects={**profile.dialects, "openai": openai})
    return replace(client, profile=profile, **changes)


def rule(**changes):
    return lambda policy: replace(policy, rules=replace(policy.rules, **changes))


def constant(**changes):
    return lambda policy: replace(policy, **changes)


MUTATIONS = {
    "0.15 first cap": ("0.15", {"policy": constant(first_cap=8_001)}),
    "0.15 floor of the escalation": ("0.15", {"policy": constant(escalated_floor=64_001)}),
    "0.15 recoveries": ("0.15", {"policy": constant(recoveries=2)}),
    "0.15 table": ("0.15", {"policy": constant(table="0.24")}),
    "0.15 no retry of escalations": ("0.15", {"policy": constant(retry_escalated=False)}),
    "0.15 precedence": ("0.15", {"policy": rule(precedence=precedence.client_024)}),
    "0.15 continues calls": ("0.15", {"policy": rule(continue_calls=True)}),
    "0.15 clamps": ("0.15", {"policy": rule(clamps=True)}),
    "0.15 retries broken recoveries": ("0.15", {"policy": rule(retried=Retries.ALL)}),
    "0.15 fewer refusals retried": (
        "0.15",
        {"retry": replace(PROFILES["qwen-code-0.15"].retry, refused=Backoff(retries=26, first_s=1.0))},
    ),
    "0.15 broken streams not retried": (
        "0.15",
        {"retry": replace(PROFILES["qwen-code-0.15"].retry, broken=Backoff(retries=0, first_s=1.0))},
    ),
    "0.15 wire": ("0.15", {"openai": OPENAI}),
    "0.15 front end": ("0.15", {"keeps_pending": False}),
    "0.15 merges users": ("0.15", {"merges_users": True}),
    "0.15 preamble": ("0.15", {"preamble": {"openai": 2, "anthropic": 2}}),
    "0.15 compaction": ("0.15", {"default_window": 1_000_000}),
    "0.15 forgets the preamble": ("0.15", {"forgets_preamble": False}),
    "0.24 ceiling": ("0.24", {"policy": constant(ceiling=64_001)}),
    "0.24 unknown models": ("0.24", {"policy": constant(unknown_limit=31_999)}),
    "0.24 recoveries": ("0.24", {"policy": constant(recoveries=4)}),
    "0.24 table": ("0.24", {"policy": constant(table="0.15")}),
    "0.24 margin": ("0.24", {"policy": constant(margin_tokens=10_001)}),
    "0.24 room's floor": ("0.24", {"policy": constant(floor=3_999)}),
    "0.24 refuses": ("0.24", {"policy": rule(refuses=True)}),
    "0.24 escalates only if it raises": ("0.24", {"policy": rule(raises=Raises.LIMIT)}),
    "0.24 escalates whatever it raises": ("0.24", {"policy": rule(raises=Raises.NOTHING)}),
    "0.24 precedence": ("0.24", {"policy": rule(precedence=precedence.client_015)}),
    "0.24 continues calls": ("0.24", {"policy": rule(continue_calls=True)}),
    "0.24 retries refusals only": ("0.24", {"policy": rule(retried=Retries.REFUSED)}),
    "0.24 broken streams not retried": ("0.24", {"retry": Retry(broken=Backoff(retries=0, first_s=1.0))}),
    "0.24 wire": ("0.24", {"openai": OPENAI}),
    "0.24 front end": ("0.24", {"keeps_pending": True}),
    "0.24 merges no users": ("0.24", {"merges_users": False}),
    "0.24 overhead": ("0.24", {"overhead_tokens": 2_326}),
    "0.24 pad": ("0.24", {"pad_tokens": 19_999}),
    "0.24 compaction": ("0.24", {"shared_prefix": False}),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_rule_is_pinned_by_a_recording(recordings, monkeypatch, name: str) -> None:
    version, changes = MUTATIONS[name]
    monkeypatch.setitem(clients.CLIENTS, version, mutated(version, **changes))
    concerned = [recording for recording in recordings if recording.version.startswith(version)]
    assert any(replay(recording).status == "failed" for recording in concerned)
