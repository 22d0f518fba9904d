"""A study: one TOML file, its arms merged and checked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from sim.study import toml, tree
from sim.study.choices import Table, without_tags
from sim.study.server import Settled
from sim.study.sources import sources
from sim.study.tables import RANK_BY, Arm, CaseRunTable, Head, Replications, RunTable
from sim.study.tree import Node, Origin, Value
from sim.thresholds import Threshold
from workloads.errors import BadInput, Fault, did_you_mean
from workloads.source import Source

BASE = "base"
"""Name of the only arm of a study without ``[arms]``."""

ARM_KEYS = tuple(Arm.model_fields)
WRITTEN = (*ARM_KEYS, "arms", "cases", "sensitivity")
"""Keys of the tables that :meth:`Study.resolved` leaves as they are in a study with cases or assumptions."""

DEFAULT_HORIZON_S = 1800.0
DEFAULT_REPLICATIONS = 10
"""From 10 replications on a t interval on a 99th percentile covers what it promises (see :mod:`sim.stats`)."""


@dataclass(frozen=True, slots=True)
class Run:
    """How the study is simulated and judged, defaults filled in.

    Attributes
    ----------
    kind
        ``steady`` or ``terminating``.
    horizon_s
        Calls that arrive until then are measured; None for a whole trace.
    warmup_s
        Span that is left out, or ``auto``.
    replications
        A number, or the rule that decides it.
    same_within
        Share of the baseline's mean within which a difference counts as ``same``.
    rank_by
        Metrics by which the arms are ranked: in each case, or as written and under each assumption.
    """

    kind: Literal["steady", "terminating"]
    horizon_s: float | None
    warmup_s: float | Literal["auto"]
    replications: int | Replications
    same_within: float
    rank_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Study:
    """A study that has been checked.

    Attributes
    ----------
    name, seed, run, slo, thresholds
        What holds for all arms; ``slo`` in seconds.
    arms
        By name, in the order of the file; the first is the baseline. At least one. In a study with cases every arm of
        every case, named ``CASE/ARM``; the first of each case is its baseline. The same with assumptions, beside the
        arms as written.
    path
        The file; None for a bundled study.
    cases
    sensitivity
        How each case is run, by its name, in the order of the file; none in most studies.
    sensitivity
        Names of other assumptions under which the comparison is repeated; none in most studies, nor beside cases.
    """

    name: str
    seed: int
    run: Run
    arms: Mapping[str, Arm]
    slo: Mapping[str, float]
    thresholds: Mapping[str, Threshold]
    path: Path | None
    _base: Arm | tuple[Fault, ...]
    cases: Mapping[str, Run] = dataclasses.field(default_factory=dict)
    sensitivity: tuple[str, ...] = ()
    _written: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def base(self) -> Arm:
        """The study without its arms.

        Raises
        ------
        BadInput
            If it leaves to the arms what it needs itself.
        """
        if isinstance(self._base, tuple):
            raise BadInput(*self._base)
        return self._base

    @property
    def has_agents(self) -> bool:
        """Whether any arm's workload are agents."""
        return any(arm.workload.agents for arm in self.arms.values())

    def only(self, arm: str | None = None) -> Study:
        """Return the study with one of its arms alone, or with none of them under the name ``base``.

        Raises
        ------
        BadInput
            If there is no such arm, or the base is incomplete.
        """
        if arm is None:
            return dataclasses.replace(self, arms={BASE: self.base}, cases={}, sensitivity=())
        if arm not in self.arms:
            raise BadInput(
                Fault(f"unknown arm {arm!r}, there are {', '.join(self.arms)}{did_you_mean(arm, self.arms)}")
            )
        run = self.cases.get(arm.partition("/")[0], self.run)
        return dataclasses.replace(self, run=run, arms={arm: self.arms[arm]}, cases={}, sensitivity=())

    def by_case(self) -> dict[str, Study]:
        """Return a study for each case, with the arms of that case.

        A study without cases is one itself, under ``""``, and so is each of its other assumptions.
        """
        if not (self.cases or self.sensitivity):
            return {"": self}
        arms: dict[str, dict[str, Arm]] = {case: {} for case in self.cases or ("", *self.sensitivity)}
        for name, arm in self.arms.items():
            arms[name.rpartition("/")[0]][name] = arm
        return {
            case: dataclasses.replace(self, run=self.cases.get(case, self.run), arms=some, cases={}, sensitivity=())
            for case, some in arms.items()
        }

    def sources(self) -> dict[str, Source]:
        """Return where each arm's calls come from: a trace is resampled if there is to be more than one replication.

        Raises
        ------
        BadInput
            Bad rows of a trace, and prompts beyond the window of an arm's server.
        """
        return sources(self.arms, resample=self.run.replications != 1)

    def resolved(self) -> str:
        """Return the study as TOML: loading it gives the same arms.

        Every default is filled in, but for the tables of a study with cases or assumptions: those stay as written,
        since a default of the base is not one under another engine or model.
        """
        run = {
            "kind": self.run.kind,
            "horizon": self.run.horizon_s,
            "warmup": self.run.warmup_s,
            "replications": plain(self.run.replications),
            "same_within": self.run.same_within,
        }
        if self.cases or self.sensitivity:
            tables: Mapping[str, Any] = self._written
            run["rank_by"] = plain(self.run.rank_by)
        elif len(self.arms) == 1 and (BASE in self.arms or "/" in next(iter(self.arms))):
            tables = settled_table(*self.arms.values())
        else:
            top = {} if isinstance(self._base, tuple) else settled_table(self._base)
            tables = {**top, "arms": {name: settled_table(arm) for name, arm in self.arms.items()}}
        document = {"schema": 1, "name": self.name, "seed": self.seed, "run": run, **tables}
        bounds = {
            "slo": dict(self.slo),
            "thresholds": {name: str(threshold) for name, threshold in self.thresholds.items()},
        }
        return toml.dumps({**document, **{key: table for key, table in bounds.items() if table}})


def settled_table(arm: Arm) -> dict[str, Any]:
    """Return an arm as tables of plain values, with the server's defaults filled in."""
    table: dict[str, Any] = plain(arm)
    server, settled = table["server"], arm.server.settle()
    for key in server:
        if server[key] is None and key in Settled.__slots__ and key not in ("model", "gpu"):
            server[key] = getattr(settled, key)
    server["step_time"] = plain(arm.server.step_table())
    workload = arm.workload
    trace = ("format", "time_scale")
    unused = (
        ("streams", *trace)
        if workload.agents
        else ("streams", "agents", "together")
        if workload.path
        else ("agents", "together", *trace)
    )
    for key in unused:
        del table["workload"][key]
    return table


def plain(value: Value) -> Value:
    """Return tables as dicts and tuples as lists, down to plain values."""
    if hasattr(type(value), "model_fields"):
        return {key: plain(getattr(value, key)) for key in type(value).model_fields}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def templates() -> dict[str, str]:
    """Return the bundled studies: name to TOML text."""
    folder = resources.files("sim") / "templates"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in files}


def load_study(
    name_or_path: str,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    replications: int | None = None,
) -> Study:
    """Read and check a study.

    Parameters
    ----------
    name_or_path
        A TOML file, or the name of a bundled study.
    overrides
        ``KEY=VALUE`` each; the value is TOML, else text. They change the base; ``arms.NAME.key`` reaches an arm.
    seed, replications
        Replace the study's.

    Raises
    ------
    BadInput
        All faults of the file and the overrides at once.
    """
    path, document = _read(name_or_path)
    patch = tree.read_overrides(overrides)
    options = {"seed": ("seed", seed), "replications": ("run", replications)}
    for option, (key, value) in options.items():
        if value is not None:
            origin = Origin(None, None, f"--{option}")
            node = Node(value, origin)
            given = Node({key: node if key == option else Node({option: node}, origin)}, origin)
            patch = tree.merge(patch, given, ())
    for key, what in (("arms", "arm"), ("cases", "case"), ("sensitivity", "assumption")):
        _check_names(key, what, document, patch)
    return _Reader(tree.merge(document, patch, tree.OVERRIDE_TAGS)).study(path, Path(name_or_path).stem)


def _read(name_or_path: str) -> tuple[Path | None, Node]:
    path = Path(name_or_path)
    if path.is_file():
        return path, tree.read(path, path)
    bundled = templates()
    if name_or_path in bundled:
        return None, tree.parse(bundled[name_or_path], Path(f"{name_or_path}.toml"), Path())
    allowed = f"no such file, and no bundled study of this name: {', '.join(bundled)}"
    raise BadInput(Fault(f"{allowed}{did_you_mean(name_or_path, bundled)}", path))


def _check_names(key: str, what: str, document: Node, patch: Node) -> None:
    """Refuse overrides that reach for arms, cases or assumptions that are not there."""
    known, wanted = (document.get(key), patch.get(key))
    if wanted is None:
        return
    names = list(known.value) if known is not None and isinstance(known.value, dict) else []
    if not isinstance(wanted.value, dict):
        raise BadInput(wanted.origin.fault(f"{key} are changed one by one, with --set {key}.NAME.KEY=VALUE"))
    listed = f"there are {', '.join(names)}" if names else "the study has none"
    faults = [
        node.origin.fault(f"unknown {what} {name!r}, {listed}{did_you_mean(name, names)}")
        for name, node in wanted.value.items()
        if name not in names
    ]
    if faults:
        raise BadInput(*faults)


T = TypeVar("T", bound=Table)


class _Found(NamedTuple):
    fault: Fault
    missing: bool


class _Reader:
    """Checks a merged tree against the tables and gathers what is wrong with it."""

    def __init__(self, document: Node) -> None:
        flat = {
            key: tree.flatten(node) if key in ("slo", "thresholds") else node for key, node in document.value.items()
        }
        self._document = Node(flat, document.origin)
        self._faults: list[Fault] = []

    def study(self, path: Path | None, stem: str) -> Study:
        head = self._head()
        base, base_found = self._arm(self._base())
        arms, cases = self._alternatives("arms", tree.ARM_TAGS), self._alternatives("cases", tree.OVERRIDE_TAGS)
        assumptions = self._alternatives("sensitivity", tree.OVERRIDE_TAGS)
        runs = {case: self._run(table.node) for case, table in cases.items()}
        cases = {case: table.without("run") for case, table in cases.items()}
        if not arms and not cases:
            self._faults += [found.fault for found in base_found]
            checked = {BASE: base}
        else:
            # an arm or a case may bring what the base lacks, but whatever the base says must be right
            self._faults += [found.fault for found in base_found if not found.missing]
            checked = self._crossed(arms, cases)
        if assumptions:
            at = self._document.value["sensitivity"].origin
            if cases:
                self._faults.append(at.fault("a study has [cases] or a [sensitivity]: make these assumptions cases"))
            elif len(arms) < 2:
                self._faults.append(at.fault("needs [arms], at least two: without them there is no comparison to keep"))
            else:
                checked |= self._crossed(arms, assumptions)
        for key, others in (("cases", cases), ("sensitivity", assumptions)):
            if others and any(arm is not None and arm.workload.agents for arm in checked.values()):
                at = self._document.value[key].origin
                self._faults.append(at.fault("is for calls: a study of agents compares its arms only"))
        if self._faults or head is None:
            faults = dict.fromkeys(self._faults)
            raise BadInput(*sorted(faults, key=lambda fault: (str(fault.file or ""), fault.line or 0)))
        good = {name: arm for name, arm in checked.items() if arm is not None}
        settled = {
            case: settled_run(run, next(arm for name, arm in good.items() if name.startswith(f"{case}/")))
            for case, run in runs.items()
            if run is not None
        }
        return Study(
            name=head.name or re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("._-") or "study",
            seed=head.seed,
            run=settled_run(head.run, next(iter(good.values()))),
            arms=good,
            slo=head.slo,
            thresholds=head.thresholds,
            path=path,
            _base=tuple(found.fault for found in base_found) if base is None else base,
            cases=settled,
            sensitivity=tuple(assumptions),
            _written={key: self._document.value[key].plain() for key in WRITTEN if key in self._document.value},
        )

    def _head(self) -> Head | None:
        table = self._document.plain()
        head, found = _checked(Head, table, self._document)
        self._faults += [f.fault for f in found]
        return head

    def _base(self) -> Node:
        base = {key: node for key, node in self._document.value.items() if key in ARM_KEYS}
        return Node(base, self._document.origin)

    def _arm(self, node: Node) -> tuple[Arm | None, list[_Found]]:
        return _checked(Arm, node.plain(), node)

    def _alternatives(self, key: str, tags: tuple[str, ...]) -> dict[str, _Alternative]:
        """Return the tables of ``[arms]``, ``[cases]`` or ``[sensitivity]``."""
        tables = self._document.get(key)
        found: dict[str, _Alternative] = {}
        if tables is None or not isinstance(tables.value, dict):
            return found
        for name, node in tables.value.items():
            if isinstance(node.value, dict):
                found[name] = _Alternative(node, tags)
            else:
                keys = (*ARM_KEYS, "run") if key == "cases" else ARM_KEYS
                allowed = f"must be a table of {', '.join(keys)}, got {node.plain()!r}"
                self._faults.append(node.origin.fault(allowed))
        return found

    def _run(self, case: Node) -> RunTable | None:
        """Return how a case is run: the study's ``[run]`` with what the case says of its span over it."""
        own, run = case.get("run"), self._document.get("run") or Node({}, self._document.origin)
        if own is None:
            return _checked(RunTable, run.plain(), run)[0]
        _, found = _checked(CaseRunTable, own.plain(), own)
        self._faults += [f.fault for f in found]
        if found or not isinstance(run.value, dict):
            return None
        merged = tree.merge(run, own, ())
        return _checked(RunTable, merged.plain(), merged)[0]

    def _crossed(self, arms: Mapping[str, _Alternative], cases: Mapping[str, _Alternative]) -> dict[str, Arm | None]:
        """Return the base with every arm over it, and over each of those every case."""
        checked: dict[str, Arm | None] = {}
        for case in cases or [None]:
            mine: dict[str, Arm | None] = {}
            for arm in arms or [BASE]:
                layers = [table for table in (arms.get(arm), cases.get(case or "")) if table is not None]
                mine[arm] = self._layered(layers)
            checked |= mine if case is None else {f"{case}/{arm}": made for arm, made in mine.items()}
            if case is not None:
                self._faults += _alike(cases[case].node, mine, arms)
        return checked

    def _layered(self, layers: Sequence[_Alternative]) -> Arm | None:
        node = self._base()
        try:
            for layer in layers:
                node = tree.merge(node, layer.node, layer.tags)
            arm, found = self._arm(node)
        except BadInput as error:
            self._faults += error.faults
            return None
        # what is missing from the arm is missing at its own table, not at the file's top
        at = layers[0].node.origin
        self._faults += [
            dataclasses.replace(f.fault, line=at.line, key=f"{at.key}.{f.fault.key}")
            if f.missing and f.fault.line is None
            else f.fault
            for f in found
        ]
        return arm


class _Alternative(NamedTuple):
    """A table that is laid over another one, and the tags by which its tables replace those below."""

    node: Node
    tags: tuple[str, ...]

    def without(self, key: str) -> _Alternative:
        rest = {name: node for name, node in self.node.value.items() if name != key}
        return self._replace(node=Node(rest, self.node.origin))


def _alike(case: Node, made: Mapping[str, Arm | None], arms: Mapping[str, _Alternative]) -> Iterator[Fault]:
    """Yield a fault for two arms that a case makes the same, by setting what they differ in."""
    for one, other in combinations(arms, 2):
        same = made[one] is not None and made[one] == made[other]
        if same and arms[one].node.plain() != arms[other].node.plain():
            yield case.origin.fault(f"leaves no difference between the arms {one} and {other}")


def _checked(table: type[T], given: Value, node: Node) -> tuple[T | None, list[_Found]]:
    try:
        return table.model_validate(given), []
    except ValidationError as error:
        found: list[_Found] = []
        for e in error.errors(include_url=False):
            nearest, rest = node.nearest(without_tags(e["loc"]))
            found.append(_Found(nearest.origin.fault(e["msg"], *rest), e["type"] == "missing"))
        return None, found


def settled_run(run: RunTable, arm: Arm) -> Run:
    """Return how the study is run: a trace or sessions by default once and whole, streams long and in replications."""
    recorded = not arm.workload.streams
    kind = run.kind or ("terminating" if recorded else "steady")
    return Run(
        kind=kind,
        horizon_s=None if recorded and run.horizon is None else run.horizon or DEFAULT_HORIZON_S,
        warmup_s=run.warmup if run.warmup is not None else "auto" if kind == "steady" else 0.0,
        replications=run.replications or (1 if recorded else DEFAULT_REPLICATIONS),
        same_within=run.same_within,
        rank_by=RANK_BY if run.rank_by is None else run.rank_by,
    )
