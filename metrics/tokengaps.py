"""Token gaps around prefill arrivals, and the worst gap of a run token by token: the aggregation behind two figures.

A *gap* is the time between two token events of one request, taken at the instant it ended. An *arrival* is the
instant another request was sent. A server that runs long prompts between decode steps shows its gaps growing
just after arrivals; one that keeps prefill apart does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.counts import Counts
from metrics.records import EventTimes, RecordTable
from metrics.stats import sorted_quantiles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

BEFORE_S, AFTER_S = 1.0, 2.0  # the window drawn around an arrival
WIDTHS_S = (0.05, 0.1, 0.2)  # the narrowest that holds enough gaps
ENOUGH_GAPS = 100  # in a bin, before it has a p99
LONG_PROMPT_SHARE = 0.1  # arrivals looked at: the tenth of the requests with the longest prompts
ENOUGH_ISOLATED = 5
MAX_PAIRS = 2_000_000  # (arrival, gap) pairs looked at; arrivals are thinned evenly to stay below
BLOCK_EVENTS = 1_000_000  # events handled at once: bounds memory for runs of any length, and stays near the cache
STRIP_SIDE_S = 1.0  # drawn on each side of the worst gap
MAX_STRIP_TOKENS = 240
MAX_STRIP_ARRIVALS = 60


class GapStat(msgspec.Struct, frozen=True):
    """Median, 99th percentile and maximum of some token gaps, in seconds; `n` of them."""

    n: int
    p50_s: float
    p99_s: float
    max_s: float


class Interference(msgspec.Struct, frozen=True):
    """Gaps of running requests against the time since another request's arrival, in bins of `width_s`.

    The arrivals are those of long prompts (from `min_prompt_tokens` on), where there are enough only those with
    no other long prompt in the second before (`isolated`). `offset_s` is the middle of a bin (negative: before
    the arrival). Lists are None where no gap ended, `p99_s` also where fewer than `ENOUGH_GAPS` did.
    """

    width_s: float
    arrivals: int
    min_prompt_tokens: int
    isolated: bool
    offset_s: list[float]
    n: list[int]
    p50_s: list[float | None]
    p99_s: list[float | None]
    max_s: list[float | None]
    before: GapStat | None
    after: GapStat | None


class Arrival(msgspec.Struct, frozen=True):
    """A request sent near the worst gap: when (seconds since the run's start) and how long its prompt is."""

    request_id: int
    at_s: float
    prompt_tokens: int


class WorstGap(msgspec.Struct, frozen=True):
    """The longest token gap of a run, the tokens of its request around it, and the arrivals of others.

    The gap ends with token event `index` (from 0). `longest_prompt` is the longest prompt sent from a second (or
    one gap's length, when that is longer) before the gap began until it ended; None when nothing was sent then.
    """

    request_id: int
    index: int
    gap_s: float
    begins_s: float
    ends_s: float
    prompt_tokens: int
    output_tokens: int
    token_s: list[float]
    arrivals: list[Arrival]
    arrivals_left_out: int
    longest_prompt: int | None


@dataclass(frozen=True, eq=False)
class Gaps:
    """A block of gaps: the row each belongs to, when it ended (run time) and how long it was, in seconds."""

    row: Ints
    end_s: Floats
    gap_s: Floats


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Rows whose arrival is looked at, in the order they were sent."""

    row: Ints
    sent_s: Floats
    min_prompt_tokens: int
    isolated: bool


def gap_quantiles_s(table: RecordTable, keep: Mask, shares: Sequence[float]) -> tuple[int, list[float]] | None:
    """How many gaps the rows in `keep` have, and their quantiles (linear), in seconds; None without a gap."""
    if table.events is None:
        return None
    counts = Counts(gaps_us(table.events, keep))
    return (counts.n, counts.quantiles_s(shares)) if counts.n else None


def gaps_us(events: EventTimes, keep: Mask) -> Iterator[NDArray[np.uint32]]:
    """The gaps between the token events of each row in `keep`, in microseconds, block by block."""
    for first, last in row_blocks(events):
        gap, within = _gaps(events, keep, first, last)
        yield gap if within.all() else gap[within]


def _gaps(events: EventTimes, keep: Mask, first: int, last: int) -> tuple[NDArray[np.uint32], Mask]:
    """The differences between neighbouring events of some rows, and which of them are gaps of a row in `keep`."""
    begin, end = int(events.start[first]), int(events.start[last])
    # Modular arithmetic: across rows the difference means nothing, and there it is no gap.
    within = np.repeat(keep[first:last], np.diff(events.start[first : last + 1]))[1:]
    boundary = events.start[first + 1 : last] - begin - 1
    within[boundary[(boundary >= 0) & (boundary < len(within))]] = False
    return np.diff(events.us[begin:end]), within


def event_blocks(table: RecordTable) -> Iterator[tuple[Floats, NDArray[np.uint16]]]:
    """(run time in seconds, tokens) of the token events of all rows, block by block."""
    events = table.events
    if events is None:
        return
    sent_s = np.ascontiguousarray(table.rows["sent_s"])
    for first, last in row_blocks(events):
        begin, end = events.start[first], events.start[last]
        at_s = np.repeat(sent_s[first:last], np.diff(events.start[first : last + 1]))
        at_s += events.us[begin:end] * 1e-6
        yield at_s, events.tokens[begin:end]


def gap_blocks(table: RecordTable, keep: Mask) -> Iterator[Gaps]:
    """The gaps of the rows in `keep`, at most about `BLOCK_EVENTS` events at a time."""
    events = table.events
    if events is None:
        return
    sent_s = np.ascontiguousarray(table.rows["sent_s"])
    for first, last in row_blocks(events):
        if not keep[first:last].any():
            continue
        gap, within = _gaps(events, keep, first, last)
        ends = np.flatnonzero(within)
        row = np.repeat(np.arange(first, last), np.diff(events.start[first : last + 1]))[1:][ends]
        end_us = events.us[int(events.start[first]) + 1 : int(events.start[last])][ends]
        yield Gaps(row, np.asarray(sent_s[row] + end_us * 1e-6), np.asarray(gap[ends] * 1e-6, dtype=np.float64))


def row_blocks(events: EventTimes) -> Iterator[tuple[int, int]]:
    """Spans of whole rows with at most about `BLOCK_EVENTS` token events each."""
    rows = len(events.start) - 1
    first = 0
    while first < rows:
        limit = int(events.start[first]) + BLOCK_EVENTS
        last = max(first + 1, int(np.searchsorted(events.start, limit, side="right")) - 1)
        yield first, last
        first = last


def interference(table: RecordTable, keep: Mask) -> Interference | None:
    """Gaps of the rows in `keep` around the arrivals of the longest prompts; None without gaps or arrivals."""
    arrivals = _long_prompt_arrivals(table, keep)
    if not len(arrivals.row):
        return None
    pieces = [_pairs(block, arrivals) for block in gap_blocks(table, keep & _around(table, arrivals))]
    offset = np.concatenate([piece[0] for piece in pieces]) if pieces else np.zeros(0)
    gap = np.concatenate([piece[1] for piece in pieces]) if pieces else np.zeros(0)
    return _binned(offset, gap, arrivals) if len(gap) else None


def _long_prompt_arrivals(table: RecordTable, keep: Mask) -> Arrivals:
    """The arrivals looked at, in time order, thinned to bound the work."""
    sent_s, prompts = table.rows["sent_s"], table.rows["prompt_tokens"]
    sent = np.flatnonzero(np.isfinite(sent_s))
    if not len(sent) or table.events is None:
        return Arrivals(sent[:0], np.zeros(0), 0, False)
    shortest = int(np.ceil(np.quantile(prompts[sent], 1 - LONG_PROMPT_SHARE)))
    row = sent[prompts[sent] >= shortest]
    row = row[np.argsort(sent_s[row], kind="stable")]
    alone = np.diff(sent_s[row], prepend=-np.inf) > BEFORE_S
    isolated = int(alone.sum()) >= ENOUGH_ISOLATED
    row = row[alone] if isolated else row
    events = int(np.diff(table.events.start)[keep].sum())
    span = float(np.ptp(sent_s[sent])) + BEFORE_S + AFTER_S
    limit = max(1, int(MAX_PAIRS / max(1.0, events * (BEFORE_S + AFTER_S) / span)))
    row = row[:: -(-len(row) // limit)]
    return Arrivals(row, sent_s[row], shortest, isolated)


def _around(table: RecordTable, arrivals: Arrivals) -> Mask:
    """Rows that were being answered somewhere near one of the arrivals: only their gaps can matter."""
    events = table.events
    if events is None or not len(events.us):
        return np.zeros(len(table.rows), dtype=bool)
    sent_s = np.ascontiguousarray(table.rows["sent_s"])
    last_s = sent_s + events.us[np.maximum(events.start[1:] - 1, 0)] * 1e-6
    begin = np.searchsorted(arrivals.sent_s, sent_s - AFTER_S, side="left")
    return np.asarray(begin < np.searchsorted(arrivals.sent_s, last_s + BEFORE_S, side="right"))


def _pairs(gaps: Gaps, arrivals: Arrivals) -> tuple[Floats, Floats]:
    """(time since the arrival, gap) for each gap that ended near an arrival of *another* request."""
    first = np.searchsorted(arrivals.sent_s, gaps.end_s - AFTER_S, side="right")
    count = np.searchsorted(arrivals.sent_s, gaps.end_s + BEFORE_S, side="right") - first
    which = np.repeat(np.arange(len(count)), count)
    arrival = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
    other = arrivals.row[arrival] != gaps.row[which]
    which, arrival = which[other], arrival[other]
    return gaps.end_s[which] - arrivals.sent_s[arrival], gaps.gap_s[which]


def _binned(offset: Floats, gap: Floats, arrivals: Arrivals) -> Interference:
    narrow = [w for w in WIDTHS_S if len(gap) >= ENOUGH_GAPS * (BEFORE_S + AFTER_S) / w]
    width = narrow[0] if narrow else WIDTHS_S[-1]
    bins = round((BEFORE_S + AFTER_S) / width)
    index = np.clip(np.floor((offset + BEFORE_S) / width).astype(np.int64), 0, bins - 1)
    # Sixty groups sorted one by one take a third of the time of one sort by two keys.
    order = np.argsort(index.astype(np.uint8), kind="stable")
    edges = np.cumsum(np.bincount(index, minlength=bins), dtype=np.int64)
    stats = [_stat(np.sort(group)) for group in np.split(gap[order], edges[:-1])]
    return Interference(
        width_s=width,
        arrivals=len(arrivals.row),
        min_prompt_tokens=arrivals.min_prompt_tokens,
        isolated=arrivals.isolated,
        offset_s=[round((i + 0.5) * width - BEFORE_S, 6) for i in range(bins)],
        n=[stat.n if stat else 0 for stat in stats],
        p50_s=[stat.p50_s if stat else None for stat in stats],
        p99_s=[stat.p99_s if stat and stat.n >= ENOUGH_GAPS else None for stat in stats],
        max_s=[stat.max_s if stat else None for stat in stats],
        before=_stat(np.sort(gap[offset < 0])),
        after=_stat(np.sort(gap[(offset >= 0) & (offset < BEFORE_S)])),
    )


def _stat(gap: Floats) -> GapStat | None:
    if not len(gap):
        return None
    p50, p99 = sorted_quantiles(gap, (0.5, 0.99))
    return GapStat(len(gap), p50, p99, float(gap[-1]))


def worst_gap(table: RecordTable, keep: Mask) -> WorstGap | None:
    """The longest gap among the rows in `keep` with its surroundings; None when no row has two token events."""
    if table.events is None:
        return None
    longest, event = -1, 0
    for first, last in row_blocks(table.events):
        gap_us, within = _gaps(table.events, keep, first, last)
        if within.any() and (most := int(gap_us.max(where=within, initial=0))) > longest:
            longest = most
            event = int(table.events.start[first]) + 1 + int(np.argmax(within & (gap_us == most)))
    if longest < 0:
        return None
    row = int(np.searchsorted(table.events.start, event, side="right")) - 1
    ends_s = float(table.rows["sent_s"][row] + table.events.us[event] * 1e-6)
    return _surroundings(table, longest * 1e-6, ends_s, row)


def _surroundings(table: RecordTable, gap_s: float, ends_s: float, row: int) -> WorstGap:
    events = table.events
    assert events is not None
    record = table.rows[row]
    tokens = record["sent_s"] + events.us[events.start[row] : events.start[row + 1]] * 1e-6
    index = int(np.argmax(np.diff(tokens))) + 1
    begins_s = ends_s - gap_s
    near = np.flatnonzero((tokens >= begins_s - STRIP_SIDE_S - 1e-9) & (tokens <= ends_s + STRIP_SIDE_S))
    near = near[np.argsort(np.abs(near - index), kind="stable")[:MAX_STRIP_TOKENS]]
    arrivals = _arrivals_between(table, row, begins_s - max(STRIP_SIDE_S, gap_s), ends_s + STRIP_SIDE_S)
    during = [a.prompt_tokens for a in arrivals if a.at_s <= ends_s]
    shown = sorted(sorted(arrivals, key=lambda a: -a.prompt_tokens)[:MAX_STRIP_ARRIVALS], key=lambda a: a.at_s)
    return WorstGap(
        request_id=int(record["request_id"]),
        index=index,
        gap_s=gap_s,
        begins_s=begins_s,
        ends_s=ends_s,
        prompt_tokens=int(record["prompt_tokens"]),
        output_tokens=int(record["output_tokens"]),
        token_s=[float(t) for t in tokens[np.sort(near)]],
        arrivals=shown,
        arrivals_left_out=len(arrivals) - len(shown),
        longest_prompt=max(during, default=None),
    )


def _arrivals_between(table: RecordTable, own: int, begin_s: float, end_s: float) -> list[Arrival]:
    sent = table.rows["sent_s"]
    rows = np.flatnonzero((sent >= begin_s) & (sent <= end_s) & (np.arange(len(sent)) != own))
    return [Arrival(int(r["request_id"]), float(r["sent_s"]), int(r["prompt_tokens"])) for r in table.rows[rows]]
