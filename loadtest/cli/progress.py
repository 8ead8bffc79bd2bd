"""Progress on stderr while a run goes on: one line that is rewritten, or a line every ten seconds.

Written by hand because it runs in the process that sends: rich's live display takes milliseconds a frame, and
a request that is due meanwhile would leave late.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from loadtest import clock

if TYPE_CHECKING:
    from loadtest.swarm.coordinator import LoadProgress

_TERMINAL_EVERY_NS = 500_000_000
_PLAIN_EVERY_NS = 10_000_000_000


class ProgressLine:
    """Shows how far a run of `planned` requests over `duration_s` is; call it as often as you like."""

    def __init__(self, planned: int, duration_s: float) -> None:
        self._planned = planned
        self._duration_s = duration_s
        self._terminal = sys.stderr.isatty()
        self._every_ns = _TERMINAL_EVERY_NS if self._terminal else _PLAIN_EVERY_NS
        self._next_ns = clock.monotonic_ns() + self._every_ns
        self._shown = False

    def __call__(self, progress: LoadProgress) -> None:
        now_ns = clock.monotonic_ns()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self._every_ns
        line = self.line(progress)
        sys.stderr.write(f"\r\x1b[2K{line}" if self._terminal else f"{line}\n")
        sys.stderr.flush()
        self._shown = self._terminal

    def line(self, progress: LoadProgress) -> str:
        """What is shown, under 80 characters."""
        parts = [
            f"{max(progress.elapsed_s, 0.0):.0f} of {self._duration_s:.0f} s",
            f"sent {progress.sent} of {self._planned}",
            f"in flight {progress.in_flight}",
        ]
        if progress.failed:
            parts.append(f"failed {progress.failed}")
        if progress.workers_lost:
            parts.append(f"workers lost {progress.workers_lost}")
        return "  ".join(parts)

    def close(self) -> None:
        """Leave the terminal's line empty for what is printed next."""
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False
