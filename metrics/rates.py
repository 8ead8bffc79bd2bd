"""Rates and token throughput; every denominator is named (docs/definitions.md)."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.latency import Mask, is_ok, select
from metrics.records import EventTimes, Rows
from metrics.tokengaps import row_blocks

MOST_WINDOWS = 10_000_000  # seconds in 115 days: a longer run has no peak, rather than an array of all its seconds


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Requests and output tokens per second over the counted rows; None where a rate is undefined."""

    offered_per_s: float | None  # (n - 1) / (last scheduled - first scheduled)
    completed_per_s: float | None  # answers that came through / duration
    slo_throughput_per_s: float | None  # good requests / duration: vLLM's and AIPerf's "goodput"
    output_tokens_per_s: float | None  # tokens of answers that came through / duration
    output_tokens_per_s_per_gpu: float | None
    peak_tokens_per_s: float | None  # best one-second window, counted from the first token event
    duration_s: float | None  # last end - first send


def rates(rows: Rows, events: EventTimes | None, of: Mask, good: int | None, gpus: int | None) -> Rates:
    """Rates of the rows in `of`; `good` is the number of good requests among them."""
    mine = select(rows, of)
    duration = duration_s(mine)
    ok = is_ok(mine)
    tokens_per_s = _per_second(int(mine["output_tokens"][ok].sum()), duration)
    return Rates(
        offered_per_s=offered_per_s(mine),
        completed_per_s=_per_second(int(ok.sum()), duration),
        slo_throughput_per_s=None if good is None else _per_second(good, duration),
        output_tokens_per_s=tokens_per_s,
        output_tokens_per_s_per_gpu=tokens_per_s / gpus if tokens_per_s is not None and gpus else None,
        peak_tokens_per_s=None if events is None else peak_tokens_per_s(rows, events, of),
        duration_s=duration,
    )


def offered_per_s(rows: Rows) -> float | None:
    """Planned arrivals per second; None for fewer than two, or all at one instant."""
    scheduled = rows["scheduled_s"][~np.isnan(rows["scheduled_s"])]
    span = float(np.ptp(scheduled)) if len(scheduled) else 0.0
    return (len(scheduled) - 1) / span if span > 0 else None


def duration_s(rows: Rows) -> float | None:
    """Last end of any request minus first send, failures included; None when nothing was sent."""
    ends = rows["done_s"][~np.isnan(rows["done_s"])]
    sent = rows["sent_s"][~np.isnan(rows["sent_s"])]
    if not len(ends) or not len(sent):
        return None
    return float(ends.max() - sent.min())


def peak_tokens_per_s(rows: Rows, events: EventTimes, of: Mask, window_s: float = 1.0) -> float | None:
    """Most output tokens in one of the half-open windows that follow each other from the first token event.

    Counts tokens, never events: a row's events carry together what the server says it produced.
    """
    keep = of & is_ok(rows) & (np.diff(events.start) > 0)
    if not keep.any():
        return None
    sent_us = np.rint(np.nan_to_num(rows["sent_s"]) * 1e6).astype(np.int64)
    begin_us = int((sent_us[keep] + events.us[events.start[:-1][keep]]).min())
    if int(sent_us[keep].max()) - begin_us > MOST_WINDOWS * window_s * 1e6:
        return None
    scale = _scale(rows, events)
    total = np.zeros(0)
    for first, last in row_blocks(events):
        counts, span = np.diff(events.start[first : last + 1]), slice(events.start[first], events.start[last])
        window = (np.repeat(sent_us[first:last] - begin_us, counts) + events.us[span]) // round(window_s * 1e6)
        tokens = events.tokens[span] * np.repeat(np.where(keep[first:last], scale[first:last], 0.0), counts)
        found = np.asarray(np.bincount(np.maximum(window, 0), weights=tokens), dtype=np.float64)
        if len(found) > len(total):
            total = np.pad(total, (0, len(found) - len(total)))
        total[: len(found)] += found
    return float(total.max() / window_s)


def absolute_us(rows: Rows, events: EventTimes) -> NDArray[np.int64]:
    """Each token event's time on the run's clock, in whole microseconds."""
    sent_us = np.rint(np.nan_to_num(rows["sent_s"]) * 1e6).astype(np.int64)
    return np.asarray(np.repeat(sent_us, np.diff(events.start)) + events.us)


def tokens_per_event(rows: Rows, events: EventTimes) -> NDArray[np.float64]:
    """Tokens of each event, scaled so that a row's sum is its streamed output tokens."""
    return np.asarray(events.tokens * np.repeat(_scale(rows, events), np.diff(events.start)))


def _scale(rows: Rows, events: EventTimes) -> NDArray[np.float64]:
    """Streamed output tokens of each row over what its events say they carried."""
    carried = np.diff(np.concatenate([[0], np.cumsum(events.tokens, dtype=np.int64)])[events.start])
    streamed = rows["output_tokens"] - rows["hidden_tokens"]
    return np.asarray(np.divide(streamed, carried, out=np.ones(len(rows)), where=carried > 0))


def _per_second(count: int, duration: float | None) -> float | None:
    return count / duration if duration else None
