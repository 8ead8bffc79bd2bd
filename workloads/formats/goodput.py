"""Our own form, written by `goodput trace convert`: whole nanoseconds, and every column a Trace can have.

The time column says whether its times are absolute (`arrival_unix_ns`) or from the first row (`arrival_ns`); the
column of shared prompt blocks carries their length in its name (`blocks_512`).
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from workloads.formats.delimited import Table
from workloads.formats.timestamp import decimal_ns
from workloads.trace import Trace

NAME = "goodput-csv"
RELATIVE, ABSOLUTE = "arrival_ns", "arrival_unix_ns"
_BLOCKS = re.compile(r"blocks_([1-9][0-9]{0,5})")
_CHUNK = 65_536


def _whole_ns(text: str) -> int:
    return decimal_ns(text, 1)


TABLE = Table(
    name=NAME,
    time=RELATIVE,
    prompt="prompt_tokens",
    output="output_tokens",
    unit="ns",
    nanoseconds=_whole_ns,
    form="nanoseconds",
    session="session",
    turn="turn",
    slo_class="slo_class",
    numbered=True,
)


def table(columns: list[str]) -> Table:
    """The table with these columns: absolute or not, with blocks of some length or without."""
    lower = [column.lower() for column in columns]
    blocks = next((match for match in map(_BLOCKS.fullmatch, lower) if match), None)
    absolute = ABSOLUTE in lower
    return replace(
        TABLE,
        time=ABSOLUTE if absolute else RELATIVE,
        absolute=absolute,
        blocks=blocks[0] if blocks else None,
        block_tokens=int(blocks[1]) if blocks else 0,
    )


def write(trace: Trace, path: Path) -> None:
    """Write a trace so that reading it gives the same content hash; gzip when the name ends in .gz."""
    if path.suffix == ".gz":
        with open(path, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            packed.writelines(map(str.encode, _lines(trace)))
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.writelines(_lines(trace))


def _lines(trace: Trace) -> Iterator[str]:
    optional = [name for name in ("session", "turn", "slo_class") if getattr(trace, name) is not None]
    time = RELATIVE if trace.origin_ns is None else ABSOLUTE
    header = [time, "prompt_tokens", "output_tokens", *optional]
    if trace.prefix is not None:
        header.append(f"blocks_{trace.prefix.block_tokens}")
    yield ",".join(header) + "\n"
    arrival = trace.arrival_ns + (trace.origin_ns or 0)
    columns = [arrival, trace.prompt_tokens, trace.output_tokens, *(getattr(trace, name) for name in optional)]
    for start in range(0, len(trace), _CHUNK):
        rows = zip(*(column[start : start + _CHUNK].tolist() for column in columns), strict=True)
        for index, row in enumerate(rows, start):
            cells = ["" if value < 0 and at > 2 else str(value) for at, value in enumerate(row)]
            if trace.prefix is not None:
                cells.append(" ".join(map(str, trace.prefix.row(index))))
            yield ",".join(cells) + "\n"
