"""How far the client's own clock readings can be trusted: per token event, from the stamps of its read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metrics.counts import Counts
from metrics.latency import Mask, Seconds
from metrics.records import NO_KERNEL_STAMP, EventTimes, Rows, StampSource
from metrics.stats import Stat

Ints = NDArray[np.int64]

LATE_SHARE = 0.25  # of the time between two events


def stamp_uncertainty_s(rows: Rows, events: EventTimes) -> Seconds:
    """How wrong each event's time may be through the client's fault, in seconds.

    0 when its read was stamped by the kernel and held no other event; the loop's worst lag when user space
    stamped it. A read that held several events stands for them all: each but the last may have arrived up to
    one gap earlier, but, where the kernel stamps tell the loop's lag, never by more than that lag.
    """
    lag_max_s = rows["loop_lag_max_us"].astype(np.float64) / 1e6
    uncertainty = np.zeros(len(events.us))
    by_user = np.flatnonzero(events.lag_us == NO_KERNEL_STAMP)
    uncertainty[by_user] = lag_max_s[_row_of(events, by_user)]
    shared = _shared_reads(events)
    gap_s, lag_s = _gap_before_s(events, shared), lag_max_s[_row_of(events, shared)]
    by_kernel = events.lag_us[shared] != NO_KERNEL_STAMP
    bound = np.where(by_kernel, np.minimum(gap_s, lag_s), gap_s)
    uncertainty[shared] = np.maximum(uncertainty[shared], bound)
    simulated = rows["stamp_source"] == StampSource.SIMULATED
    if simulated.any():
        uncertainty[np.repeat(simulated, np.diff(events.start))] = 0.0
    return uncertainty


def read_late(events: EventTimes, of: Mask) -> bool:
    """Whether it was the client, by looking seldom, that found several events in one read in the rows of `of`.

    A read has the stamp of its last bytes. Who looks seldom finds them, in the mean, half as old as two events are
    apart; who looks at once finds them fresh, however many came together. False when nothing was stamped.
    """
    counts = np.diff(events.start)
    of = of & (counts > 1)
    if not of.any():
        return False
    mine, counts = np.repeat(of, counts), counts[of]
    us, lag_us = events.us[mine].astype(np.int64), events.lag_us[mine].astype(np.int64)
    last = np.cumsum(counts) - 1
    first = last - counts + 1
    span_us = us[last] - us[first]
    apart_us = np.where(span_us > 0, span_us / (counts - 1), us[last] / counts)  # one read for all: since the send
    old_us = np.add.reduceat(np.where(lag_us == NO_KERNEL_STAMP, 0, lag_us), first) / counts
    return bool(np.median(old_us / np.maximum(apart_us, 1)) >= LATE_SHARE)


def loop_lag(rows: Rows, events: EventTimes, of: Mask) -> Stat | None:
    """User-space stamp minus kernel stamp of the reads that completed an event, for the rows in `of`."""
    measured = of & (rows["stamp_source"] != StampSource.SIMULATED)
    lag_us = events.lag_us if measured.all() else events.lag_us[np.repeat(measured, np.diff(events.start))]
    return Counts([lag_us[lag_us != NO_KERNEL_STAMP]]).stat()


def _shared_reads(events: EventTimes) -> Ints:
    """The events that shared a read with a later one of their row: both have one stamp."""
    same = events.us[1:] == events.us[:-1]
    boundary = events.start[1:-1] - 1
    same[boundary[(boundary >= 0) & (boundary < len(same))]] = False
    return np.flatnonzero(same)


def _gap_before_s(events: EventTimes, shared: Ints) -> Seconds:
    """The time before the read that each of these events came in: since the one before it, or since the send."""
    starts = np.diff(shared, prepend=-2) != 1
    row = _row_of(events, shared)
    first = shared[starts][np.cumsum(starts) - 1] if len(shared) else shared
    before = np.where(first > events.start[row], events.us[first - 1], 0)
    return np.asarray((events.us[first] - before) / 1e6)


def _row_of(events: EventTimes, index: Ints) -> Ints:
    return np.asarray(np.searchsorted(events.start, index, side="right") - 1)
