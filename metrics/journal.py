"""The append-only journal a worker writes while it runs: enough to rebuild a run after any crash.

Frames (metrics/frames.py), the first a HEADER, then in the order things happened:

RECORD = one row (the header says its dtype) | events u32 | error bytes u16 | error utf-8
         | us u4 * events | tokens u2 * events | lag_us u2 * events                            (little endian)
STATS  = WorkerStats as JSON; the last one counts
END    = empty; a journal without it belongs to a worker that was lost
"""

from __future__ import annotations

import re
import struct
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from metrics.appender import PIECE_BYTES, Appender
from metrics.archive import damaged
from metrics.errors import MetricsError
from metrics.frames import FrameReader, FrameWriter
from metrics.records import RECORD_DTYPE, EventTimes, Rows, WorkerStats, empty_rows
from metrics.sound import fits, require_values

SCHEMA = "goodput.journal/1"
ERROR_CHARACTERS = 500
MOST_WAITING_BYTES = 256 << 20  # rows that a full disk leaves in memory; beyond that the run has to end

HEADER, RECORD, STATS, END = range(4)

_COUNTS = struct.Struct("<IH")
_EVENT_BYTES = 4 + 2 + 2
_MOST_COLUMNS, _MOST_WORKERS = 256, 2**15
_NUMBER = re.compile(r"[<|=][biuf][1248]")
_FILE_NAME = re.compile(r"records-(\d{1,5})\.bin")

Packed = bytes | bytearray | memoryview | array  # type: ignore[type-arg]  # array('I') or array('H')


class JournalHeader(msgspec.Struct, kw_only=True):
    """First frame: who writes for which run, and the columns of a row, so that an older journal stays readable."""

    worker: int
    dtype: list[tuple[str, str]]
    schema: str = SCHEMA
    run: str = ""


class JournalWriter:
    """Writes one worker's journal; frames wait in memory until `flush`, which the caller does each second.

    A disk that is full for a while costs nothing: what it did not take is offered again with the next flush.
    """

    def __init__(self, path: Path, worker: int, run: str = "") -> None:
        self._file = Appender(path)
        self._frames = FrameWriter()
        self._ended = False
        self._file.add(self._frames.beginning)
        columns = [(name, RECORD_DTYPE[name].str) for name in RECORD_DTYPE.names or ()]
        self._frame(HEADER, msgspec.json.encode(JournalHeader(worker=worker, dtype=columns, run=run)))
        self.flush()

    @property
    def trouble(self) -> str:
        """Why the last flush left something behind; empty when all is on the disk."""
        error = self._file.error
        return "" if error is None else error.strerror or str(error)

    @property
    def overflowing(self) -> bool:
        """True when more waits than may."""
        return self._file.waiting_bytes > MOST_WAITING_BYTES

    def record(
        self, row: np.void | bytes, us: Packed = b"", tokens: Packed = b"", lag_us: Packed = b"", error: str = ""
    ) -> None:
        """Add one finished request; `us`, `tokens` and `lag_us` are packed u4, u2 and u2, one per token event."""
        row_bytes = row if isinstance(row, bytes) else row.tobytes()
        times = bytes(us)
        events = len(times) // 4
        text = error[:ERROR_CHARACTERS].encode("utf-8", "replace")
        payload = b"".join((row_bytes, _COUNTS.pack(events, len(text)), text, times, bytes(tokens), bytes(lag_us)))
        if len(payload) != RECORD_DTYPE.itemsize + _COUNTS.size + len(text) + events * _EVENT_BYTES:
            raise ValueError("a record needs one row and as many event times as token counts and lags")
        self._frame(RECORD, payload)

    def stats(self, stats: WorkerStats) -> None:
        """Add what the worker says of itself; a later one replaces an earlier one."""
        self._frame(STATS, msgspec.json.encode(stats))

    def flush(self) -> None:
        """Hand everything buffered to the operating system: from here on it survives this process."""
        self._file.flush()

    def close(self) -> bool:
        """Mark the journal as ended and close it; False when the disk does not take it: try again, or `abandon`."""
        if self._file.closed:
            return True
        if not self._ended:
            self._ended = True
            self._frame(END, b"")
        while not self._file.flush(PIECE_BYTES):
            if self._file.error is not None:
                return False
        self._file.close()
        return True

    def abandon(self) -> None:
        """Leave the journal as far as it came: without an end, so that what is missing is known to be lost."""
        self._file.close()

    def _frame(self, kind: int, payload: bytes) -> None:
        self._file.add(self._frames.frame(kind, payload))


@dataclass(eq=False)
class JournalContents:
    """One worker's journal: finished rows in the order written, their events, and an error text for each."""

    worker: int
    rows: Rows
    events: EventTimes
    errors: list[str]
    stats: WorkerStats | None = None
    ended: bool = True  # the worker closed it; otherwise the worker was lost
    torn: bool = False  # some of it is incomplete or damaged and was left out
    run: str = ""


def read_journal(path: Path) -> JournalContents:
    """Read a journal without what is damaged in it; MetricsError when it is something else, or cannot be one.

    One that ends before its first record (of a worker that died before it had sent any) is the empty journal of the
    worker that the file's name tells.
    """
    try:
        frames = FrameReader(path.read_bytes())
    except (OSError, MemoryError) as error:
        raise damaged(path, getattr(error, "strerror", "") or "it does not fit into memory") from error
    if not frames.readable:
        raise MetricsError(f"{path} is not a goodput journal", code="bad_journal", hint="is the file complete?")
    reader = _Reader(path)
    try:
        for kind, payload in frames:
            reader.take(kind, payload)
    except (msgspec.MsgspecError, struct.error, ValueError, TypeError, RecursionError) as error:
        raise damaged(path, f"a frame is not what it should be ({error})"[:200]) from error
    return reader.contents(frames.torn)


class _Reader:
    """Collects the frames of one journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        named = _FILE_NAME.fullmatch(path.name)
        self._worker = int(named[1]) if named and int(named[1]) < _MOST_WORKERS else -1
        self._run = ""
        self._begun = False
        self._dtype = RECORD_DTYPE
        self._rows = bytearray()
        self._counts: list[int] = []
        self._us = bytearray()
        self._tokens = bytearray()
        self._lags = bytearray()
        self._errors: list[str] = []
        self._stats: WorkerStats | None = None
        self._ended = False

    def take(self, kind: int, payload: memoryview) -> None:
        if kind == RECORD:
            self._take_record(payload)
        elif kind == HEADER:
            self._take_header(payload)
        elif kind == STATS:
            self._stats = msgspec.json.decode(payload, type=WorkerStats)
        elif kind == END:
            self._ended = True

    def _take_header(self, payload: memoryview) -> None:
        header = msgspec.json.decode(payload, type=JournalHeader)
        if header.schema != SCHEMA:
            raise MetricsError(
                f"{self._path} has schema {header.schema!r}; this version reads {SCHEMA!r}",
                code="unknown_schema",
                hint="read it with the version that wrote it",
            )
        if self._begun or self._counts or not 0 <= header.worker < _MOST_WORKERS:
            raise ValueError("a header")
        self._begun = True
        self._worker, self._run = header.worker, header.run
        self._dtype = _row_type(header.dtype)

    def _take_record(self, payload: memoryview) -> None:
        at = self._dtype.itemsize
        events, error_bytes = _COUNTS.unpack_from(payload, at)
        if len(payload) != at + _COUNTS.size + error_bytes + events * _EVENT_BYTES:
            raise ValueError("a record of another length")
        self._rows += payload[:at]
        at += _COUNTS.size
        self._errors.append(str(payload[at : at + error_bytes], "utf-8", "replace"))
        at += error_bytes
        self._counts.append(events)
        self._us += payload[at : at + 4 * events]
        self._tokens += payload[at + 4 * events : at + 6 * events]
        self._lags += payload[at + 6 * events :]

    def contents(self, torn: int) -> JournalContents:
        starts = np.zeros(len(self._counts) + 1, dtype=np.int64)
        np.cumsum(self._counts, out=starts[1:])
        events = EventTimes(
            starts,
            np.frombuffer(self._us, dtype="<u4").astype(np.uint32),
            np.frombuffer(self._tokens, dtype="<u2").astype(np.uint16),
            np.frombuffer(self._lags, dtype="<u2").astype(np.uint16),
        )
        stats = self._stats
        if torn:
            stats = stats or WorkerStats(worker=self._worker)
            stats.torn_frames += torn
        rows = in_current_columns(np.frombuffer(self._rows, dtype=self._dtype))
        require_values(rows, self._path)
        return JournalContents(self._worker, rows, events, self._errors, stats, self._ended, torn > 0, self._run)


def _row_type(columns: list[tuple[str, str]]) -> np.dtype[Any]:
    """The type of a journal's rows: numbers only, each column once, and those that have a name here of its kind."""
    if not 0 < len(columns) <= _MOST_COLUMNS or "request_id" not in dict(columns):
        raise ValueError("a header without requests")
    if not all(_NUMBER.fullmatch(code) for _, code in columns if code != "|b1"):
        raise ValueError("a header with columns that are no numbers")
    found = np.dtype(columns)
    ours = RECORD_DTYPE.names or ()
    if not all(fits(found[name], RECORD_DTYPE[name]) for name in found.names or () if name in ours):
        raise ValueError("a header with columns of another kind")
    return found


def in_current_columns(rows: Rows) -> Rows:
    """Rows of an older or newer version in today's columns: unknown ones dropped, missing ones as before a run."""
    if rows.dtype == RECORD_DTYPE:
        return rows.copy()
    current = empty_rows(len(rows))
    for name in set(rows.dtype.names or ()) & set(RECORD_DTYPE.names or ()):
        current[name] = rows[name]
    return current
