"""`read_trace`: any public trace file as a Trace; the format is found by looking at the first lines.

source.py gives lines of plain or gzip text, delimited.py and jsonl.py read them, timestamp.py makes exact nanoseconds,
rows.py keeps and rejects; azure.py, splitwise_sim.py, vidur.py and burstgpt.py describe one public format each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from workloads.errors import WorkloadError
from workloads.formats import azure, burstgpt, jsonl, splitwise_sim, vidur
from workloads.formats.delimited import Table, header_of, matching, read_table
from workloads.formats.rows import Reject, RowSink, ZeroTokens
from workloads.formats.source import lines
from workloads.trace import Trace

_TABLES = {module.TABLE.name: module.TABLE for module in (azure, splitwise_sim, vidur, burstgpt)}
FORMATS = (*_TABLES, jsonl.NAME, jsonl.QWEN)


def read_trace(path: Path | str, *, format: str | None = None, zero_tokens: ZeroTokens = "drop") -> Trace:
    """Read a trace file; `format` (one of FORMATS) overrides what its content says.

    Rows that cannot be replayed are dropped and listed in `Trace.rejected`; rows with 0 tokens too, or they count
    as 1 (`zero_tokens="clamp"`). No usable row, a missing column or an unknown layout raises WorkloadError.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise WorkloadError(
            f"There is no trace format {format!r}.", code="unknown_format", hint=f"Choose from {', '.join(FORMATS)}."
        )
    body = lines(path)
    first = next(body, None)
    if first is None:
        raise WorkloadError(f"{path} is empty.", code="empty_trace", hint="Give a trace with rows.")
    name = format or _sniff(path, first[1])
    sink = RowSink(path, zero_tokens)
    if table := _TABLES.get(name):
        read_table(path, first[1], body, table, sink)
        return sink.trace(path.name, absolute=table.absolute, block_tokens=0)
    return _read_json(path, name, chain([first], body), sink)


def _read_json(path: Path, name: str, body: Iterator[tuple[int, str]], sink: RowSink) -> Trace:
    jsonl.read_lines(body, sink, qwen=name == jsonl.QWEN)
    if sink.rejected and not len(sink) and {row.reason for row in sink.rejected} == {"columns"}:
        raise WorkloadError(
            f"No line of {path} has all of the keys {', '.join(jsonl.REQUIRED)}.",
            code="missing_column",
            hint="docs/traces.md describes the formats.",
        )
    return sink.trace(path.name, absolute=False, block_tokens=jsonl.BLOCK_TOKENS[name])


def _sniff(path: Path, first: str) -> str:
    """The name of the format whose header or first object this is."""
    if first.lstrip().startswith("{"):
        return _sniff_json(first)
    _, columns = header_of(first)
    best: Table = max(_TABLES.values(), key=lambda table: matching(columns, table))
    if matching(columns, best) == 0:
        raise WorkloadError(
            f"The first line of {path} is no header of a known trace format: {first[:80]!r}.",
            code="unknown_format",
            hint=f"Known formats are {', '.join(FORMATS)}; docs/traces.md lists their columns.",
        )
    return best.name


def _sniff_json(first: str) -> str:
    try:
        return jsonl.QWEN if jsonl.is_qwen(jsonl.parse(first)) else jsonl.NAME
    except Reject:
        return jsonl.NAME
