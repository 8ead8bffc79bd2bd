"""What a run has shown so far, cheap enough to be kept by the process that sends: counts in logarithmic bins."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan, log2, nan

import msgspec

from loadtest.replay.rowpacker import Row
from metrics.records import Outcome
from metrics.slo import SLACK_S, SLO

SHORTEST_S = 1e-5
PER_OCTAVE = 8  # a bin is 9 % wide
BINS = 24 * PER_OCTAVE  # up to 168 s


class Seen(msgspec.Struct):
    """Finished requests of one worker, or of all: how often each latency fell into each bin, and the good ones.

    `good` of `judged` requests met the SLO, failed ones counted; both stay 0 without one. The warm-up is left out.
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
        self._slo = SLO.parse(slo) if slo else None

    def add(self, row: Row) -> None:
        """One row that was sent, just as it was journalled."""
        if row["warmup"]:
            return
        seen, due = self.seen, row["scheduled_s"]
        _count(seen.lag, row["sent_s"] - due - row["client_queue_s"])
        ok = row["outcome"] == Outcome.OK
        first, last = row["first_token_s"], row["last_token_s"]
        gaps = row["output_tokens"] - row["hidden_tokens"] - 1
        tpot = (last - first) / gaps if gaps > 0 else nan
        found = {"ttft": first - due, "tpot": tpot, "e2e": row["done_s"] - due}
        if ok:
            _count(seen.ttft, found["ttft"])
            _count(seen.tpot, found["tpot"])
        if self._slo is not None:
            seen.judged += 1
            # An answer of one token has no TPOT to miss; one without any misses everything.
            seen.good += (
                ok
                and not isnan(first)
                and not any(found[name] > limit + SLACK_S for name, limit in self._slo.limits.items())
            )


def _count(bins: list[int], value_s: float) -> None:
    if not isnan(value_s):
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
