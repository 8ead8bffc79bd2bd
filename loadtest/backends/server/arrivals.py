"""The arrival log: one JSON line per POST, with the instant its first bytes were read.

Benchmarks and tests compare it with the schedule. Lines are kept in memory and written once a second, so
that a slow disk cannot delay a token.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

_FLUSH_S = 1.0


class Arrival(msgspec.Struct):
    """`mono_ns` on CLOCK_MONOTONIC; counts are null when the request was refused before they were known."""

    mono_ns: int
    id: str
    prompt_tokens: int | None
    max_tokens: int | None


class ArrivalLog:
    """Appends arrivals to a file, buffered; raises OSError at once when the file cannot be written."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._file = path.open("ab", buffering=0)
        self._loop = loop
        self._lines: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode

    def add(self, arrival: Arrival) -> None:
        """Remember one arrival; it reaches the file within a second."""
        if not self._lines:  # an idle server sets no timer
            self._loop.call_later(_FLUSH_S, self.flush)
        self._lines.append(self._encode(arrival) + b"\n")

    def flush(self) -> None:
        """Write what is remembered."""
        if self._lines:
            self._file.write(b"".join(self._lines))
            self._lines.clear()

    def close(self) -> None:
        """Flush and close; later flushes do nothing."""
        self.flush()
        self._file.close()
