"""A worker's journal on its way to another machine: the file itself is the queue, so memory stays flat on both sides.

The worker reads its own journal from where the last batch ended; the coordinator appends what continues its copy
and says how long that is. Nothing heard for a while: the worker starts again from there. A batch that comes twice
changes nothing, one that comes too early is dropped and comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from loadtest import clock
from loadtest.swarm.protocol import Ack, Batch

BATCH_BYTES = 256 * 1024
WINDOW_BYTES = 4 * 1024 * 1024  # under way and not yet acknowledged
RESEND_NS = 3_000_000_000


class Courier:
    """The worker's end."""

    def __init__(self, run: str, journal: Path, send: Callable[[Batch], None]) -> None:
        self._run, self._journal, self._send = run, journal, send
        self._there = self._sent = 0  # bytes
        self._progress_ns = clock.monotonic_ns()

    def turn(self) -> None:
        """Send what the journal has grown by; call each second, and more often when it is closed."""
        now_ns = clock.monotonic_ns()
        if self._sent == self._there:
            self._progress_ns = now_ns
        elif now_ns - self._progress_ns > RESEND_NS:
            self._sent, self._progress_ns = self._there, now_ns
        with self._journal.open("rb") as file:
            file.seek(self._sent)
            while self._sent - self._there < WINDOW_BYTES and (data := file.read(BATCH_BYTES)):
                self._send(Batch(self._run, self._sent, data))
                self._sent += len(data)

    def heard(self, ack: Ack) -> None:
        """The coordinator has so much."""
        if ack.run == self._run and ack.size > self._there:
            self._there, self._progress_ns = ack.size, clock.monotonic_ns()
            self._sent = max(self._sent, self._there)

    @property
    def delivered(self) -> bool:
        """True when the coordinator has all that is in the file."""
        return self._there == self._journal.stat().st_size


class Copy:
    """The coordinator's end: a copy of a journal that grows with the batches."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        path.touch(exist_ok=False)

    def take(self, batch: Batch) -> int:
        """Append what is new in a batch; the size of the copy."""
        new = batch.data[self._size - batch.offset :] if batch.offset <= self._size else b""
        if new:
            with self._path.open("ab") as file:
                file.write(new)
            self._size += len(new)
        return self._size
