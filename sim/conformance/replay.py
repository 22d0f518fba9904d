"""Replaying every recording of a folder and comparing what the policies send with what the client sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies import limits
from policies.output import Call, FinishReason, Kind, Response, Send
from sim.conformance.client import NotReplayed, Replay, client_of
from sim.conformance.recording import Recording, Sent, read
from workloads.errors import BadInput, Fault, expect_folder, unreadable

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Case:
    """What came of a case.

    Attributes
    ----------
    case
        Its name: scenario and version.
    status
        "passed", "failed" or "skipped".
    reason
        The first difference, or why it was skipped; empty for a pass.
    """

    case: str
    status: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a folder.

    Attributes
    ----------
    cases
        Every case, in order of its name.
    matched
        How many model names have the recorded limits in every version.
    mismatched
        The first difference of each other name.
    """

    cases: tuple[Case, ...]
    matched: int
    mismatched: tuple[str, ...]

    def count(self, status: str) -> int:
        """Return how many cases have a status."""
        return sum(case.status == status for case in self.cases)

    @property
    def conforms(self) -> bool:
        """Whether nothing differs."""
        return not self.count(FAILED) and not self.mismatched

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "passed": self.count(PASSED),
            "failed": self.count(FAILED),
            "skipped": self.count(SKIPPED),
            "cases": [{"case": case.case, "status": case.status, "reason": case.reason} for case in self.cases],
            "models": {"matched": self.matched, "mismatched": list(self.mismatched)},
        }


def run(folder: Path, version: str | None = None) -> Report:
    """Replay the recordings of a folder and look up its model names.

    Parameters
    ----------
    folder
        Holds ``recorded/*.json`` and ``model_limits.json``.
    version
        Replay only this version of the client.

    Raises
    ------
    BadInput
        For a folder without them, files that cannot be read, or a version that no recording has: all at once.
    """
    expect_folder(folder, "recordings (recorded/*.json) and model_limits.json")
    paths = sorted((folder / "recorded").glob("*.json"))
    faults = [] if paths else [Fault("holds no recordings: recorded/*.json is expected in it", folder)]
    recordings = []
    for path in paths:
        try:
            recordings.append(read(path))
        except BadInput as error:
            faults += error.faults
    models: dict[str, Any] = {}
    try:
        models = _models(folder / "model_limits.json")
    except BadInput as error:
        faults += error.faults
    known = sorted({recording.version for recording in recordings})
    if version is not None and known and version not in known:
        faults.append(Fault(f"no recording has version {version!r}; recorded: {', '.join(known)}", key="--version"))
    if faults:
        raise BadInput(*faults)
    chosen = [recording for recording in recordings if version in (None, recording.version)]
    differences = [_model_difference(name, by_version) for name, by_version in models.items()]
    mismatched = tuple(filter(None, differences))
    return Report(tuple(map(replay, chosen)), len(models) - len(mismatched), mismatched)


def replay(recording: Recording) -> Case:
    """Return what comes of one recording."""
    client = client_of(recording.version)
    if client is None:
        return Case(recording.case, SKIPPED, "no profile for this version")
    try:
        difference = first_difference(recording, Replay(client, recording).run())
    except NotReplayed as reason:
        return Case(recording.case, SKIPPED, f"not replayed: {reason}")
    return Case(recording.case, FAILED if difference else PASSED, difference)


def first_difference(recording: Recording, sent: Iterable[Sent]) -> str:
    """Return the first main request in which a replay differs from its recording, or an empty string."""
    replayed = list(sent)
    for number, (want, got) in enumerate(zip(recording.sent, replayed, strict=False), start=1):
        if want != got:
            return f"main request {number}: recorded {want}; replayed {got}"
    if len(replayed) == len(recording.sent) or (recording.timed_out and len(replayed) > len(recording.sent)):
        return ""
    return f"recorded {len(recording.sent)} main requests; replayed {len(replayed)}"


def _models(path: Path) -> dict[str, Any]:
    try:
        models = json.loads(path.read_text(encoding="utf-8"))["models"]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(unreadable(error, path)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(Fault(f'is no table of model limits, JSON with "models": {error}', path)) from None
    if not isinstance(models, dict) or not all(isinstance(by_version, dict) for by_version in models.values()):
        raise BadInput(Fault('is no table of model limits: "models" maps names to versions', path))
    return models


def _model_difference(name: str, by_version: dict[str, dict[str, object]]) -> str:
    """Return the first recorded fact about a model's name that the policies do not share, or an empty string."""
    for version, recorded in by_version.items():
        client = client_of(version)
        if client is None:
            continue
        policy = client.profile.policy
        table = limits.TABLES[policy.table]
        known = table.lookup(name)
        machine = policy.begin(Call(name, window=known.window or table.default_window))
        first = machine.first()
        decision = machine.after(Response(FinishReason.LENGTH, 1))
        assert isinstance(first, Send)  # an empty prompt fits any window
        assert isinstance(decision, Send)
        escalates = decision.kind is Kind.ESCALATION
        shared = {
            "normalized": table.normalise(name),
            "known_output": known.known,
            "output_limit": known.output or table.default_output,
            "context_window": known.window or table.default_window,
            "default_ceiling": first.requested,
            "initial_wire": first.max_tokens,
            "escalates": escalates,
        }
        if escalates:
            shared |= {"escalated_requested": decision.requested, "escalated_wire": decision.max_tokens}
        for fact, value in shared.items():
            if recorded.get(fact, value) != value:
                return f"{name} ({version}): {fact}: recorded {recorded[fact]}, here {value}"
    return ""
