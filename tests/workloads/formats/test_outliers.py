"""Rows that stand years from all others; and the long gaps of real traces, which stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workloads.formats import read_trace
from workloads.trace import Rejected, Trace

START = np.datetime64("2026-09-10T09:00:00")
HOUR, DAY = 3_600, 86_400


def read(tmp_path: Path, instants: list[np.datetime64]) -> Trace:
    path = tmp_path / "t.csv"
    lines = [f"{str(at).replace('T', ' ')},{50 + i % 7},{9 + i % 5}" for i, at in enumerate(instants)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    return read_trace(path)


def after(*seconds: int) -> list[np.datetime64]:
    return [START + np.timedelta64(at, "s") for at in seconds]


def codes(trace: Trace) -> list[str]:
    return [word.partition(":")[0] for word in trace.warnings]


@pytest.mark.parametrize("at", ["1970-01-01T00:00:00", "2106-02-07T06:28:15", "2024-01-01T00:00:00"])
@pytest.mark.parametrize("place", [0, 60, 200])
def test_a_row_decades_away_is_left_out(tmp_path: Path, at: str, place: int) -> None:
    """Wherever it stands in the file: named by its line, and the rest is as if it had not been there."""
    instants = after(*range(200))
    clean = read(tmp_path, instants)
    instants.insert(place, np.datetime64(at))
    trace = read(tmp_path, instants)
    assert (Rejected(place + 2, "far_in_time"),) == trace.rejected
    assert (199.0, clean.origin_ns) == (trace.span_s, trace.origin_ns)
    (word,) = [word for word in trace.warnings if word.startswith("far_in_time")]
    assert f"line {place + 2} ({at.replace('T', ' ')})" in word


def test_rows_on_both_sides(tmp_path: Path) -> None:
    """Never-set and overflowed clocks together; the lines of all are listed in order."""
    bad = [np.datetime64(at) for at in ("2106-02-07T06:28:15", "1970-01-01T00:00:00", "1970-01-01T00:00:09")]
    trace = read(tmp_path, [*bad, *after(*range(100))])
    assert [2, 3, 4] == [row.line for row in trace.rejected]
    assert (100, 99.0) == (len(trace), trace.span_s)


def test_many_rows_far_away_are_told_and_kept(tmp_path: Path) -> None:
    """A fifth of the rows is no accident."""
    trace = read(tmp_path, [*[np.datetime64("1970-01-01T00:00:00")] * 5, *after(*range(20))])
    assert (25, (), "far_apart") == (len(trace), trace.rejected, codes(trace)[-1])


@pytest.mark.parametrize(
    "seconds",
    [
        [day * DAY + minute * 60 for day in (0, 1, 4, 5) for minute in range(60)],  # nights and a weekend
        [day * DAY + hour * HOUR for day in range(60) for hour in range(9, 18)],  # two months of office hours
        [0, *range(300 * DAY, 300 * DAY + 100)],  # a test row of the winter before
        [year * 500 * DAY for year in range(5)],  # nothing stands together
    ],
)
def test_long_gaps_stay(tmp_path: Path, seconds: list[int]) -> None:
    """Pauses of less than a year, and such as are the trace's own scale."""
    trace = read(tmp_path, after(*seconds))
    assert (len(seconds), ()) == (len(trace), trace.rejected)
    assert seconds[-1] - seconds[0] == trace.span_s


def test_a_gap_of_the_traces_own_size_stays(tmp_path: Path) -> None:
    """Two months of a log and one row from 13 months before: told, but kept."""
    trace = read(tmp_path, after(0, *(400 * DAY + day * DAY for day in range(60))))
    assert ((), ["far_apart"]) == (trace.rejected, codes(trace))
