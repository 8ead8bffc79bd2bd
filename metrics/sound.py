"""What rows, events and plans from a file must be before anything is computed from them.

Checksums tell what happened on a disk, not who wrote it: a run directory may come from anywhere. Whatever is read here
fits together and has only values that a run can have; one sentence names the file where that is not so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metrics.archive import damaged
from metrics.records import (
    PLANNED_COLUMNS,
    RECORD_DTYPE,
    EventTimes,
    Outcome,
    Phase,
    RecordTable,
    Rows,
    StampSource,
    empty_rows,
    planned_rows,
)

MOST_SECONDS = 1e9  # thirty years: no run is longer, and figures stay far from where floats lose microseconds
_EVENTS = {"start": "i8", "us": "u4", "tokens": "u2", "lag_us": "u2"}
_HIGHEST = {"outcome": max(Outcome), "phase": max(Phase), "stamp_source": max(StampSource)}
_MAY_BE_MINUS_ONE = ("served_prompt_tokens", "error_id", "session", "worker")
_SERVERS_WORD = ("queue_s", "prefill_s", "transfer_s", "decode_s")  # whatever it said of itself
_TIMES = [name for name in RECORD_DTYPE.names or () if RECORD_DTYPE[name].kind == "f"]
_IDS = ("request_id", "session")
_COUNTS = [name for name in RECORD_DTYPE.names or () if RECORD_DTYPE[name].kind == "i" and name not in _IDS]
Columns = Mapping[str, NDArray[Any]]


def rows_of(columns: Columns, file: Path) -> Rows:
    """Rows from their columns: those unknown are dropped, those missing are as before a run."""
    known = {name: column for name, column in columns.items() if name in (RECORD_DTYPE.names or ())}
    _require_columns(known, file, "request_id")
    rows = empty_rows(len(known["request_id"]))
    for name, column in known.items():
        rows[name] = column
    require_values(rows, file)
    _require_unique(rows, file)
    return rows


def planned_of(columns: Columns, file: Path) -> Rows:
    """The rows of a run before it starts, from the columns of its schedule."""
    known = {name: columns[name] for name in ("request_id", *PLANNED_COLUMNS) if name in columns}
    _require_columns(known, file, "request_id", *PLANNED_COLUMNS)
    rows = planned_rows(known)
    require_values(rows, file)
    _require_unique(rows, file)
    return rows


def events_of(columns: Columns, file: Path) -> EventTimes:
    """Token events from their columns."""
    for name, kind in _EVENTS.items():
        if name not in columns or columns[name].ndim != 1 or columns[name].dtype != np.dtype(kind):
            raise damaged(file, f"its column {name!r} is missing or of another type")
    events = EventTimes(*(columns[name] for name in _EVENTS))
    require_ragged(events, file)
    return events


def require_ragged(events: EventTimes, file: Path) -> None:
    """The starts rise from 0 to the number of events, and each event has all of its columns."""
    start, count = events.start, len(events.us)
    fits = len(start) and start[0] == 0 and start[-1] == count and (np.diff(start) >= 0).all()
    if not fits or not len(events.tokens) == len(events.lag_us) == count:
        raise damaged(file, "its events do not add up")


def require_values(rows: Rows, file: Path) -> None:
    """Only values that a run can have: no infinite time, no negative count, no unknown outcome."""
    for name in _TIMES:
        most = MOST_SECONDS * 1e6 if name.endswith("_us") else MOST_SECONDS
        senseless = np.abs(rows[name]) > most  # infinite ones too; NaN is what never happened
        if name in _SERVERS_WORD:
            rows[name][senseless] = np.nan
        elif senseless.any():
            raise damaged(file, f"column {name!r} holds a time that no run can have")
    for name in _COUNTS:
        if len(rows) and int(rows[name].min()) < (-1 if name in _MAY_BE_MINUS_ONE else 0):
            raise damaged(file, f"column {name!r} holds a negative count")
    for name, highest in _HIGHEST.items():
        if len(rows) and int(rows[name].max()) > highest:
            raise damaged(file, f"column {name!r} holds {int(rows[name].max())}, which means nothing")


def require_sound(table: RecordTable, folder: Path) -> RecordTable:
    """Rows, events and error texts that belong together."""
    rows, events = table.rows, table.events
    if events is not None and len(events.start) != len(rows) + 1:
        raise damaged(folder, f"it has events of {len(events.start) - 1} requests and {len(rows)} requests")
    if len(rows) and int(rows["error_id"].max()) >= len(table.errors):
        raise damaged(folder, "a request names an error text that is not there")
    for worker in table.workers:
        if not 0 <= worker.zero_ns < 2**63 or min(worker.cpu_s, worker.wall_s, worker.reads, worker.kernel_reads) < 0:
            raise damaged(folder, "a worker's figures are none that a run can have")
    return table


def _require_columns(columns: Columns, file: Path, *needed: str) -> None:
    """One dimension, one length, and the kind of number that the column has here."""
    if missing := [name for name in needed if name not in columns]:
        raise damaged(file, f"it lacks {', '.join(sorted(missing))}")
    length = columns["request_id"].shape
    for name, column in columns.items():
        if column.ndim != 1 or column.shape != length:
            raise damaged(file, f"column {name!r} has shape {column.shape}, others {length}")
        if not fits(column.dtype, RECORD_DTYPE[name]):
            raise damaged(file, f"column {name!r} holds {column.dtype} where {RECORD_DTYPE[name]} belongs")
        if column.dtype != RECORD_DTYPE[name] and RECORD_DTYPE[name].kind in "iu" and len(column):
            info = np.iinfo(RECORD_DTYPE[name])
            if int(column.min()) < info.min or int(column.max()) > info.max:
                raise damaged(file, f"column {name!r} holds a number that is too large")


def fits(theirs: np.dtype[Any], ours: np.dtype[Any]) -> bool:
    """Whether a column of another version may stand for ours: another width, or another sign, but no other kind."""
    return theirs.kind == ours.kind or {theirs.kind, ours.kind} <= set("iu")


def _require_unique(rows: Rows, file: Path) -> None:
    if len(np.unique(rows["request_id"])) < len(rows):
        raise damaged(file, "it holds a request twice")
