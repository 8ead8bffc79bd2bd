"""`read_trace`: any trace file as a Trace; the format is found by looking at the first lines.

source.py gives blocks and lines of plain or gzip text; delimited.py (with plain.py for speed), jsonl.py, mapped.py and
otlp.py read them; timestamp.py makes exact nanoseconds, times.py decides their unit, blocks.py the size of prompt
blocks; rows.py keeps and rejects (outliers.py: what stands years from all others). azure.py, splitwise_sim.py,
vidur.py, burstgpt.py and goodput.py describe one form each, columns.py anybody's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from workloads.errors import WorkloadError
from workloads.formats import azure, blocks, burstgpt, goodput, jsonl, mapped, otlp, splitwise_sim, vidur
from workloads.formats.columns import Columns, found_at
from workloads.formats.delimited import Table, header_of, matching, read_table
from workloads.formats.rows import UNSORTED, Reject, RowSink, ZeroTokens
from workloads.formats.source import Block, after_first_line, lines_of
from workloads.formats.times import UNITS_NS, YEAR_2000_NS, Decision, Times, set_back
from workloads.reading import Decided, Reading
from workloads.trace import Trace

_PUBLIC = {module.TABLE.name: module.TABLE for module in (azure, splitwise_sim, vidur, burstgpt, goodput)}
_LENGTHS = vidur.LENGTHS
CSV, JSONL = "csv", "jsonl"
FORMATS = (*_PUBLIC, _LENGTHS.name, jsonl.NAME, jsonl.QWEN, otlp.NAME, CSV, JSONL)
NO_ARRIVALS = "no_arrivals"
_ONE_PER_LINE = "JSON is read one object per line: `jq -c '.[]'` makes that of a list."


class _Blocks(NamedTuple):
    """The size of prompt blocks, None when nothing says it, and who does."""

    tokens: int | None
    by: Decided


@dataclass(frozen=True, kw_only=True)
class _Stated:
    """What the caller says of a file, which goes before what it looks like; None where nothing is said."""

    format: str | None
    columns: Columns | None
    time_unit: str | None
    block_tokens: int | None

    def times(self, usual: Times) -> Times:
        return Times(self.time_unit, "stated") if self.time_unit else usual

    def blocks(self, tokens: int | None, by: Decided) -> _Blocks:
        return _Blocks(self.block_tokens, "stated") if self.block_tokens else _Blocks(tokens, by)

    def reading(self, name: str) -> Reading:
        said = self.format is not None or self.columns is not None
        return Reading(format=name, format_by="stated" if said else "evidence")


def read_trace(
    path: Path | str,
    *,
    format: str | None = None,
    columns: Columns | None = None,
    zero_tokens: ZeroTokens = "drop",
    time_unit: str | None = None,
    block_tokens: int | None = None,
) -> Trace:
    """Read a trace file; `format` (one of FORMATS) overrides what its content says, `columns` maps one's own log.

    `time_unit` (of numeric times) and `block_tokens` override the format's; where values contradict it, or leave open
    what nothing says, WorkloadError `time_unit` or `block_tokens` is raised. `Trace.reading` says what was decided.
    Rows that cannot be replayed are dropped and listed in `Trace.rejected`; rows with 0 tokens too, or they count
    as 1 (`zero_tokens="clamp"`). No usable row, a missing column or an unknown layout raises WorkloadError.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise WorkloadError(
            f"There is no trace format {format!r}.", code="unknown_format", hint=f"Choose from {', '.join(FORMATS)}."
        )
    found = after_first_line(path)
    if found is None:
        raise WorkloadError(f"{path} is empty.", code="empty_trace", hint="Give a trace with rows.")
    number, first, body = found
    sink = RowSink(path, zero_tokens)
    stated = _Stated(format=format, columns=columns, time_unit=_unit(time_unit, columns), block_tokens=block_tokens)
    name = format or _sniff(path, first, columns)
    if name in (JSONL, jsonl.NAME, jsonl.QWEN, otlp.NAME):
        return _read_json(path, name, first, _with_first(number, first, lines_of(path, body)), stated, sink)
    return _read_table(path, name, first, body, stated, sink)


def _unit(time_unit: str | None, columns: Columns | None) -> str | None:
    """The stated unit of times, from the option or the column map; not two different ones."""
    mapped_unit = columns.unit if columns is not None and columns.unit in UNITS_NS else None
    if time_unit is not None and (time_unit not in UNITS_NS or mapped_unit not in (None, time_unit)):
        raise WorkloadError(
            f"The unit of times cannot be {time_unit!r}{f' and {mapped_unit!r}' if mapped_unit else ''}.",
            code="time_unit",
            hint=f"Give one of {', '.join(UNITS_NS)}.",
        )
    return time_unit or mapped_unit


def _with_first(number: int, first: str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield number, first
    yield from lines


def _read_table(path: Path, name: str, header: str, body: Iterator[Block], stated: _Stated, sink: RowSink) -> Trace:
    if name == CSV:
        columns = stated.columns or _guessed(path, header, _in_header(header))
        times = stated.times(columns.times())
        table, blocks_of = columns.table(times), stated.blocks(columns.block_tokens, columns.blocks_by())
    else:
        table = _LENGTHS if name == _LENGTHS.name else _PUBLIC[name]
        table = goodput.table(header_of(header)[1]) if name == goodput.NAME else table
        by: Decided = "column name" if name == goodput.NAME else "format"
        times, blocks_of = stated.times(Times(table.unit, by)), stated.blocks(table.block_tokens, by)
        table = table.read_in(times) if times.by == "stated" else table
    read_table(path, header, body, table, sink)
    reading = stated.reading(name)
    return _finished(path, sink, reading, times, blocks_of, timed=table.time is not None, absolute=table.absolute)


def _read_json(
    path: Path, name: str, first: str, body: Iterator[tuple[int, str]], stated: _Stated, sink: RowSink
) -> Trace:
    timed, blocks_of = True, stated.blocks(0, "format")
    if name == otlp.NAME:
        times = stated.times(Times(otlp.UNIT, "format"))
        otlp.read_spans(body, times, sink)
        needed = "spans with gen_ai.usage attributes"
    elif name == JSONL:
        columns = stated.columns or _guessed(path, first, _in_object(first))
        times = stated.times(columns.times())
        mapped.read_lines(body, columns, times, sink)
        needed, timed = str(columns), columns.time is not None
        blocks_of = stated.blocks(columns.block_tokens, columns.blocks_by())
    else:
        times = stated.times(Times(jsonl.UNITS[name], "format"))
        jsonl.read_lines(body, times, sink, qwen=name == jsonl.QWEN)
        blocks_of = stated.blocks(jsonl.BLOCK_TOKENS[name], "format")
        needed = ", ".join(jsonl.REQUIRED)
    if not len(sink) and {row.reason for row in sink.rejected} <= {"columns"} and (sink.rejected or name == otlp.NAME):
        raise WorkloadError(
            f"No line of {path} has all of what a {name} trace needs: {needed}.",
            code="missing_column",
            hint="docs/traces.md describes the formats; --columns maps one of your own.",
        )
    return _finished(path, sink, stated.reading(name), times, blocks_of, timed=timed, absolute=name == otlp.NAME)


def _finished(
    path: Path, sink: RowSink, reading: Reading, times: Times, blocks_of: _Blocks, *, timed: bool, absolute: bool
) -> Trace:
    """The rows as a trace, with the unit of its times and the size of its blocks as stated, defined or evident."""
    trace = sink.trace(path.name, block_tokens=blocks_of.tokens or 1)
    if trace.prefix is not None:
        size, by = blocks_of
        if size is None or by != "column name":  # our own files say it, and may have had their prompts cut
            size, by = blocks.decided(path, trace, size, by)
        trace = replace(trace, prefix=replace(trace.prefix, block_tokens=size))
        reading = msgspec.structs.replace(reading, block_tokens=size, block_tokens_by=by)
    if not timed:
        word = f"{NO_ARRIVALS}: the file holds lengths only; arrivals have to be made (--arrivals)"
        return replace(trace, origin_ns=None, warnings=(*trace.warnings, word), reading=reading)
    decision = times.decided(path, trace) if reading.format != goodput.NAME else Decision(times.unit, times.by)
    reading = msgspec.structs.replace(reading, time_unit=decision.unit, time_unit_by=decision.by)
    # Times of a log whose unit is not known to be a date: those before the year 2000 count from some start.
    dated = absolute or (reading.format in (CSV, JSONL) and (trace.origin_ns or 0) >= YEAR_2000_NS)
    return replace(
        trace,
        origin_ns=trace.origin_ns if dated else None,
        warnings=(*trace.warnings, *decision.warnings, *(set_back(trace) if UNSORTED in trace.warnings else ())),
        reading=reading,
    )


def _sniff(path: Path, first: str, columns: Columns | None) -> str:
    """The name of the format whose header or first object this is."""
    if first.lstrip().startswith("{"):
        return JSONL if columns is not None else _sniff_json(first)
    if columns is not None:
        return CSV
    _, header = header_of(first)
    lower = {column.lower() for column in header}
    if goodput.ABSOLUTE in lower:
        return goodput.NAME
    if matching(header, _LENGTHS) == 2 and vidur.LENGTHS_MARK in lower and "arrived_at" not in lower:
        return _LENGTHS.name
    best: Table = max(_PUBLIC.values(), key=lambda table: matching(header, table))
    if matching(header, best) < 2 and Columns.guess(_in_header(first)) is not None:
        return CSV
    if matching(header, best) == 0:
        raise WorkloadError(
            f"The first line of {path} is no header of a known trace format: {first[:80]!r}.",
            code="unknown_format",
            hint=_ONE_PER_LINE
            if first.lstrip().startswith("[")
            else f"Known formats are {', '.join(FORMATS)}; docs/traces.md lists their columns, --columns maps others.",
        )
    return best.name


def _sniff_json(first: str) -> str:
    try:
        row = jsonl.parse(first)
    except Reject:
        return otlp.NAME if first.strip() == "{" or otlp.MARK in first[:200] else jsonl.NAME
    if otlp.MARK in row:
        return otlp.NAME
    if jsonl.is_qwen(row):
        return jsonl.QWEN
    if not any(key in row for key in jsonl.REQUIRED[1:]) and Columns.guess(lambda path: _has(row, path)) is not None:
        return JSONL
    return jsonl.NAME


def _guessed(path: Path, first: str, has: Callable[[str], bool]) -> Columns:
    columns = Columns.guess(has)
    if columns is None:
        raise WorkloadError(
            f"{path} has no columns of the usual names: {first[:80]!r}.",
            code="missing_column",
            hint="Say where they are: --columns time=...,prompt=...,output=...",
        )
    return columns


def _in_header(header: str) -> Callable[[str], bool]:
    lower = {column.lower() for column in header_of(header)[1]}
    return lambda name: name.lower() in lower


def _in_object(first: str) -> Callable[[str], bool]:
    try:
        row = jsonl.parse(first)
    except Reject:
        return lambda _: False
    return lambda path: _has(row, path)


def _has(row: dict[str, Any], path: str) -> bool:
    return found_at(row, path) is not None
