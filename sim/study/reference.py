"""The reference of study files as Markdown, made from the tables: ``python -m sim.study.reference > docs/study.md``."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from policies.context import CONTEXT_POLICIES
from policies.output import POLICIES
from policies.profiles import PROFILES
from sim.quantities import DURATIONS, SIZES, Hint
from sim.steptime import STEP_TIMES
from sim.study.choices import NOTHING, Nested, Table, first_line, table_of
from sim.study.server import GIVEN, FaultsTable, ServerTable
from sim.study.study import templates
from sim.study.tables import (
    KNOWN,
    NESTED,
    CaseRunTable,
    Head,
    PolicyTable,
    Replications,
    RetryTable,
    RunTable,
    StreamTable,
    ToolTable,
    WorkloadTable,
)
from sim.thresholds import Threshold
from workloads.agents import AGENTS
from workloads.arrivals import LOADS
from workloads.durations import DURATIONS as LAWS_OF_DURATIONS
from workloads.lengths import LENGTHS

_INTRODUCTION = f"""# Study files

One TOML file holds a study. `slotsim init --template quickstart -o study.toml` starts one, and
`slotsim validate study.toml` says everything that is wrong with it, each fault with its line. `slotsim schema` prints
the JSON Schema: with `#:schema study.schema.json` as the first line, editors complete and check the keys.

This page is made from the code: `python -m sim.study.reference > docs/study.md`.

- **Arms.** `[arms.NAME]` is the base with the arm's `server`, `policy` and `workload` laid over it, key by key. A table
  that gives `name`, `kind` or `engine` another value than the base *replaces* the base's table. The first arm is the
  baseline. Without arms there is one, named `base`.
- **Cases.** `[cases.NAME]` says under which other circumstances all arms are compared: other lengths, another server,
  another step time. Its tables are laid over every arm, key by key; another `name` or `kind` replaces a table, another
  `engine` keeps model and GPU. Each case is an experiment of its own, with the same calls for all of its arms, which
  are named `CASE/ARM`; the arms of each are ranked (`run.rank_by`). A case must leave the arms different. What a case
  sets holds for every arm, also for one whose table replaces the base's: so it comes last.
- **Sensitivity.** `[sensitivity.NAME]` is another assumption under which the comparison is repeated: another step-time
  model, other constants, a longer tail. It is written and laid over the arms as a case is; but where a case is a
  question of its own, an assumption is asked what it leaves of the one answer. A verdict, or the order of the arms
  under a metric (`run.rank_by`: all pairs of which one is better for sure), *survives* if it is said again, *opens* if
  it is no longer said, *turns* if the contrary is.
- **`--set KEY=VALUE`** changes the base; `arms.NAME.KEY` reaches an arm, `cases.NAME.KEY` a case,
  `sensitivity.NAME.KEY` an assumption. The value is read as
  TOML, and as text where it is none. Another `name` or `kind` replaces its table here too; another `engine` keeps model
  and GPU.
- **Lists of tables** are changed element by element, by `name` or by index: `workload.streams.chat.arrivals.rate`, in
  `--set` as well as in an arm. A list replaces the list.
- **Durations** are seconds, or text with a unit: {", ".join(DURATIONS)}. **Counts** may carry {", ".join(SIZES)}:
  `8k` is 8,000 tokens, `8Ki` is 8,192.
- **Paths** in a file are relative to that file, on the command line to the working directory. `workload.path` replaces
  the streams.
- **Dotted names** in `[slo]` and `[thresholds]` may stand with or without quotes.
"""


def markdown() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    yield from _section("The study", "", Head)
    yield from _section("`[run]`", "", RunTable)
    yield from _section("`[run] replications = { ... }`", "", Replications)
    yield from _section("`[cases.NAME.run]`", "", CaseRunTable)
    yield from _section("`[server]`", "", ServerTable)
    yield from _choices("`[server] step_time`", "kind", STEP_TIMES, GIVEN)
    yield from _section("`[server.faults]`", "", FaultsTable)
    yield from _section("`[policy]`", "", PolicyTable)
    yield from _choices("`[policy.output]`", "name", POLICIES)
    yield from _profiles()
    yield from _choices("`[policy.context]`", "name", CONTEXT_POLICIES)
    yield from _section("`[policy.retry]`", "", RetryTable)
    yield from _section("`[workload]`", "", WorkloadTable)
    yield from _section("`[[workload.streams]]`", "", StreamTable)
    yield from _section("`[[workload.streams]] tool = { ... }`", "", ToolTable)
    yield from _choices("`[[workload.agents]]`", "kind", AGENTS)
    yield from _choices("`arrivals`", "kind", LOADS, nested=NESTED)
    yield from _choices("`think`, `patience`, `timeout`", "kind", LAWS_OF_DURATIONS)
    yield from _choices("`prompt`, `output`", "kind", LENGTHS)
    yield "## Bundled studies\n"
    for name, text in templates().items():
        yield f"### `{name}`\n\n```toml\n{text.rstrip()}\n```\n"


def _section(title: str, tag: str, table: type[Table], level: str = "##") -> Iterator[str]:
    yield f"{level} {title}\n"
    yield f"{first_line(table)}\n"
    rows = [row for row in _rows(table) if row[0] != f"`{tag}`"]
    if rows:
        yield "| key | value | default | what |"
        yield "|---|---|---|---|"
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""


def _choices(
    title: str, tag: str, options: Mapping[str, type], given: tuple[str, ...] = (), nested: Nested = NOTHING
) -> Iterator[str]:
    yield f"### {title}: one of\n"
    for name, target in options.items():
        yield from _section(f'`{tag} = "{name}"`', tag, table_of(target, tag, name, given, nested), "####")


def _profiles() -> Iterator[str]:
    yield "#### What is known to run in the wild\n"
    yield "These names stand for a policy with other defaults, and with rules of their own (`docs/policies.md`).\n"
    yield "| `name` | source | policy |"
    yield "|---|---|---|"
    names = {kind: name for name, kind in POLICIES.items()}
    for name, policy in KNOWN.items():
        yield f"| `{name}` | {PROFILES[name].source} | as `{names[type(policy)]}` |"
    yield ""


def _rows(table: type[Table]) -> Iterator[tuple[str, str, str, str]]:
    for name, field in table.model_fields.items():
        default = "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
        what = " ".join((field.description or "").split()).replace("``", "`").replace("|", "\\|")
        yield f"`{field.alias or name}`", _kind(field.annotation, field.metadata), default, what


def _value(value: object) -> str:
    """Return a default as TOML writes it; nothing for what is left out."""
    if value is None or value == {} or value == () or isinstance(value, Table):
        return ""
    from sim.study.toml import inline

    return f"`{inline(list(value) if isinstance(value, tuple) else value)}`"


def _kind(hint: Hint, metadata: Iterable[Hint] = ()) -> str:
    """Return a type in words."""
    named = [note for note in metadata if isinstance(note, str)]
    if named:
        return named[0]
    origin: Hint = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return _kind(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_kind(argument) for argument in arguments if argument is not type(None)))
    if origin is Literal:
        return " or ".join(f"`{argument!r}`".replace("'", '"') for argument in arguments)
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is dict and arguments[1] is not Any:
        return f"table of {_kind(arguments[1])}"
    return _NAMES.get(hint, "table")


_NAMES: Mapping[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    Threshold: "text",
}


if __name__ == "__main__":
    print(markdown(), end="")
