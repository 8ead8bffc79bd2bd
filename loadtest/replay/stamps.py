"""Kernel receive stamps: when the last byte of a read reached this machine, not when Python got round to it.

SO_TIMESTAMPNS gives CLOCK_REALTIME per read on a TCP socket. Latencies live on CLOCK_MONOTONIC, so the offset of
the two clocks is sampled; after a step of the wall clock (more than 100 us between samples) the requests under way
use their user stamps. Linux only; elsewhere every read carries its user stamp.
"""

from __future__ import annotations

import socket
import sys
from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest import clock

SO_TIMESTAMPNS = 35
STEP_NS = 100_000
STAMP_BYTES = 16
NO_STAMP = bytes(STAMP_BYTES)
AVAILABLE = sys.platform == "linux"
ANCILLARY_BYTES = socket.CMSG_SPACE(STAMP_BYTES) if sys.platform == "linux" else 0


def enable(sock: socket.socket) -> bool:
    """Ask the kernel to stamp what this socket receives; False where it cannot."""
    if not AVAILABLE:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


class ReadTimes(NamedTuple):
    """The reads of one request: stamps on the monotonic clock, and user minus kernel stamp (-1: user stamp used)."""

    ns: NDArray[np.int64]
    lag_ns: NDArray[np.int64]
    stepped: bool

    def at(self, read: int) -> int:
        """The stamp of a read by its index; 0 for -1, a read that never came."""
        return int(self.ns[read]) if read >= 0 else 0


class StampClock:
    """Maps kernel stamps to the monotonic clock.

    Keeps a sentinel socket open: the kernel switches stamping on a few milliseconds after the first socket asks
    for it, so the first reads of a process would come unstamped.
    """

    def __init__(self) -> None:
        self._sentinel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.kernel = enable(self._sentinel)
        self._offset_ns = clock.realtime_minus_monotonic_ns()
        self._stepped_ns = 0  # requests sent before this lived through a step of the wall clock
        self.steps = 0

    def sample(self) -> None:
        """Look at the offset of the two clocks again."""
        offset = clock.realtime_minus_monotonic_ns()
        if abs(offset - self._offset_ns) > STEP_NS:
            self.steps += 1
            self._stepped_ns = clock.monotonic_ns()
        self._offset_ns = offset

    def resolve(self, user_ns: array[int], kernel: bytearray, sent_ns: int) -> ReadTimes:
        """The times of a finished request's reads; `kernel` holds a timespec per read, zeros where none came."""
        user = np.frombuffer(user_ns, dtype=np.int64)
        if sent_ns < self._stepped_ns:
            return ReadTimes(user, np.full(len(user), -1, dtype=np.int64), True)
        spec = np.frombuffer(bytes(kernel), dtype=np.int64).reshape(-1, 2)
        stamp = spec[:, 0] * 1_000_000_000 + spec[:, 1] - self._offset_ns
        lag = user - stamp
        # A stamp is never later than the read that returned it; a little less than 0 is the offset's own error.
        usable = (spec[:, 0] != 0) & (lag > -STEP_NS)
        return ReadTimes(
            np.where(usable, np.minimum(stamp, user), user), np.where(usable, np.maximum(lag, 0), -1), False
        )

    def close(self) -> None:
        self._sentinel.close()
