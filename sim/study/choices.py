"""Tables of a study made from the dataclasses they stand for.

A policy, an arrival process, a length law or a step-time model says once, in its own fields, which constants it has.
Here those fields become a table that a study may write: checks, messages, JSON Schema and reference follow.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import operator
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    LiteralString,
    Self,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    StrictBool,
    StrictStr,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from sim.quantities import Hint, quantity
from sim.study.tree import Value
from workloads.errors import BadInput, did_you_mean


def complaint(message: str, *loc: str | int, kind: LiteralString = "fault") -> InitErrorDetails:
    """Return one fault in the form in which pydantic gathers them; ``missing`` is the kind of what is not there."""
    return InitErrorDetails(type=PydanticCustomError(kind, "{text}", {"text": message}), loc=loc, input=None)


def again(error: ErrorDetails) -> InitErrorDetails:
    """Return a fault that a validator has caught, to be raised with others."""
    kind: LiteralString = "missing" if error["type"] == "missing" else "fault"
    return complaint(_words(error["type"], error["msg"], error["input"]), *error["loc"], kind=kind)


def complaints(*faults: InitErrorDetails) -> ValidationError:
    """Return an error for a validator to raise, with the places of its faults kept."""
    return ValidationError.from_exception_data("table", list(faults))


class Table(BaseModel):
    """One table of a study: no key but its own, nothing changed after it was read, faults in the project's words."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="wrap")
    @classmethod
    def _in_our_words(cls, table: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(table, dict | cls):
            raise complaints(complaint(f"must be a table of {', '.join(cls.written())}, got {table!r}"))

        def read(given: object) -> Self:  # type: ignore[type-var]  # Self of the class method
            made = handler(given)
            made._check()
            return made

        try:
            return read(table)
        except ValidationError as error:
            found = error.errors(include_url=False)
        wrong = {e["loc"][0] for e in found if e["loc"]}
        if isinstance(table, dict) and wrong & table.keys():
            # constants that contradict each other are looked at only in a table whose values are well formed
            rest = {key: value for key, value in table.items() if key not in wrong}
            try:
                read(rest)
            except ValidationError as error:
                found += [e for e in error.errors(include_url=False) if e["loc"] and e["loc"][0] in rest]
        raise complaints(*cls._said(found))

    def _check(self) -> None:
        """Raise :func:`complaints` about values that are well formed but contradict each other."""

    @classmethod
    def _said(cls, found: Sequence[ErrorDetails]) -> Iterator[InitErrorDetails]:
        """Yield what pydantic found, in the project's words; a key that is misspelt is not also said to be missing."""
        misspelt = set()
        for e in found:
            if len(e["loc"]) == 1 and e["type"] == "extra_forbidden":
                near = closest(str(e["loc"][0]), cls.written())
                misspelt.add(near)
                hint = f" - did you mean {near!r}?" if near else f", allowed: {', '.join(cls.written())}"
                yield complaint(f"unknown key{hint}", *e["loc"])
            elif e["type"] != "missing":
                yield again(e)
        for e in found:
            if e["type"] == "missing" and not (len(e["loc"]) == 1 and e["loc"][0] in misspelt):
                yield again(e)

    @classmethod
    def written(cls) -> list[str]:
        """Return the keys of the table as a study writes them."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def closest(word: str, allowed: Collection[str]) -> str:
    """Return the nearest of some words, an empty text if none is near."""
    return next(iter(difflib.get_close_matches(word, allowed, n=1)), "")


def _words(kind: str, message: str, given: object) -> str:
    if message == "Field required":
        return "missing"
    message = (
        message.removeprefix("Value error, ")
        .replace("Input should be", "must be", 1)
        .replace("a valid tuple", "a list")
        .replace("a valid dictionary", "a table")
    )
    if kind in ("fault", "missing", "value_error"):
        return message
    near = did_you_mean(given, message.split("'")[1::2]) if kind == "literal_error" and isinstance(given, str) else ""
    return f"{message}, got {given!r}{near}"


class Choice(Table):
    """A table that stands for an object of one class."""

    target: ClassVar[Callable[..., Any]]
    tag: ClassVar[str]
    given: ClassVar[tuple[str, ...]]
    """Fields of the class that no study writes here: the caller gives them on building."""

    @property
    def chosen(self) -> str:
        """The name under which the class stands in its list."""
        return str(getattr(self, self.tag))

    @property
    def constants(self) -> dict[str, Any]:
        """The constants of the object, defaults filled in."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != self.tag}

    def build(self, **given: Value) -> Value:
        """Return the object; ``given`` are the fields named by :attr:`given`."""
        return self.target(**{name: built(value) for name, value in self.constants.items()}, **given)

    def _check(self) -> None:
        if not self.given:
            try:
                self.build()
            except (BadInput, ValueError) as error:
                raise complaints(*refusals(error, type(self).model_fields)) from None


def refusals(error: BadInput | ValueError, keys: Collection[str]) -> list[InitErrorDetails]:
    """Return the faults that an object found in its own constants, each at its key where it names one."""
    if isinstance(error, BadInput):
        said = [(f.key or "", f"{f.file}: {f.message}" if f.file else f.message) for f in error.faults]
    else:
        parts = [part.partition(": ") for part in str(error).split("; ")]
        said = [(key, text) if colon else ("", key) for key, colon, text in parts]
    return [
        complaint(text, *(int(part) if part.isdecimal() else part for part in key.split(".")))
        if key.partition(".")[0] in keys
        else complaint(f"{key}: {text}" if key else text)
        for key, text in said
    ]


def built(value: Value) -> Value:
    """Return a value of a table with the objects in place of the tables that stand for them."""
    if isinstance(value, Choice):
        return value.build()
    if isinstance(value, tuple):
        return tuple(map(built, value))
    return value


Nested = Mapping[Hint, Hint]
"""How a study writes what it cannot write of itself: by the class of the field, the type of the key."""
NOTHING: Nested = {}


Option: TypeAlias = Any
"""What a table may stand for: a dataclass, or one of its objects, whose values then are the table's defaults."""


def table_of(
    option: Option, tag: str, name: str, given: tuple[str, ...] = (), nested: Nested = NOTHING
) -> type[Choice]:
    """Return the table that a study writes for an option: its tag, then its fields except the given ones."""
    target = option if isinstance(option, type) else type(option)
    fields: dict[str, Any] = {tag: (Literal[name], Field(description=first_line(target)))}
    said = attribute_docs(target)
    hints = get_type_hints(target)
    own = [field for field in dataclasses.fields(target) if field.init]
    for field in own:
        kind = None if field.name in given else _written(hints[field.name], field.name, nested)
        if kind is None:
            continue
        if option is not target:
            default = Field(getattr(option, field.name), description=said.get(field.name))
        elif isinstance(field.default, int | float | str | tuple | None):
            default = Field(field.default, description=said.get(field.name))
        elif field.default is not dataclasses.MISSING:
            default = Field(default_factory=partial(_itself, field.default), description=said.get(field.name))
        elif field.default_factory is not dataclasses.MISSING:
            default = Field(default_factory=field.default_factory, description=said.get(field.name))
        else:
            default = Field(description=said.get(field.name))
        fields[field.name] = (kind, default)
    model: type[Choice] = create_model(name, __base__=Choice, __doc__=first_line(target), **fields)
    model.target = target if option is target else partial(dataclasses.replace, option)
    model.tag = tag
    model.given = tuple(field.name for field in own if field.name in given)
    return model


def _itself(value: Value) -> Value:
    return value


def _written(hint: Hint, name: str, nested: Nested) -> Hint:
    """Return how a study writes a value of a Python type, None if it cannot."""
    if hint in nested:
        return nested[hint]
    origin: Hint = get_origin(hint)
    arguments = get_args(hint)
    if hint is Any:  # what the object itself looks at
        return hint
    if hint is bool:
        return StrictBool
    if hint is str:
        return StrictStr
    if hint is int or hint is float:
        return quantity(hint, name)
    if hint is type(None) or origin is Literal or (inspect.isclass(hint) and issubclass(hint, Enum)):
        return hint
    if origin in (Union, types.UnionType):
        # a study writes what it can of the alternatives: a name where a program may also pass the object
        some = [kind for argument in arguments if (kind := _written(argument, name, nested)) is not None]
        return Annotated[_union(some), WrapValidator(_any_of)] if set(some) - {type(None)} else None
    kinds = [_written(argument, name, nested) for argument in arguments if argument is not Ellipsis]
    if not kinds or None in kinds:
        return None
    if origin is tuple:
        return tuple.__class_getitem__((*kinds, ...) if Ellipsis in arguments else tuple(kinds))
    if origin in (list, Sequence):
        return tuple.__class_getitem__((kinds[0], ...))
    return dict.__class_getitem__(tuple(kinds)) if origin in (dict, Mapping) else None


def listing(what: str, allowed: Collection[str]) -> str:
    """Return which names are allowed, or where they are listed if they are many."""
    return f"allowed: {', '.join(allowed)}" if len(allowed) < 20 else f"see slotsim list {what}s"


def one_of(what: str, allowed: Collection[str]) -> AfterValidator:
    """Return the check that a text is one of some names; ``what`` they are goes into the message."""
    return AfterValidator(partial(is_one_of, what, allowed))


def is_one_of(what: str, allowed: Collection[str], name: str) -> str:
    """Return a name that is one of some names.

    Raises
    ------
    ValueError
        If it is not.
    """
    if name not in allowed:
        raise ValueError(f"unknown {what} {name!r}, {listing(what, allowed)}{did_you_mean(name, allowed)}")
    return name


def _union(kinds: Sequence[Hint]) -> Hint:
    return functools.reduce(operator.or_, kinds)


def _any_of(value: Value, handler: ValidatorFunctionWrapHandler) -> Value:
    """Say in one fault, not in one an alternative, that a value is none of them."""
    try:
        return handler(value)
    except ValidationError as error:
        said = dict.fromkeys(_words(e["type"], e["msg"], e["input"]) for e in error.errors(include_url=False))
        raise ValueError("; or ".join(said)) from None


def choice_of(
    what: str, tag: str, options: Mapping[str, Option], given: tuple[str, ...] = (), nested: Nested = NOTHING
) -> Hint:
    """Return the type of a key whose table names one of several options, by ``tag``.

    Parameters
    ----------
    what
        What the options are, for messages: ``output policy``.
    tag
        The key that names one: ``name`` or ``kind``.
    options
        Classes by their names, or objects that are known by one.
    given
        Fields that the caller gives on building, where a class has them.
    nested
        The tables of fields that are choices themselves.
    """
    tables = {name: table_of(option, tag, name, given, nested) for name, option in options.items()}

    def check(table: object) -> object:
        if isinstance(table, str):
            table = {tag: table}
        if isinstance(table, Choice):
            return table
        if not isinstance(table, dict):
            raise complaints(complaint(f"must be a table with a {tag}, one of {', '.join(tables)}, got {table!r}"))
        name = table.get(tag)
        if not isinstance(name, str) or name not in tables:
            allowed = f"allowed: {', '.join(tables)}"
            if name is None:
                raise complaints(complaint(f"missing, {allowed}", tag, kind="missing"))
            near = did_you_mean(str(name), tables)
            raise complaints(complaint(f"unknown {what} {name!r}, {allowed}{near}", tag))
        return table

    if len(tables) == 1:
        return Annotated[next(iter(tables.values())), BeforeValidator(check), _OrName(tuple(tables))]
    union = _union([Annotated[table, Tag(f"<{name}>")] for name, table in tables.items()])
    return Annotated[union, Discriminator(_tag_of(tag)), BeforeValidator(check), _OrName(tuple(tables))]


@dataclasses.dataclass(frozen=True)
class _OrName:
    """Tells the JSON Schema that the name alone stands for the table with nothing but defaults."""

    names: tuple[str, ...]

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": list(self.names)}, handler(schema)]}


def _tag_of(tag: str) -> Callable[[Value], str]:
    return lambda table: f"<{table[tag] if isinstance(table, dict) else table.chosen}>"


def without_tags(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return a place without the names of alternatives that :func:`choice_of` puts into it."""
    return tuple(part for part in loc if not (isinstance(part, str) and part.startswith("<")))


def first_line(target: type) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(target) or "").partition("\n")[0]


def attribute_docs(target: type) -> dict[str, str]:
    """Return what a numpy-style docstring says about each attribute or parameter, as one line each."""
    docs: dict[str, list[str]] = {}
    for base in reversed(target.__mro__):
        _add_attribute_docs(base.__dict__.get("__doc__") or "", docs)
    return {name: " ".join(words) for name, words in docs.items()}


def _add_attribute_docs(docstring: str, docs: dict[str, list[str]]) -> None:
    section, names = "", list[str]()
    lines = inspect.cleandoc(docstring).splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if below and set(below) == {"-"}:
            section, names = line, []
        elif section in ("Attributes", "Parameters") and line and not line.startswith((" ", "-")):
            names = [name.strip() for name in line.partition(":")[0].split(",")]
            docs |= {name: [] for name in names}
        elif line.startswith(" "):
            for name in names:
                docs[name].append(line.strip())
