"""One row per planned request with what was measured and what follows from it: the columns of CSV and JSONL exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from metrics.judge import Judgement, Verdict, judge_rows
from metrics.latency import client_lag_s, counted, e2e_s, second_token_gap_s, tpot_s, ttft_from_sent_s, ttft_s
from metrics.records import RECORD_DTYPE, Flag, Phase, StampSource, outcome_name
from metrics.rundir import Run
from metrics.slo import SLO

BLOCK = 50_000  # rows turned into Python objects at a time
Cell = int | float | str | bool | None

_NAMED = ("outcome", "phase", "flags", "stamp_source", "error_id", "http_status")
DERIVED = ("ttft_s", "ttft_from_sent_s", "tpot_s", "second_token_gap_s", "e2e_s", "client_lag_s", "counted")
JUDGED = ("good", "verdict")
COLUMNS = [
    *(name for name in RECORD_DTYPE.names or () if name not in _NAMED),
    "outcome",
    "http_status",
    "phase",
    "error",
    "flags",
    "stamp_source",
    *DERIVED,
    *JUDGED,
]


def request_rows(run: Run, slo: SLO | None) -> Iterator[list[Cell]]:
    """Every planned request's cells in the order of `COLUMNS`; None for what never happened or is unknown.

    `good` and `verdict` are None without an SLO, `good` also of an undecided request; neither says anything of rows
    that are not `counted`.
    """
    columns = _numbers(run)
    judged = None if slo is None else judge_rows(run.table.rows, slo.limits)
    rows, errors = run.table.rows, run.table.errors
    outcomes: dict[tuple[int, int], str] = {}
    flags: dict[int, str] = {}
    for begin in range(0, len(rows), BLOCK):
        block = rows[begin : begin + BLOCK]
        cells = [_plain(columns[name][begin : begin + BLOCK]) for name in COLUMNS if name in columns]
        names = [name for name in COLUMNS if name in columns]
        named = _texts(block, errors, outcomes, flags)
        lists = dict(zip(names, cells, strict=True)) | named | _judged(judged, begin, len(block))
        yield from map(list, zip(*(lists[name] for name in COLUMNS), strict=True))


def _judged(judged: Judgement | None, begin: int, count: int) -> dict[str, list[Cell]]:
    """Whether each row of a block is good, and its verdict by name."""
    if judged is None:
        return {name: [None] * count for name in JUDGED}
    verdicts = [Verdict(value) for value in judged.verdict[begin : begin + count].tolist()]
    return {
        "good": [None if verdict == Verdict.UNDECIDED else verdict == Verdict.GOOD for verdict in verdicts],
        "verdict": [verdict.name.lower() for verdict in verdicts],
    }


def _numbers(run: Run) -> dict[str, Any]:
    rows, events = run.table.rows, run.table.events
    unknown = np.full(len(rows), np.nan)
    return {
        **{name: rows[name] for name in RECORD_DTYPE.names or () if name not in _NAMED},
        "http_status": rows["http_status"],
        "ttft_s": ttft_s(rows),
        "ttft_from_sent_s": ttft_from_sent_s(rows),
        "tpot_s": tpot_s(rows),
        "second_token_gap_s": unknown if events is None else second_token_gap_s(events),
        "e2e_s": e2e_s(rows),
        "client_lag_s": client_lag_s(rows),
        "counted": counted(rows, run.info.stopped_at_s),
    }


def _plain(column: Any) -> list[Cell]:
    """Python values; NaN becomes None, times are cut to the nanosecond."""
    if column.dtype.kind != "f":
        plain: list[Cell] = column.tolist()
        return plain
    known = np.isfinite(column)
    rounded = np.round(np.where(known, column, 0.0).astype(np.float64), 9).tolist()
    return [value if ok else None for value, ok in zip(rounded, known.tolist(), strict=True)]


def _texts(
    block: Any, errors: list[str], outcomes: dict[tuple[int, int], str], flags: dict[int, str]
) -> dict[str, list[Cell]]:
    """Enumerations by name, errors by text."""
    named: list[Cell] = []
    for key in zip(block["outcome"].tolist(), block["http_status"].tolist(), strict=True):
        if key not in outcomes:
            outcomes[key] = outcome_name(*key)
        named.append(outcomes[key])
    flagged: list[Cell] = []
    for bits in block["flags"].tolist():
        if bits not in flags:
            flags[bits] = " ".join(str(flag.name).lower() for flag in Flag if bits & flag)
        flagged.append(flags[bits])
    return {
        "outcome": named,
        "flags": flagged,
        "phase": [Phase(value).name.lower() for value in block["phase"].tolist()],
        "stamp_source": [StampSource(value).name.lower() for value in block["stamp_source"].tolist()],
        "error": [errors[i] if 0 <= i < len(errors) else None for i in block["error_id"].tolist()],
    }
