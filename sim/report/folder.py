"""The folder of results: the resolved study, the summary, the records as Parquet, the plots. Whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sim.records import CATEGORIES
from sim.replication import Replication
from sim.rows import Rows
from workloads.errors import BadInput, Fault

ROWS = 1 << 15
"""Rows of a Parquet row group: what is held twice while it is written."""


class Folder:
    """Results on their way to disk: everything goes to a folder beside, which takes its name when all is there.

    Parameters
    ----------
    path
        The folder; replaced if it holds results already.

    Raises
    ------
    BadInput
        If the path is no place for a folder of results.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or (path / "summary.json").exists())):
            raise BadInput(Fault("is there already and holds no results of slotsim; choose another folder", path))
        self._made = [parent for parent in path.parents if not parent.exists()]  # the innermost first
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        except OSError as error:
            raise BadInput(Fault(f"cannot be written: {error.strerror}", path)) from None
        self._writers: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()
        if kind is not None:
            shutil.rmtree(self._work)
            with suppress(OSError):  # somebody else's results have come into it meanwhile
                for parent in self._made:
                    parent.rmdir()
            return
        os.chmod(self._work, 0o755)  # noqa: S103 - a folder like any other, mkdtemp makes private ones
        old = self.path.with_name(f"{self._work.name}-old")
        if self.path.exists():
            self.path.rename(old)
        self._work.rename(self.path)
        shutil.rmtree(old, ignore_errors=True)

    def file(self, name: str) -> Path:
        """Return where to write a file of the folder."""
        return self._work / name

    def text(self, name: str, content: str) -> None:
        """Write a text file."""
        self.file(name).write_text(content, encoding="utf-8")

    def take(self, arm: str, number: int, run: Replication) -> None:
        """Append the records of a replication to the Parquet files."""
        origin = {"arm": arm, "replication": number}
        categories = (("kind", run.kinds), ("script", run.scripts))
        labels = {f"{row}.{column}": names for row in ("call", "task") for column, names in categories}
        self._append("requests.parquet", "request", run.requests, origin, labels)
        self._append("calls.parquet", "call", run.calls, origin, labels)
        if len(run.tasks):
            self._append("tasks.parquet", "task", run.tasks, origin, labels)
        series = run.series
        spans = np.diff(series.time_s)
        keep = spans > 0
        columns: dict[str, Any] = {"time_s": series.time_s[:-1][keep]}
        for name in ("running", "waiting", "reserved", "used"):
            columns[name] = (np.diff(getattr(series, name))[keep] / spans[keep]).astype(np.float32)
        columns["most_running"] = series.most_running[keep].astype(np.int32)
        self._write("timeline.parquet", columns, origin)

    def _append(
        self, file: str, kind: str, rows: Rows, origin: Mapping[str, Any], labels: Mapping[str, tuple[str, ...]]
    ) -> None:
        categories = {**CATEGORIES, **labels}
        for start in range(0, len(rows), ROWS):
            part = rows[start : start + ROWS]
            columns: dict[str, Any] = {}
            for name in rows.dtype.names or ():
                names = categories.get(f"{kind}.{name}")
                columns[name] = part[name] if names is None else _labels(part[name], names)
            self._write(file, columns, origin)

    def _write(self, file: str, columns: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
        length = len(next(iter(columns.values())))
        of_all = np.zeros(length, dtype=np.int32)
        numbers = of_all + np.int32(origin["replication"])
        columns = {"arm": _labels(of_all, (origin["arm"],)), "replication": numbers, **columns}
        arrays = [column if isinstance(column, pa.Array) else _column(column) for column in columns.values()]
        table = pa.Table.from_arrays(arrays, list(columns))
        writer = self._writers.get(file)
        if writer is None:
            labels = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
            writer = pq.ParquetWriter(self.file(file), table.schema, compression="zstd", use_dictionary=labels)
            self._writers[file] = writer
        writer.write_table(table)


def _column(values: NDArray[Any]) -> pa.Array:
    """Return a numpy column as Arrow's, on the same memory.

    ``pyarrow.array`` would do it too, but loads pandas to see whether it was given something of pandas.
    """
    if values.dtype == np.bool_:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _labels(codes: NDArray[np.integer[Any]], names: tuple[str, ...]) -> pa.DictionaryArray:
    texts = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    dictionary = pa.Array.from_buffers(pa.string(), len(names), buffers)
    return pa.DictionaryArray.from_arrays(_column(codes.astype(np.int32)), dictionary)
