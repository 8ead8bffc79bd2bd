"""What a run has shown so far, cheap enough to be kept by the process that sends: counts in logarithmic bins."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, log2

import msgspec

from loadtest.replay.rowpacker import Row
from metrics.judge import Verdict, judge_row, measured_of
from metrics.records import Outcome
from metrics.slo import SLO

SHORTEST_S = 1e-5
PER_OCTAVE = 8  # a bin is 9 % wide
BINS = 24 * PER_OCTAVE  # up to 168 s


class Seen(msgspec.Struct):
    """Finished requests of one worker, or of all: how often each latency fell into each bin, and the good ones.

    `good` of `judged` requests met the SLO, failed ones counted and undecided ones not; both stay 0 without one. The
    warm-up is left out.
    """

    ttft: list[int] = msgspec.field(default_factory=lambda: [0] * BINS)
    tpot: list[int] = msgspec.field(default_factory=lambda: [0] * BINS)
    lag: list[int] = msgspec.field(default_factory=lambda: [0] * BINS)
    good: int = 0
    judged: int = 0


class Tally:
    """Keeps `seen` up to date; a few microseconds per finished request."""

    def __init__(self, slo: str = "") -> None:
        self.seen = Seen()
        self._limits = SLO.parse(slo).limits if slo else None

    def add(self, row: Row) -> None:
        """One row that was sent, just as it was journalled."""
        if row["warmup"]:
            return
        seen = self.seen
        _count(seen.lag, row["sent_s"] - row["scheduled_s"] - row["client_queue_s"])
        if row["outcome"] == Outcome.OK:
            _count(seen.ttft, measured_of(row, "ttft"))
            _count(seen.tpot, measured_of(row, "tpot"))
        if self._limits is not None:
            verdict = judge_row(row, self._limits)
            seen.judged += verdict != Verdict.UNDECIDED
            seen.good += verdict == Verdict.GOOD


def _count(bins: list[int], value_s: float) -> None:
    if isfinite(value_s):
        place = int(log2(max(value_s, SHORTEST_S) / SHORTEST_S) * PER_OCTAVE)
        bins[min(place, BINS - 1)] += 1


def together(parts: Iterable[Seen]) -> Seen:
    """Several workers' added up."""
    whole = Seen()
    for part in parts:
        for mine, theirs in ((whole.ttft, part.ttft), (whole.tpot, part.tpot), (whole.lag, part.lag)):
            mine[:] = map(sum, zip(mine, theirs, strict=True))
        whole.good += part.good
        whole.judged += part.judged
    return whole


def quantile_s(bins: list[int], share: float) -> float | None:
    """The middle of the bin that holds the quantile; None without a value."""
    wanted = share * sum(bins)
    below = 0
    for place, count in enumerate(bins):
        below += count
        if count and below >= wanted:
            return float(SHORTEST_S * 2 ** ((place + 0.5) / PER_OCTAVE))
    return None
