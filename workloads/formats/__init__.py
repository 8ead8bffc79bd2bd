"""`read_trace`: any trace file as a Trace; the format is found by looking at the first lines.

source.py gives blocks and lines of plain or gzip text; delimited.py (with plain.py for speed), jsonl.py, mapped.py and
otlp.py read them; timestamp.py makes exact nanoseconds, rows.py keeps and rejects. azure.py, splitwise_sim.py,
vidur.py, burstgpt.py and goodput.py describe one form each, columns.py anybody's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from workloads.errors import WorkloadError
from workloads.formats import azure, burstgpt, goodput, jsonl, mapped, otlp, splitwise_sim, vidur
from workloads.formats.columns import Columns, found_at
from workloads.formats.delimited import Table, header_of, matching, read_table
from workloads.formats.rows import Reject, RowSink, ZeroTokens
from workloads.formats.source import Block, after_first_line, lines_of
from workloads.trace import Trace

_PUBLIC = {module.TABLE.name: module.TABLE for module in (azure, splitwise_sim, vidur, burstgpt, goodput)}
_LENGTHS = vidur.LENGTHS
CSV, JSONL = "csv", "jsonl"
FORMATS = (*_PUBLIC, _LENGTHS.name, jsonl.NAME, jsonl.QWEN, otlp.NAME, CSV, JSONL)
NO_ARRIVALS = "no_arrivals"

_YEAR_2000_NS = 946_684_800_000_000_000


def read_trace(
    path: Path | str,
    *,
    format: str | None = None,
    columns: Columns | None = None,
    zero_tokens: ZeroTokens = "drop",
) -> Trace:
    """Read a trace file; `format` (one of FORMATS) overrides what its content says, `columns` maps one's own log.

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
    name = format or _sniff(path, first, columns)
    if name in (JSONL, jsonl.NAME, jsonl.QWEN, otlp.NAME):
        return _read_json(path, name, first, _with_first(number, first, lines_of(path, body)), columns, sink)
    return _read_table(path, name, first, body, columns, sink)


def _with_first(number: int, first: str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield number, first
    yield from lines


def _read_table(
    path: Path, name: str, header: str, body: Iterator[Block], columns: Columns | None, sink: RowSink
) -> Trace:
    if name == CSV:
        columns = columns or _guessed(path, header, _in_header(header))
        table = columns.table()
    else:
        table = _LENGTHS if name == _LENGTHS.name else _PUBLIC[name]
        table = goodput.table(header_of(header)[1]) if name == goodput.NAME else table
    read_table(path, header, body, table, sink)
    trace = sink.trace(path.name, absolute=table.absolute or name == CSV, block_tokens=table.block_tokens)
    if name == CSV:
        trace = _dated(trace)
    return _finished(trace, timed=table.time is not None)


def _read_json(
    path: Path, name: str, first: str, body: Iterator[tuple[int, str]], columns: Columns | None, sink: RowSink
) -> Trace:
    absolute, timed, block_tokens = True, True, 0
    if name == otlp.NAME:
        otlp.read_spans(body, sink)
        needed = "spans with gen_ai.usage attributes"
    elif name == JSONL:
        columns = columns or _guessed(path, first, _in_object(first))
        mapped.read_lines(body, columns, sink)
        needed = str(columns)
        timed, block_tokens = columns.time is not None, columns.block_tokens
    else:
        jsonl.read_lines(body, sink, qwen=name == jsonl.QWEN)
        absolute, block_tokens = False, jsonl.BLOCK_TOKENS[name]
        needed = ", ".join(jsonl.REQUIRED)
    if not len(sink) and {row.reason for row in sink.rejected} <= {"columns"} and (sink.rejected or name == otlp.NAME):
        raise WorkloadError(
            f"No line of {path} has all of what a {name} trace needs: {needed}.",
            code="missing_column",
            hint="docs/traces.md describes the formats; --columns maps one of your own.",
        )
    trace = sink.trace(path.name, absolute=absolute, block_tokens=block_tokens)
    return _finished(_dated(trace) if name == JSONL else trace, timed=timed)


def _dated(trace: Trace) -> Trace:
    """Times of a log whose unit is not known to be a date: those before the year 2000 count from some start."""
    return replace(trace, origin_ns=None) if (trace.origin_ns or 0) < _YEAR_2000_NS else trace


def _finished(trace: Trace, *, timed: bool) -> Trace:
    """With a word about times that are missing."""
    if not timed:
        word = f"{NO_ARRIVALS}: the file holds lengths only; arrivals have to be made (--arrivals)"
        return replace(trace, origin_ns=None, warnings=(*trace.warnings, word))
    return trace


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
            hint=f"Known formats are {', '.join(FORMATS)}; docs/traces.md lists their columns, --columns maps others.",
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
