"""Server-sent events without I/O, by the WHATWG rules (lines end with LF, CR or CRLF; one leading BOM).

Only CR and LF end a line: U+2028 and U+0085 inside a token do not. Beyond the rules, two ways in which servers put
an error where no event is are read as events named `error`: a field `error:` (llama.cpp), and a bare JSON object.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_EVENT_BYTES = 8 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(Exception):
    """A server sent an event that would not fit in memory; the stream is given up."""


class SseEvent(NamedTuple):
    """One dispatched event: its `event:` name (b"" when none) and its joined data lines."""

    name: bytes
    data: bytes


class SseParser:
    """Bytes in, events out; an event belongs to the `feed` that held its last byte."""

    __slots__ = ("_at_start", "_data", "_data_bytes", "_name", "_partial", "_partial_bytes", "_swallow_lf")

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of a line whose end has not come
        self._partial_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0  # of them, with a line end for each: empty lines take memory too
        self._name = b""
        self._swallow_lf = False  # the last byte was CR: an LF right after it belongs to it
        self._at_start = True

    @property
    def at_event_boundary(self) -> bool:
        """True when the next byte starts a new event."""
        return not (self._partial or self._data or self._name or self._at_start or self._swallow_lf)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Events completed by `chunk`."""
        if chunk.startswith(b"data: ") and self.at_event_boundary and _is_one_line(chunk):
            return [SseEvent(b"", chunk[6:-2])]
        events: list[SseEvent] = []
        if self._swallow_lf and chunk:
            self._swallow_lf = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        position = 0
        for match in _LINE_END.finditer(chunk):
            self._line(chunk[position : match.start()], events)
            position = match.end()
        self._swallow_lf = chunk.endswith(b"\r")
        if position < len(chunk):
            self._keep(chunk[position:])
        return events

    def close(self) -> list[SseEvent]:
        """The body ended: a pending line and a pending event still count."""
        events: list[SseEvent] = []
        if self._partial:
            self._line(b"", events)
        self._dispatch(events)
        return events

    def _keep(self, piece: bytes) -> None:
        self._partial.append(piece)
        self._partial_bytes += len(piece)
        self._check_size()

    def _check_size(self) -> None:
        if self._partial_bytes + self._data_bytes > MAX_EVENT_BYTES:
            raise EventTooLargeError(f"an event is larger than {MAX_EVENT_BYTES // 2**20} MiB")

    def _line(self, piece: bytes, events: list[SseEvent]) -> None:
        if self._partial:
            self._partial.append(piece)
            piece = b"".join(self._partial)
            self._partial.clear()
            self._partial_bytes = 0
        if self._at_start:
            self._at_start = False
            piece = piece.removeprefix(_BOM)
        if not piece:
            self._dispatch(events)
            return
        field, _, value = piece.partition(b":")
        if field == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._data_bytes += len(value) + 1
            self._check_size()
        elif field == b"event":
            self._name = value.removeprefix(b" ")
        elif field == b"error":
            events.append(SseEvent(b"error", value.strip()))
        elif field.startswith(b'{"error"'):
            events.append(SseEvent(b"error", piece))

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            events.append(SseEvent(self._name, b"\n".join(self._data)))
            self._data.clear()
        self._name = b""
        self._data_bytes = 0


def _is_one_line(chunk: bytes) -> bool:
    """The usual event: one data line and its blank line, ended by LF."""
    return chunk.endswith(b"\n\n") and chunk.count(b"\n") == 2 and b"\r" not in chunk
