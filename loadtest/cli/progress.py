"""The live view on stderr while a run goes on: two lines that are rewritten, or one every ten seconds.

Written by hand because it runs in the process that sends: rich's live display takes milliseconds a frame, and
a request that is due meanwhile would leave late. These lines take a few hundred microseconds, twice a second.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from loadtest import clock
from reports.numbers import percent, seconds, span

if TYPE_CHECKING:
    from loadtest.replay.tally import Seen
    from loadtest.swarm.coordinator import LoadProgress

_TERMINAL_EVERY_NS = 500_000_000
_PLAIN_EVERY_NS = 10_000_000_000
_CLEAR = "\r\x1b[2K"
_UP = "\x1b[1A"


class ProgressLine:
    """Shows how far a run of `planned` requests over `duration_s` is; call it as often as you like."""

    def __init__(self, planned: int, duration_s: float) -> None:
        self._planned = planned
        self._duration_s = duration_s
        self._terminal = sys.stderr.isatty()
        self._every_ns = _TERMINAL_EVERY_NS if self._terminal else _PLAIN_EVERY_NS
        self._next_ns = clock.monotonic_ns() + self._every_ns
        self._shown = 0  # lines on the terminal, the cursor at the end of the last
        self._sent, self._rate = 0, ""  # a rate is told when the count is new: counts come once a second

    def __call__(self, progress: LoadProgress) -> None:
        now_ns = clock.monotonic_ns()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self._every_ns
        lines = [line for line in (self.line(progress), so_far(progress.seen)) if line]
        if self._terminal:
            sys.stderr.write(self._cleared() + "\n".join(lines))
            self._shown = len(lines)
        else:
            sys.stderr.write("  ".join(lines) + "\n")
        sys.stderr.flush()

    def line(self, progress: LoadProgress) -> str:
        """How far the run is, under 80 characters."""
        elapsed = max(progress.elapsed_s, 0.0)
        if progress.sent != self._sent and elapsed > 0:
            self._sent, self._rate = progress.sent, f" ({progress.sent / elapsed:.3g}/s)"
        over = elapsed > self._duration_s
        sent = f"sent {progress.sent} of {self._planned}{'' if over else self._rate}"
        at = f"{self._duration_s:.0f} s and {elapsed - self._duration_s:.0f} s of drain"
        at = at if over else f"{elapsed:.0f} of {self._duration_s:.0f} s"
        parts = [at, sent, f"in flight {progress.in_flight}"]
        if progress.failed:
            parts.append(f"failed {progress.failed}")
        if progress.workers_lost:
            parts.append(f"workers lost {progress.workers_lost}")
        return "  ".join(parts)

    def close(self) -> None:
        """Leave the terminal's lines empty for what is printed next."""
        if self._shown:
            sys.stderr.write(self._cleared())
            sys.stderr.flush()
            self._shown = 0

    def _cleared(self) -> str:
        """Back to the beginning of what was shown."""
        return _CLEAR + (_UP + _CLEAR) * (self._shown - 1)


def so_far(seen: Seen) -> str:
    """Median and p90 of what has finished, the share that was good, and how late the client itself was."""
    from loadtest.replay.tally import quantile_s

    parts = []
    for name, bins in (("TTFT", seen.ttft), ("TPOT", seen.tpot)):
        half, most = quantile_s(bins, 0.5), quantile_s(bins, 0.9)
        if half is not None and most is not None:
            parts.append(f"{name} {span(half, most, '/')}")
    if seen.judged:
        parts.append(f"good {percent(seen.good / seen.judged)}")
    lag = quantile_s(seen.lag, 0.99)
    if lag is not None:
        parts.append(f"client lag p99 {seconds(lag)}")
    return "  ".join(parts).replace("\N{NO-BREAK SPACE}", " ")
