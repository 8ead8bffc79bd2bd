"""Tables with a header line: finds the separator and the columns of a format, then reads row after row."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from workloads.errors import WorkloadError
from workloads.formats.rows import Reject, RowSink, whole
from workloads.formats.timestamp import Unreadable

_SEPARATORS = ",\t;|"


@dataclass(frozen=True)
class Table:
    """A public trace format that is a table: its column names and how its time column reads."""

    name: str
    time: str
    prompt: str
    output: str
    nanoseconds: Callable[[str], int]
    absolute: bool = False
    session: str | None = None

    @property
    def required(self) -> tuple[str, str, str]:
        return self.time, self.prompt, self.output


def split(line: str, separator: str) -> list[str]:
    """The fields of one line; a field in double quotes may hold the separator."""
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator))
    except csv.Error:
        raise Reject("columns") from None


def header_of(line: str) -> tuple[str, list[str]]:
    """The separator of a header line (the one that occurs most) and its column names."""
    separator = max(_SEPARATORS, key=line.count)
    try:
        return separator, [name.strip() for name in split(line, separator)]
    except Reject:
        return separator, [line]


def matching(columns: Sequence[str], table: Table) -> int:
    """How many of the table's columns the header has."""
    found = {name.lower() for name in columns}
    return sum(name.lower() in found for name in table.required)


def read_table(path: Path, header: str, body: Iterable[tuple[int, str]], table: Table, sink: RowSink) -> None:
    """Read every row after the header into the sink; a header that lacks a column raises WorkloadError."""
    separator, columns = header_of(header)
    time, prompt, output = (_position(path, columns, name) for name in _present(path, columns, table))
    session = _position(path, columns, table.session) if table.session and _has(columns, table.session) else None
    sessions: dict[str, int] = {}
    width = len(columns)
    for line, text in body:
        try:
            fields = split(text, separator)
            if len(fields) != width:
                fields = _fitted(fields, width)
            sink.add(
                line,
                table.nanoseconds(fields[time].strip()),
                whole(fields[prompt]),
                whole(fields[output]),
                session=-1 if session is None else _session(fields[session].strip(), sessions),
            )
        except Unreadable:
            sink.reject(line, "timestamp")
        except Reject as reason:
            sink.reject(line, str(reason))


def _session(text: str, sessions: dict[str, int]) -> int:
    """A number for a session's name; an empty cell belongs to none."""
    return sessions.setdefault(text, len(sessions)) if text else -1


def _fitted(fields: list[str], width: int) -> list[str]:
    """Empty cells after the last column are harmless; anything else there, or too few cells, is not."""
    if len(fields) < width or any(field.strip() for field in fields[width:]):
        raise Reject("columns")
    return fields


def _has(columns: Sequence[str], name: str) -> bool:
    return name.lower() in {column.lower() for column in columns}


def _present(path: Path, columns: Sequence[str], table: Table) -> tuple[str, str, str]:
    missing = [name for name in table.required if not _has(columns, name)]
    if missing:
        raise WorkloadError(
            f"{path} lacks {_listed(missing)} of the {table.name} format; it has {_listed(columns)}.",
            code="missing_column",
            hint=f"A {table.name} table has the columns {', '.join(table.required)}.",
        )
    return table.required


def _position(path: Path, columns: Sequence[str], name: str) -> int:
    found = [index for index, column in enumerate(columns) if column.lower() == name.lower()]
    if len(found) > 1:
        raise WorkloadError(
            f"{path} has the column {name} {len(found)} times.", code="duplicate_column", hint="Keep one of them."
        )
    return found[0]


def _listed(names: Sequence[str]) -> str:
    return f"the column{'s' if len(names) != 1 else ''} {shorten(', '.join(names), 300)}"
