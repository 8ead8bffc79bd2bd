"""The only source of time.

Latencies use CLOCK_MONOTONIC of one process. CLOCK_REALTIME appears only as the clock of the kernel's
receive stamps and to date a run directory.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

monotonic_ns = time.monotonic_ns
realtime_ns = time.time_ns
process_cpu_s = time.process_time
sleep = time.sleep


class Clock(Protocol):
    """Seconds on a clock that never goes back."""

    def now(self) -> float: ...


class MonotonicClock:
    """The machine's monotonic clock, in seconds."""

    def now(self) -> float:
        return time.monotonic()


class VirtualClock:
    """A clock that moves only when told to: the simulator's, and the tests'."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance_to(self, instant: float) -> None:
        """Move to `instant`; a clock never goes back."""
        if instant < self._now:
            raise ValueError(f"the clock is at {self._now} s and cannot go back to {instant} s")
        self._now = instant


def realtime_minus_monotonic_ns() -> int:
    """Offset between the two clocks, from the tightest of five bracketed readings."""
    best_width, best_offset = 1 << 62, 0
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_width:
            best_width, best_offset = after - before, wall - (before + after) // 2
    return best_offset


def utc_now() -> datetime:
    """The date to write on a run."""
    return datetime.now(UTC)
