"""The append-only journal a worker writes while it runs: enough to rebuild a run after any crash.

file   = magic  frame(HEADER)  frame*
frame  = length u32 of the payload | crc32 u32 of kind and payload | kind u8 | payload     (little endian)
RECORD = one row (the header says its dtype) | events u32 | error bytes u16 | error utf-8
         | us u4 * events | tokens u2 * events | lag_us u2 * events
STATS  = WorkerStats as JSON; the last one counts
END    = empty; a journal without it belongs to a worker that was lost
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from metrics.errors import MetricsError
from metrics.records import RECORD_DTYPE, EventTimes, Rows, WorkerStats, empty_rows

MAGIC = b"goodput journal\n"
SCHEMA = "goodput.journal/1"
ERROR_CHARACTERS = 500

HEADER, RECORD, STATS, END = range(4)

_FRAME = struct.Struct("<IIB")
_COUNTS = struct.Struct("<IH")
_EVENT_BYTES = 4 + 2 + 2

Packed = bytes | bytearray | memoryview | array  # type: ignore[type-arg]  # array('I') or array('H')


class JournalHeader(msgspec.Struct, kw_only=True):
    """First frame: who writes for which run, and the columns of a row, so that an older journal stays readable."""

    worker: int
    dtype: list[tuple[str, str]]
    schema: str = SCHEMA
    run: str = ""


class JournalWriter:
    """Writes one worker's journal; frames wait in memory until `flush`, which the caller does each second."""

    def __init__(self, path: Path, worker: int, run: str = "") -> None:
        self._file = path.open("xb", buffering=0)
        self._buffer = bytearray(MAGIC)
        columns = [(name, RECORD_DTYPE[name].str) for name in RECORD_DTYPE.names or ()]
        self._frame(HEADER, msgspec.json.encode(JournalHeader(worker=worker, dtype=columns, run=run)))
        self.flush()

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
        pending = memoryview(bytes(self._buffer))
        self._buffer.clear()
        while pending:
            pending = pending[self._file.write(pending) :]

    def close(self) -> None:
        """Mark the journal as ended and close it."""
        if self._file.closed:
            return
        self._frame(END, b"")
        self.flush()
        self._file.close()

    def _frame(self, kind: int, payload: bytes) -> None:
        checksum = zlib.crc32(payload, zlib.crc32(bytes((kind,))))
        self._buffer += _FRAME.pack(len(payload), checksum, kind)
        self._buffer += payload


@dataclass(eq=False)
class JournalContents:
    """One worker's journal: finished rows in the order written, their events, and an error text for each."""

    worker: int
    rows: Rows
    events: EventTimes
    errors: list[str]
    stats: WorkerStats | None = None
    ended: bool = True  # the worker closed it; otherwise the worker was lost
    torn: bool = False  # the last frame is incomplete or damaged: reading stopped there
    run: str = ""


def read_journal(path: Path) -> JournalContents:
    """Read a journal up to its end or its first damaged frame; MetricsError when it is no journal at all."""
    data = memoryview(path.read_bytes())
    if data[: len(MAGIC)] != MAGIC:
        raise MetricsError(f"{path} is not a goodput journal", code="bad_journal", hint="is the file complete?")
    reader = _Reader()
    for kind, payload in _frames(data):
        reader.take(kind, payload, path)
    return reader.contents(torn=reader.bytes_read + len(MAGIC) != len(data))


def _frames(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Whole frames with a right checksum; stops before the first that is not."""
    at = len(MAGIC)
    while at + _FRAME.size <= len(data):
        length, checksum, kind = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) < length or zlib.crc32(payload, zlib.crc32(bytes((kind,)))) != checksum:
            return
        yield kind, payload
        at += _FRAME.size + length


class _Reader:
    """Collects the frames of one journal."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self._worker = -1
        self._run = ""
        self._dtype = RECORD_DTYPE
        self._rows = bytearray()
        self._counts: list[int] = []
        self._us = bytearray()
        self._tokens = bytearray()
        self._lags = bytearray()
        self._errors: list[str] = []
        self._stats: WorkerStats | None = None
        self._ended = False

    def take(self, kind: int, payload: memoryview, path: Path) -> None:
        self.bytes_read += _FRAME.size + len(payload)
        if kind == RECORD:
            self._take_record(payload)
        elif kind == HEADER:
            self._take_header(payload, path)
        elif kind == STATS:
            self._stats = msgspec.json.decode(payload, type=WorkerStats)
        elif kind == END:
            self._ended = True

    def _take_header(self, payload: memoryview, path: Path) -> None:
        header = msgspec.json.decode(payload, type=JournalHeader)
        if header.schema != SCHEMA:
            raise MetricsError(
                f"{path} has schema {header.schema!r}; this version reads {SCHEMA!r}",
                code="unknown_schema",
                hint="read it with the version that wrote it",
            )
        self._worker, self._run = header.worker, header.run
        self._dtype = np.dtype(header.dtype)

    def _take_record(self, payload: memoryview) -> None:
        at = self._dtype.itemsize
        self._rows += payload[:at]
        events, error_bytes = _COUNTS.unpack_from(payload, at)
        at += _COUNTS.size
        self._errors.append(str(payload[at : at + error_bytes], "utf-8"))
        at += error_bytes
        self._counts.append(events)
        self._us += payload[at : at + 4 * events]
        self._tokens += payload[at + 4 * events : at + 6 * events]
        self._lags += payload[at + 6 * events :]

    def contents(self, *, torn: bool) -> JournalContents:
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
            stats.torn_frames += 1
        rows = in_current_columns(np.frombuffer(self._rows, dtype=self._dtype))
        return JournalContents(self._worker, rows, events, self._errors, stats, self._ended, torn, self._run)


def in_current_columns(rows: Rows) -> Rows:
    """Rows of an older or newer version in today's columns: unknown ones dropped, missing ones as before a run."""
    if rows.dtype == RECORD_DTYPE:
        return rows.copy()
    current = empty_rows(len(rows))
    for name in set(rows.dtype.names or ()) & set(RECORD_DTYPE.names or ()):
        current[name] = rows[name]
    return current
