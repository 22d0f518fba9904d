"""JSON lines: one record a line, each value asked for by name and checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar, cast

from workloads.errors import did_you_mean
from workloads.readers import values
from workloads.readers.faults import FaultLog
from workloads.readers.stream import Chunk

T = TypeVar("T")
_MISSING = object()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def parse(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value; NaN and Infinity are refused.

    Raises
    ------
    ValueError
        With one clear line, also for a value nested too deep.
    """
    try:
        return _DECODER.decode(data.decode())
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None


class Record:
    """One JSON object of a log.

    Parameters
    ----------
    data
        The object.
    line
        Where it stands.
    log
        Who hears of its faults.
    """

    __slots__ = ("bad", "data", "line", "log")

    def __init__(self, data: Mapping[str, Any], line: int | None, log: FaultLog) -> None:
        self.data, self.line, self.log, self.bad = data, line, log, False

    def get(self, key: str, read: Callable[[object], T], default: T | None = None) -> T | None:
        """Return the value under a dotted key, ``default`` where there is none (or null); a bad value is a fault."""
        value = self.find(key)
        if value is _MISSING or value is None:
            return default
        try:
            return read(value)
        except values.Bad as error:
            self.fault(key, str(error), "bad value")
            return default

    def need(self, key: str, read: Callable[[object], T], fallback: Any) -> T:  # noqa: ANN401 - [] is a list of all
        """Return the value under a dotted key; if it is missing or bad that is a fault and ``fallback`` is returned."""
        value, otherwise = self.find(key), cast(T, fallback)
        if value is _MISSING:
            self.fault(key, f"is missing{did_you_mean(key, self.data)}", "is missing")
            return otherwise
        try:
            return read(value)
        except values.Bad as error:
            self.fault(key, str(error), "bad value")
            return otherwise

    def find(self, key: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return the raw value under a key, else under its dotted path, else a marker that is no JSON value."""
        if key in self.data:
            return self.data[key]
        value: Any = self.data
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return _MISSING
            value = value[part]
        return value

    def has(self, key: str) -> bool:
        """Return whether there is a value (not null) under the key."""
        value = self.find(key)
        return value is not _MISSING and value is not None

    def fault(self, key: str | None, message: str, reason: str | None = None) -> None:
        """Note a fault of this record and mark it."""
        self.bad = True
        self.log.add(self.line, key, message, reason)


def records(chunks: Iterator[Chunk], log: FaultLog) -> Iterator[Record]:
    """Yield the object of each line that is not blank; lines that hold none go to the log."""
    for chunk in chunks:
        for number, line in chunk.lines():
            try:
                data = parse(line)
            except ValueError as error:
                log.add(number, None, str(error), "is no JSON")
                continue
            if isinstance(data, dict):
                yield Record(data, number, log)
            else:
                log.add(number, None, f"must be a JSON object, is {type(data).__name__}", "is no JSON object")


def entries(value: object) -> list[Mapping[str, Any]]:
    """Return a list of JSON objects."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise values.Bad("must be a list of objects")
    return value
