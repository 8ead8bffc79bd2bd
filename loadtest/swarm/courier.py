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
from metrics.appender import write_at

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
    """The coordinator's end: a copy of a journal that grows with the batches.

    What a full disk does not take is not acknowledged, so it comes again; `trouble` tells of it while it lasts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._troubled_ns = 0
        self.trouble = ""
        path.touch(exist_ok=False)

    def take(self, batch: Batch) -> int:
        """Append what is new in a batch; the size of the copy."""
        new = batch.data[self._size - batch.offset :] if 0 <= batch.offset <= self._size else b""
        if new:
            try:
                with self._path.open("r+b", buffering=0) as file:
                    taken, error = write_at(file.fileno(), new, self._size)
            except OSError as failure:
                taken, error = 0, failure
            self._size += taken
            self._note(error)
        return self._size

    def hopeless(self, patience_ns: int) -> bool:
        """Whether the disk has taken nothing for so long."""
        return bool(self.trouble) and clock.monotonic_ns() - self._troubled_ns > patience_ns

    def _note(self, error: OSError | None) -> None:
        if error is not None and not self.trouble:
            self._troubled_ns = clock.monotonic_ns()
        self.trouble = "" if error is None else error.strerror or str(error)
