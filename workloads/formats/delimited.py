"""Tables with a header line: finds the separator and the columns of a format, then reads row after row.

Plain rows are read a block at a time (plain.py); quotes, blanks, odd times and whatever must be rejected come here.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from workloads.errors import WorkloadError
from workloads.formats import plain
from workloads.formats.names import Names, slo_class
from workloads.formats.plain import Layout, TimeForm
from workloads.formats.rows import Reject, RowSink, whole
from workloads.formats.source import Block, decoded
from workloads.formats.times import Times
from workloads.formats.timestamp import Unreadable

_SEPARATORS = ",\t;|"
_OPTIONAL = ("session", "turn", "slo_class", "blocks")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A trace format that is a table: its column names and how its time column reads.

    `form` is the usual shape of its times, which plain.py reads in numpy; None when it knows no such shape. Without a
    `time` column all rows are given time 0.
    """

    name: str
    prompt: str
    output: str
    time: str | None = None
    unit: str | None = None  # of its times; None when it has none, or each says its own
    nanoseconds: Callable[[str], int] = int
    form: TimeForm | None = None
    absolute: bool = False
    session: str | None = None
    turn: str | None = None
    slo_class: str | None = None
    blocks: str | None = None
    block_tokens: int = 0
    numbered: bool = False  # sessions are numbers already

    @property
    def required(self) -> list[str]:
        return [name for name in (self.time, self.prompt, self.output) if name is not None]

    def read_in(self, times: Times) -> Table:
        """The same table with times in another unit."""
        form: TimeForm | None = "seconds" if times.unit == "s" else None
        return replace(self, unit=times.unit, nanoseconds=times.nanoseconds, form=form)


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


def read_table(path: Path, header: str, body: Iterable[Block], table: Table, sink: RowSink) -> None:
    """Read every row after the header into the sink; a header that lacks a column raises WorkloadError."""
    separator, columns = header_of(header)
    _check_present(path, columns, table)
    reader = _Rows(path, separator, columns, table, sink)
    layout = reader.layout()
    for first, block in body:
        others: Iterable[int] | None = None
        if layout is not None:
            rows = plain.read_block(block, layout)
            sink.extend(rows.line + first, rows.ns, rows.prompt, rows.output)
            others = rows.others
        if others is None or others:
            reader.read(first, decoded(path, block).split("\n"), others)
    reader.finish()


class _Rows:
    """Reads single rows of one table."""

    def __init__(self, path: Path, separator: str, columns: list[str], table: Table, sink: RowSink) -> None:
        def position(name: str | None) -> int | None:
            return _position(path, columns, name) if name is not None and _has(columns, name) else None

        self._separator, self._table, self._sink = separator, table, sink
        self._width = len(columns)
        self._time, self._prompt, self._output = map(position, (table.time, table.prompt, table.output))
        given = {kind: position(getattr(table, kind)) for kind in _OPTIONAL}
        self._optional = {kind: at for kind, at in given.items() if at is not None}
        self._sessions, self._classes = Names(), Names()

    def layout(self) -> Layout | None:
        """What plain.py needs to know; None when it cannot read this table."""
        form, time, prompt, output = self._table.form, self._time, self._prompt, self._output
        if form is None or self._optional or time is None or prompt is None or output is None:
            return None
        return Layout(self._separator, self._width, time, prompt, output, form)

    def read(self, first: int, lines: list[str], others: Iterable[int] | None) -> None:
        """Read these of the lines, or all of them."""
        for offset in range(len(lines)) if others is None else others:
            text = lines[offset]
            if text and not text.isspace():
                self._read_line(first + offset, text)

    def finish(self) -> None:
        """Say which numbers names got."""
        if self._classes:
            self._sink.warnings.append(f"classes: {self._classes}")

    def _read_line(self, line: int, text: str) -> None:
        try:
            fields = split(text, self._separator)
            if len(fields) != self._width:
                fields = _fitted(fields, self._width)
            assert self._prompt is not None
            assert self._output is not None
            ns = 0 if self._time is None else self._table.nanoseconds(fields[self._time].strip())
            prompt, output = whole(fields[self._prompt]), whole(fields[self._output])
            self._sink.add(line, ns, prompt, output, **self._extras(fields))
        except Unreadable as error:
            self._sink.untimed(line, error)
        except Reject as reason:
            self._sink.reject(line, str(reason))

    def _extras(self, fields: list[str]) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        for kind, at in self._optional.items():
            text = fields[at].strip()
            if not text:
                continue
            if kind == "session":
                extras[kind] = whole(text) if self._table.numbered else self._sessions.number(text)
            elif kind == "slo_class":
                extras[kind] = slo_class(text, self._classes)
            elif kind == "turn":
                extras[kind] = whole(text)
            else:
                extras[kind] = _blocks(text)
        return extras


def _blocks(text: str) -> Sequence[int]:
    try:
        return array("q", map(int, text.split()))
    except (ValueError, OverflowError):
        raise Reject("hash_ids") from None


def _fitted(fields: list[str], width: int) -> list[str]:
    """Empty cells after the last column are harmless; anything else there, or too few cells, is not."""
    if len(fields) < width or any(field.strip() for field in fields[width:]):
        raise Reject("columns")
    return fields


def _has(columns: Sequence[str], name: str) -> bool:
    return name.lower() in {column.lower() for column in columns}


def _check_present(path: Path, columns: Sequence[str], table: Table) -> None:
    missing = [name for name in table.required if not _has(columns, name)]
    if missing:
        raise WorkloadError(
            f"{path} lacks {_listed(missing)} of the {table.name} format; it has {_listed(columns)}.",
            code="missing_column",
            hint=f"The columns of {table.name} are {', '.join(table.required)}.",
        )


def _position(path: Path, columns: Sequence[str], name: str) -> int:
    found = [index for index, column in enumerate(columns) if column.lower() == name.lower()]
    if len(found) > 1:
        raise WorkloadError(
            f"{path} has the column {name} {len(found)} times.", code="duplicate_column", hint="Keep one of them."
        )
    return found[0]


def _listed(names: Sequence[str]) -> str:
    return f"the column{'s' if len(names) != 1 else ''} {shorten(', '.join(names), 300)}"
