"""Rows and runs for tests of metrics: a request a second, each with a given TTFT and TPOT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metrics.records import EventTimes, Outcome, RecordTable, Rows, empty_rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo


def ok_rows(ttft_s: Sequence[float], tpot_s: float = 0.02, tokens: int = 11, **columns: Any) -> Rows:
    """A row a second that came through; `columns` overwrite whole columns."""
    rows = empty_rows(len(ttft_s))
    rows["outcome"] = Outcome.OK
    rows["scheduled_s"] = np.arange(len(ttft_s))
    rows["sent_s"] = rows["scheduled_s"]
    rows["first_token_s"] = rows["scheduled_s"] + np.asarray(ttft_s)
    rows["last_token_s"] = rows["first_token_s"] + tpot_s * (tokens - 1)
    rows["done_s"] = rows["last_token_s"]
    rows["output_tokens"] = tokens
    for name, values in columns.items():
        rows[name] = values
    return rows


def ragged(times_us: Sequence[Sequence[int]], lag_us: int = 0, tokens: int = 1) -> EventTimes:
    """Token events of consecutive rows, in microseconds since each was sent."""
    counts = [len(row) for row in times_us]
    total = sum(counts)
    return EventTimes(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array([t for row in times_us for t in row], dtype=np.uint32),
        np.full(total, tokens, dtype=np.uint16),
        np.full(total, lag_us, dtype=np.uint16),
    )


def run_of(rows: Rows, events: EventTimes | None = None, **info: Any) -> Run:
    """A complete run of these rows."""
    return Run(RunInfo(state="complete", **info), RecordTable(rows, events))
