"""Latencies of a request, in seconds; one formula for measured and simulated runs (docs/definitions.md).

Every function returns one value per row, NaN where the quantity is undefined. Only answers that came through
have latencies: the times of a failed request stay in its row for diagnosis and enter no distribution.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metrics.records import EventTimes, Flag, Outcome, Rows

Seconds = NDArray[np.float64]
Mask = NDArray[np.bool_]


def is_ok(rows: Rows) -> Mask:
    """Rows whose answer came through."""
    return np.asarray(rows["outcome"] == Outcome.OK)


def failed_by_server(rows: Rows) -> Mask:
    """Rows whose answer did not come through and were neither left unsent nor cut off by us."""
    ours = (Outcome.OK, Outcome.NOT_SENT, Outcome.SKIPPED_LATE, Outcome.LOST_WORKER, Outcome.INTERRUPTED)
    return np.asarray(~np.isin(rows["outcome"], ours))


def is_streamed(rows: Rows) -> Mask:
    """Rows that have token times; a body in one piece has none."""
    return np.asarray((rows["flags"] & Flag.NOT_STREAMED) == 0)


def counted(rows: Rows, stopped_at_s: float | None = None) -> Mask:
    """Rows that results are about: scheduled after the warm-up and, in a run that was stopped, before the stop."""
    mask = ~rows["warmup"]
    if stopped_at_s is not None:
        # A later turn of a session has no instant until it is known; if it never got one, it was not due.
        mask &= rows["scheduled_s"] < stopped_at_s
    return np.asarray(mask)


def select(rows: Rows, of: Mask) -> Rows:
    """The rows in `of`; without a copy when that is all of them, for a copy of a million rows takes its time."""
    return rows if of.all() else rows[of]


def ttft_s(rows: Rows) -> Seconds:
    """First token event minus scheduled instant."""
    return _of_streamed(rows, rows["first_token_s"] - rows["scheduled_s"])


def ttft_from_sent_s(rows: Rows) -> Seconds:
    """First token event minus the instant just before the request's first byte left."""
    return _of_streamed(rows, rows["first_token_s"] - rows["sent_s"])


def tpot_s(rows: Rows) -> Seconds:
    """(last token event - first) / (tokens - 1); undefined below two tokens. Hidden tokens are no divisor."""
    streamed_tokens = rows["output_tokens"] - rows["hidden_tokens"]
    tokens = np.where(streamed_tokens >= 2, streamed_tokens, np.nan)
    return _of_streamed(rows, (rows["last_token_s"] - rows["first_token_s"]) / (tokens - 1))


def e2e_s(rows: Rows) -> Seconds:
    """End of the answer minus scheduled instant."""
    return np.where(is_ok(rows), rows["done_s"] - rows["scheduled_s"], np.nan)


def client_lag_s(rows: Rows) -> Seconds:
    """How late the client itself sent: sent minus scheduled, without the wait for a slot under a cap."""
    return np.asarray(rows["sent_s"] - rows["scheduled_s"] - rows["client_queue_s"])


def itl_s(events: EventTimes, of: Mask) -> Seconds:
    """Times between the token events of the rows in `of`, pooled over requests."""
    # Modular u4 arithmetic: within a row later minus earlier is right, across rows it is dropped.
    gaps = np.diff(events.us)
    return np.asarray(gaps[_gap_within(events, of)] / 1e6)


def second_token_gap_s(events: EventTimes) -> Seconds:
    """Second token event minus first, per row: where a disaggregated server's hand-off of the KV cache shows."""
    gap = np.full(len(events.start) - 1, np.nan)
    has_two = np.diff(events.start) >= 2
    first = events.start[:-1][has_two]
    gap[has_two] = (events.us[first + 1] - events.us[first]) / 1e6
    return gap


def _gap_within(events: EventTimes, of: Mask) -> Mask:
    """Which gaps between consecutive events lie inside one row, and a row of `of`."""
    within = np.repeat(of, np.diff(events.start))[1:]
    boundary = events.start[1:-1] - 1
    within[boundary[(boundary >= 0) & (boundary < len(within))]] = False
    return within


def _of_streamed(rows: Rows, values: Seconds) -> Seconds:
    return np.where(is_ok(rows) & is_streamed(rows), values, np.nan)
