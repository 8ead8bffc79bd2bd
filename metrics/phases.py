"""Where a request's time goes, phase by phase, and where the hand-off of its KV cache shows.

An engine that reports its own spans gives queue, prefill, transfer and decode. From any other server the client sees
less: when headers, first and second token came. Either way the phases of a request add up to its end-to-end time;
what they leave unexplained is a phase of its own and is never spread over the others.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.latency import e2e_s, second_token_gap_s, select, ttft_s
from metrics.records import EventTimes, RecordTable, Rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

ENGINE = ("client lag", "queue", "prefill", "KV transfer", "decode", "network and rest")
CLIENT = ("client lag", "until headers", "until first token", "until second token", "later tokens", "until the end")
LEVELS = (0.5, 0.9, 0.99)
WINDOW = 0.02  # the requests within two per cent of all of a quantile stand for it
TOLD_BY_ENGINE = 0.5  # of the answers, before the engine's spans are used
HEADER_WAIT = 0.05  # of TTFT: headers that come later than this were held back for something
LATER_FACTOR = 1.5  # a second-token gap this much above the later gaps holds more than a decode step

ToldBy = Literal["engine", "client"]
Place = Literal["second token", "first token"]


class Level(msgspec.Struct, frozen=True):
    """Mean seconds in each phase of the requests around one quantile of a time."""

    share: float
    total_s: float
    phase_s: list[float]


class Waterfall(msgspec.Struct, frozen=True):
    """One request: what it stands for, when it was due, and its phases one after the other."""

    name: str
    request_id: int
    due_s: float
    prompt_tokens: int
    output_tokens: int
    phase_s: list[float]


class HandOff(msgspec.Struct, frozen=True):
    """Where a disaggregated server's KV hand-off is felt; seconds, medians unless named otherwise.

    `transfer_s` is the engine's own word. `held_s` is headers to first token where headers came late.
    """

    place: Place
    transfer_p50_s: float | None
    transfer_p99_s: float | None
    second_gap_p50_s: float | None
    second_gap_p99_s: float | None
    later_gap_p50_s: float | None
    held_p50_s: float | None


class Phases(msgspec.Struct, frozen=True):
    """Phases in order; `answer` explains end-to-end time, `first` only what passed until the first token."""

    told_by: ToldBy
    names: list[str]
    answer: list[Level]
    first: list[Level]
    waterfalls: list[Waterfall]
    hand_off: HandOff | None


def phases(table: RecordTable, keep: Mask, *, disaggregated: bool) -> Phases | None:
    """The phases of the rows in `keep` that have token times; None when there are none."""
    gap = None if table.events is None else second_token_gap_s(table.events)
    whole, first = e2e_s(table.rows), ttft_s(table.rows)
    timed = keep & np.isfinite(whole) & np.isfinite(first)
    if not timed.any():
        return None
    told = timed & np.isfinite(table.rows["queue_s"]) & np.isfinite(table.rows["prefill_s"])
    by_engine = bool(told.sum() >= TOLD_BY_ENGINE * timed.sum())
    of = told if by_engine else timed
    rows, index = select(table.rows, of), np.flatnonzero(of)
    second = np.full(len(rows), np.nan) if gap is None else gap[index]
    parts = _by_engine(rows) if by_engine else _by_client(rows, second)
    opening = _opening(parts, rows, by_engine=by_engine)
    return Phases(
        told_by="engine" if by_engine else "client",
        names=list(ENGINE if by_engine else CLIENT),
        answer=_levels(parts, whole[index]),
        first=_levels(opening, first[index]),
        waterfalls=_waterfalls(parts, rows, whole[index]),
        hand_off=_hand_off(rows, second, _later_gap(table.events, index)) if disaggregated or _moved(rows) else None,
    )


def _by_engine(rows: Rows) -> Floats:
    lag = rows["sent_s"] - rows["scheduled_s"]
    spans = [np.nan_to_num(rows[name]) for name in ("queue_s", "prefill_s", "transfer_s", "decode_s")]
    rest = np.maximum(rows["done_s"] - rows["sent_s"] - np.sum(spans, axis=0), 0.0)
    return np.stack([lag, *spans, rest], axis=1)


def _by_client(rows: Rows, second: Floats) -> Floats:
    sent, first, last = rows["sent_s"], rows["first_token_s"], rows["last_token_s"]
    headers = np.clip(np.where(np.isfinite(rows["headers_s"]), rows["headers_s"], sent), sent, first)
    second = np.minimum(np.nan_to_num(second), np.maximum(last - first, 0.0))
    return np.stack(
        [
            sent - rows["scheduled_s"],
            headers - sent,
            first - headers,
            second,
            np.maximum(last - first - second, 0.0),
            np.maximum(rows["done_s"] - last, 0.0),
        ],
        axis=1,
    )


def _opening(parts: Floats, rows: Rows, *, by_engine: bool) -> Floats:
    """The phases cut off at the first token, in the order in which they happen."""
    until = (rows["first_token_s"] - rows["scheduled_s"])[:, None]
    before = parts[:, :3] if by_engine else parts
    opened = np.diff(np.minimum(np.cumsum(before, axis=1), until), axis=1, prepend=0.0)
    if not by_engine:
        return np.asarray(opened)
    left = until[:, 0] - opened.sum(axis=1)
    waits = _first_token_waits(rows)
    transfer = np.minimum(parts[:, 3], left) if waits else np.zeros(len(left))
    return np.column_stack([opened, transfer, np.zeros(len(left)), left - transfer])


def _first_token_waits(rows: Rows) -> bool:
    """Whether the first token comes after the transfer: streamed by the decode worker, not by the prefill worker."""
    moved = rows[np.nan_to_num(rows["transfer_s"]) > 0]
    if not len(moved):
        return False
    left = moved["first_token_s"] - moved["sent_s"] - moved["queue_s"] - moved["prefill_s"]
    return bool(np.median(left) >= np.median(moved["transfer_s"]) / 2)


def _levels(parts: Floats, total_s: Floats) -> list[Level]:
    order = np.argsort(total_s, kind="stable")
    levels = []
    for share in LEVELS:
        middle = share * (len(order) - 1)
        reach = WINDOW * len(order)
        near = order[max(0, round(middle - reach)) : round(middle + reach) + 1]
        levels.append(Level(share, float(total_s[near].mean()), parts[near].mean(axis=0).tolist()))
    return levels


def _waterfalls(parts: Floats, rows: Rows, total_s: Floats) -> list[Waterfall]:
    """The median request and the one at p99."""
    order = np.argsort(total_s, kind="stable")
    picked = {name: int(order[round(share * (len(order) - 1))]) for name, share in (("median", 0.5), ("p99", 0.99))}
    return [
        Waterfall(
            name=name,
            request_id=int(rows["request_id"][i]),
            due_s=float(rows["scheduled_s"][i]),
            prompt_tokens=int(rows["prompt_tokens"][i]),
            output_tokens=int(rows["output_tokens"][i]),
            phase_s=parts[i].tolist(),
        )
        for name, i in picked.items()
    ]


def _moved(rows: Rows) -> bool:
    """Whether the engine says that caches were moved."""
    return bool((np.nan_to_num(rows["transfer_s"]) > 0).any())


def _hand_off(rows: Rows, second: Floats, later: float | None) -> HandOff | None:
    transfer = rows["transfer_s"][np.isfinite(rows["transfer_s"]) & (rows["transfer_s"] > 0)]
    gap = second[np.isfinite(second)]
    waited, held = rows["headers_s"] - rows["sent_s"], rows["first_token_s"] - rows["headers_s"]
    late_headers = waited > HEADER_WAIT * (rows["first_token_s"] - rows["sent_s"])
    stood_back = held[np.isfinite(held) & late_headers]
    gap_p50 = _quantile(gap, 0.5)
    held_p50 = _quantile(stood_back, 0.5) if late_headers.mean() > TOLD_BY_ENGINE else None
    in_gap = gap_p50 is not None and later is not None and gap_p50 > LATER_FACTOR * later
    if len(transfer):
        in_gap = not _first_token_waits(rows)
    elif not in_gap and held_p50 is None:
        return None
    return HandOff(
        place="second token" if in_gap else "first token",
        transfer_p50_s=_quantile(transfer, 0.5),
        transfer_p99_s=_quantile(transfer, 0.99),
        second_gap_p50_s=gap_p50,
        second_gap_p99_s=_quantile(gap, 0.99),
        later_gap_p50_s=later,
        held_p50_s=held_p50,
    )


def _later_gap(events: EventTimes | None, index: Ints) -> float | None:
    """Median over requests of the mean gap after the second token."""
    if events is None:
        return None
    start, end = events.start[:-1][index], events.start[1:][index]
    long = end - start >= 3
    if not long.any():
        return None
    first, last = start[long] + 1, end[long] - 1
    return _quantile((events.us[last].astype(np.float64) - events.us[first]) / 1e6 / (last - first), 0.5)


def _quantile(values: Floats, share: float) -> float | None:
    return float(np.quantile(values, share)) if len(values) else None
