"""A file that only grows, on a disk that may be full for a while.

What the disk does not take stays in memory and is offered again, at the place where it belongs: the file is at every
moment a beginning of what was added, however often a write was cut short, so whoever reads along can go on reading.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

PIECE_BYTES = 32 << 20  # handed over at once: what waited for minutes must not stop the loop for long


class Appender:
    """`add` keeps, `flush` offers; neither raises what a disk may answer: `error` tells it while it lasts."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._waiting = bytearray()
        self._size = 0
        self.error: OSError | None = None

    @property
    def waiting_bytes(self) -> int:
        """What was added and is not on the disk."""
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """True after `close`: nothing is taken any more."""
        return self._descriptor < 0

    def add(self, data: bytes | bytearray) -> None:
        """Keep for the next flush."""
        self._waiting += data

    def flush(self, most: int = PIECE_BYTES) -> bool:
        """Hand over what waits, at most so much of it; True when nothing waits any more."""
        with memoryview(self._waiting) as waiting, waiting[:most] as piece:
            taken, self.error = write_at(self._descriptor, piece, self._size)
        del self._waiting[:taken]
        self._size += taken
        return not self._waiting

    def close(self) -> None:
        """Give the file back; what still waits is given up."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> tuple[int, OSError | None]:
    """Write at that place of the file: how much of it came there, and why not all.

    Said twice at one place, the same bytes are there once: a write that failed may be repeated.
    """
    taken = 0
    with memoryview(data) as view:
        while taken < len(view):
            try:
                with view[taken:] as rest:
                    written = os.pwrite(descriptor, rest, offset + taken)
            except OSError as error:
                return taken, error
            if not written:
                return taken, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            taken += written
    return taken, None
