"""JSON lines with a column map: logs of gateways and of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workloads.formats.columns import Columns, count, found_at
from workloads.formats.jsonl import blocks_of, parse
from workloads.formats.names import Names, slo_class
from workloads.formats.rows import Reject, RowSink
from workloads.formats.times import Times
from workloads.formats.timestamp import Unreadable


def read_lines(body: Iterable[tuple[int, str]], columns: Columns, times: Times, sink: RowSink) -> None:
    """Read every line into the sink."""
    reader = RowReader(columns, times, sink)
    for line, text in body:
        try:
            row = parse(text)
        except Reject as reason:
            sink.reject(line, str(reason))
        else:
            reader.read(line, row)
    reader.finish()


class RowReader:
    """Takes rows that are objects."""

    def __init__(self, columns: Columns, times: Times, sink: RowSink) -> None:
        self._columns, self._times, self._sink = columns, times, sink
        self._sessions, self._classes = Names(), Names()

    def read(self, line: int, row: Any) -> None:
        """Keep a row, or remember why not."""
        columns, sink = self._columns, self._sink
        try:
            ns = 0
            if columns.time is not None:
                ns = self._times.nanoseconds(_needed(row, columns.time))
            prompt, output = (count(_needed(row, path)) for path in (columns.prompt, columns.output))
            sink.add(line, ns, prompt, output, **self._extras(row))
        except Unreadable as error:
            sink.untimed(line, error)
        except Reject as reason:
            sink.reject(line, str(reason))

    def finish(self) -> None:
        """Say which numbers names got."""
        if self._classes:
            self._sink.warnings.append(f"classes: {self._classes}")

    def _extras(self, row: Any) -> dict[str, Any]:
        columns = self._columns
        extras: dict[str, Any] = {}
        for name in ("session", "turn", "slo_class", "blocks"):
            path = getattr(columns, name)
            value = None if path is None else found_at(row, path)
            if value is None or value == "":
                continue
            if name == "session":
                extras[name] = self._sessions.number(str(value))
            elif name == "slo_class":
                extras[name] = slo_class(str(value), self._classes)
            else:
                extras[name] = count(value) if name == "turn" else blocks_of(value)
        return extras


def _needed(row: Any, path: str) -> Any:
    value = found_at(row, path)
    if value is None:
        raise Reject("columns")
    return value
