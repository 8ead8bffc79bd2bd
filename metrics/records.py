"""The record that crosses every border: one row per planned request, and the times of its token events.

All times are seconds since the run's start (`scheduled_s` = 0 is the first instant of the schedule) on one
process's monotonic clock; NaN where a thing never happened. Definitions: docs/definitions.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray


class Outcome(IntEnum):
    """How a planned request ended. Everything but OK counts against attainment."""

    OK = 0
    NOT_SENT = 1
    SKIPPED_LATE = 2
    LOST_WORKER = 3
    HTTP_ERROR = 4  # printed as http_<status>
    IN_BAND_ERROR = 5
    TRUNCATED_STREAM = 6
    CONNECTION_LOST = 7
    TIMEOUT = 8
    INTERRUPTED = 9  # in flight when the user stopped the run


class Phase(IntEnum):
    """Where a request was when it ended badly."""

    NONE = 0
    CONNECT = 1
    HEADERS = 2
    FIRST_TOKEN = 3
    STREAM = 4


class Flag(IntFlag):
    """What went along with a request without making it fail."""

    BUFFERED = 1 << 0  # at least 8 token events, half of them sharing a read
    COALESCED = 1 << 1  # two or more token events in one read
    MISSING_DONE = 1 << 2
    MISSING_FINISH_REASON = 1 << 3
    UNCLEAN_CLOSE = 1 << 4
    MALFORMED_EVENTS = 1 << 5
    SHORT_OUTPUT = 1 << 6  # fewer tokens than asked
    TOKENS_ESTIMATED = 1 << 7  # no usage from the server: token events counted
    HIDDEN_TOKENS = 1 << 8  # in usage, never streamed
    EMPTY_OUTPUT = 1 << 9
    RECONNECTED = 1 << 10
    REDIRECTED = 1 << 11
    CLOCK_STEP = 1 << 12  # the wall clock moved: user stamps were used
    NOT_STREAMED = 1 << 13  # one body, no token times: TTFT cannot be measured
    FIRST_EVENT_TOKENS = 1 << 14  # the first token event is known to carry several: TPOT is too low
    UNKNOWN_TEXT_KEY = 1 << 15  # generated text under a key that no dialect knows
    USAGE_OVER_TEXT = 1 << 16  # usage counts more tokens than the text can hold
    USAGE_CONTRADICTION = 1 << 17  # usage's total is no sum of its parts


class StampSource(IntEnum):
    """Who stamped the reads of a request."""

    NONE = 0
    KERNEL = 1
    USER = 2
    MIXED = 3
    SIMULATED = 4


RECORD_DTYPE = np.dtype(
    [
        ("request_id", "i8"),
        ("session", "i8"),
        ("worker", "i2"),
        ("slo_class", "u1"),
        ("warmup", "?"),
        ("scheduled_s", "f8"),
        ("sent_s", "f8"),
        ("headers_s", "f8"),
        ("first_token_s", "f8"),
        ("first_answer_s", "f8"),
        ("last_token_s", "f8"),
        ("done_s", "f8"),
        ("connect_s", "f8"),
        ("client_queue_s", "f8"),  # waited for a slot under --max-in-flight
        ("prompt_tokens", "i4"),
        ("served_prompt_tokens", "i4"),  # -1 when the server did not say
        ("max_tokens", "i4"),
        ("output_tokens", "i4"),
        ("hidden_tokens", "i4"),
        ("token_events", "i4"),
        ("outcome", "u1"),
        ("phase", "u1"),
        ("http_status", "u2"),
        ("error_id", "i4"),  # index into the run's error texts, -1 for none
        ("flags", "u4"),
        ("attempts", "u1"),
        ("reconnects", "u1"),
        ("stamp_source", "u1"),
        ("reads", "i4"),
        ("kernel_reads", "i4"),
        ("coalesced_reads", "i4"),
        ("loop_lag_max_us", "f4"),
        ("queue_s", "f8"),
        ("prefill_s", "f8"),
        ("transfer_s", "f8"),
        ("decode_s", "f8"),
    ]
)

_NAN_COLUMNS = [name for name in RECORD_DTYPE.names or () if name.endswith("_s") and name != "client_queue_s"]

Rows = NDArray[np.void]


def empty_rows(count: int) -> Rows:
    """Rows as they are before the run: planned, NOT_SENT, every time NaN."""
    rows = np.zeros(count, dtype=RECORD_DTYPE)
    rows["request_id"] = np.arange(count)
    rows["session"] = -1
    rows["worker"] = -1
    rows["outcome"] = Outcome.NOT_SENT
    rows["error_id"] = -1
    rows["served_prompt_tokens"] = -1
    for name in _NAN_COLUMNS:
        rows[name] = np.nan
    return rows


# Assigned at planning; a record never overrides them.
PLANNED_COLUMNS = ("session", "slo_class", "warmup", "scheduled_s", "prompt_tokens", "max_tokens")


def planned_rows(columns: Mapping[str, NDArray[Any]]) -> Rows:
    """The rows of a run before it starts, from the columns of its schedule: all planned, none sent."""
    rows = empty_rows(len(columns["request_id"]))
    for name in ("request_id", *PLANNED_COLUMNS):
        rows[name] = columns[name]
    return rows


@dataclass(frozen=True, eq=False)
class EventTimes:
    """Token events of all requests, ragged: those of row i are [start[i], start[i+1]).

    `us` is microseconds since the row's `sent_s`; `tokens` how many tokens the event carried (1 when unknown);
    `lag_us` is the user-space stamp minus the kernel's of the read that completed it (65,535 = no kernel stamp).
    Two events of one row with the same `us` came in the same read.
    """

    start: NDArray[np.int64]
    us: NDArray[np.uint32]
    tokens: NDArray[np.uint16]
    lag_us: NDArray[np.uint16]

    @staticmethod
    def empty(rows: int) -> EventTimes:
        return EventTimes(
            np.zeros(rows + 1, dtype=np.int64),
            np.zeros(0, dtype=np.uint32),
            np.zeros(0, dtype=np.uint16),
            np.zeros(0, dtype=np.uint16),
        )


NO_KERNEL_STAMP = 65_535


class WorkerStats(msgspec.Struct, kw_only=True):
    """What one load-generating process says of itself."""

    worker: int
    reactor: str = ""
    zero_ns: int = 0  # this machine's monotonic clock at scheduled_s == 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    reads: int = 0
    kernel_reads: int = 0
    connections_opened: int = 0
    connections_reused: int = 0
    connections_idle_most: int = 0  # at one time
    requests_by_address: dict[str, int] = {}  # of each part of the target, those without any too
    cached_prompt_tokens: int = 0  # which the server said it did not compute again
    unknown_text_keys: list[str] = []  # paths of keys nobody knew under which generated text stood
    clock_steps: int = 0
    torn_frames: int = 0


def requests_by_address(workers: Iterable[WorkerStats]) -> dict[str, int]:
    """All workers' requests per part of the target."""
    counts: Counter[str] = Counter()
    for worker in workers:
        counts.update(worker.requests_by_address)
    return dict(counts)


@dataclass(eq=False)
class RecordTable:
    """A row per planned request in schedule order, with token events, error texts and worker statistics."""

    rows: Rows
    events: EventTimes | None = None
    errors: list[str] = field(default_factory=list)
    workers: list[WorkerStats] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)


def outcome_name(outcome: int, http_status: int) -> str:
    """The name printed for an outcome: `ok`, `timeout`, `http_429`, ..."""
    if outcome == Outcome.HTTP_ERROR:
        return f"http_{http_status}"
    return Outcome(outcome).name.lower()
