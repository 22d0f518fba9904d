"""Nobody who decides can know how long an answer is going to be: planted readers look everywhere and find nothing."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from policies.output import POLICIES, Call, Fixed, Machine, Oracle, Response
from sim.clients.client import Clients
from sim.clock import Clock
from sim.replica.admission import Full, Prompt
from sim.replica.replica import Replica
from sim.replica.server import Server
from sim.replica.work import Work
from sim.steptime import Line
from workloads.trace import Trace

SECRET = 123_457
"""A true length that nothing else equals."""

OPAQUE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, str, bytes)


class NotFound(Exception):
    """The reader looked everywhere."""


def read(*given: object) -> None:
    """Do what a cheat would: follow everything that was given, and raise unless the true length is there."""
    todo, seen = list(given), set()
    while todo:
        thing = todo.pop()
        if thing == SECRET and isinstance(thing, int):
            return
        if id(thing) in seen or isinstance(thing, OPAQUE):
            continue
        seen.add(id(thing))
        if isinstance(thing, types.MethodType):
            todo.append(thing.__self__)
        elif isinstance(thing, Mapping):
            todo += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            todo += thing
        else:
            names = [
                *getattr(thing, "__dict__", ()),
                *(n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ())),
            ]
            todo += [getattr(thing, name) for name in names if hasattr(thing, name)]
    raise NotFound


@dataclass(frozen=True, slots=True)
class ReadingRule(Full):
    def need(self, prompt: int, max_tokens: int, generated: int, block_tokens: int) -> int:
        read(prompt, max_tokens, generated, block_tokens)
        return Full.need(self, prompt, max_tokens, generated, block_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReadingCalls(Fixed):
    def begin(self, call: Call, prompt_tokens: int | None = None) -> Machine:
        read(call, prompt_tokens)
        return Fixed.begin(self, call, prompt_tokens)


class ReadingMachine(Machine):
    def after(self, response: Response) -> Any:
        read(self, response)
        return super().after(response)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReadingResponses(Fixed):
    def begin(self, call: Call, prompt_tokens: int | None = None) -> Machine:
        honest = Fixed.begin(self, call, prompt_tokens)
        return ReadingMachine(honest._plan, honest._prompt)


class ReadingVictim(Replica):
    """Chooses whom to preempt with open eyes: it looks at the requests that the engine chooses among."""

    __slots__ = ()

    def _preempt(self, work: Work, now: float) -> None:
        read(work, self._running, list(self._waiting))
        super()._preempt(work, now)


def simulate(policy: Fixed, rule: Full | Prompt, replica: type[Replica] = Replica, kv_tokens: int = 400_000) -> Clients:
    server = Server(rule, Line(0.001), kv_tokens, 400_000, 16, 8, 512, chunked_prefill=True)
    clock = Clock()
    clients = Clients(clock, replica(clock, server), policy, "", 400_000)
    trace = Trace([0.0, 0.0], [100, 100], [SECRET, SECRET])
    clients.run(iter([trace]), float("inf"), float("inf"))
    return clients


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (Fixed(max_tokens=150_000), ReadingRule()),
        (PolicyReadingCalls(max_tokens=150_000), Full()),
        (PolicyReadingResponses(max_tokens=50_000), Full()),
    ],
    ids=["admission rule", "policy, of the call", "policy, of the response"],
)
def test_a_planted_reader_finds_nothing(policy: Fixed, rule: Full) -> None:
    with pytest.raises(NotFound):
        simulate(policy, rule)


def test_a_planted_victim_choice_finds_nothing() -> None:
    assert simulate(Fixed(max_tokens=150_000), Prompt(), kv_tokens=200_000).replica.preemptions > 0
    with pytest.raises(NotFound):
        simulate(Fixed(max_tokens=150_000), Prompt(), ReadingVictim, kv_tokens=200_000)


def test_a_request_on_the_server_leads_nowhere() -> None:
    clock = Clock()
    replica = Replica(clock, Server(Full(), Line(0.001), 400_000, 400_000, 16, 8, 512, chunked_prefill=True))
    seen: list[Work] = []
    replica.submit(100, 200_000, SECRET, seen.append)
    replica.submit(100, 200_000, SECRET, seen.append)
    with pytest.raises(NotFound):
        read(list(replica._waiting))


def test_the_reader_would_find_it() -> None:
    """The test of the test: where the length is reachable, the reader does not raise."""
    read({"deep": [(Call(prompt_tokens=SECRET),)]})


def test_only_the_oracle_is_told() -> None:
    told: ClassVar = [name for name, policy in POLICIES.items() if policy.needs_oracle]
    assert told == ["oracle"]
    clients = simulate(Oracle(), Full())  # type: ignore[arg-type]
    assert set(clients.requests.all()["max_tokens"].tolist()) == {SECRET}
