"""How far the client's own clock readings can be trusted: per token event, from the stamps of its read."""

from __future__ import annotations

import numpy as np

from metrics.latency import Mask, Seconds
from metrics.records import NO_KERNEL_STAMP, EventTimes, Rows, StampSource


def stamp_uncertainty_s(rows: Rows, events: EventTimes) -> Seconds:
    """How wrong each event's time may be through the client's fault, in seconds.

    0 when its read was stamped by the kernel and held no other event; the loop's worst lag when user space
    stamped it. A read that held several events stands for them all: each but the last may have arrived up to
    one gap earlier, but, where the kernel stamps tell the loop's lag, never by more than that lag.
    """
    counts = np.diff(events.start)
    lag_max_s = np.repeat(rows["loop_lag_max_us"].astype(np.float64) / 1e6, counts)
    by_kernel = events.lag_us != NO_KERNEL_STAMP
    uncertainty = np.where(by_kernel, 0.0, lag_max_s)
    shared, gap_s = _shared_reads(events)
    bound = np.where(by_kernel, np.minimum(gap_s, lag_max_s), gap_s)
    uncertainty[shared] = np.maximum(uncertainty, bound)[shared]
    simulated = rows["stamp_source"] == StampSource.SIMULATED
    uncertainty[np.repeat(simulated, counts)] = 0.0
    return uncertainty


def loop_lag_s(rows: Rows, events: EventTimes, of: Mask) -> Seconds:
    """User-space stamp minus kernel stamp of the reads that completed an event, for the rows in `of`."""
    measured = of & (rows["stamp_source"] != StampSource.SIMULATED)
    keep = np.repeat(measured, np.diff(events.start)) & (events.lag_us != NO_KERNEL_STAMP)
    return np.asarray(events.lag_us[keep] / 1e6)


def _shared_reads(events: EventTimes) -> tuple[Mask, Seconds]:
    """Which events shared a read with a later one of their row, and the gap before that read."""
    n = len(events.us)
    first = np.zeros(n, dtype=bool)
    first[events.start[:-1][np.diff(events.start) > 0]] = True
    new_read = first.copy()
    new_read[1:] |= np.diff(events.us) != 0
    last_of_read = np.append(new_read[1:], True)[:n]
    since_previous = np.zeros(n)
    since_previous[1:] = np.diff(events.us) / 1e6
    since_previous[first] = events.us[first] / 1e6  # before its first read a row has only its send
    read = np.cumsum(new_read) - 1
    return ~last_of_read, since_previous[new_read][read] if n else since_previous
