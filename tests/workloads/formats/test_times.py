"""The unit of a file's times: stated, the format's, evident, or an error that shows the option."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.errors import WorkloadError
from workloads.formats import read_trace
from workloads.formats.columns import Columns
from workloads.formats.times import since_1970
from workloads.trace import Trace

SINCE_1970_S = 1_787_000_000  # 2026-08-17 20:53:20


def steady(rows: int, gap: float, start: float = 0) -> list[float]:
    return [round(start + i * gap, 6) for i in range(rows)]


def mooncake(tmp_path: Path, times: Sequence[Any], **stated: Any) -> Trace:
    rows = [{"timestamp": at, "input_length": 9 + i, "output_length": 3} for i, at in enumerate(times)]
    return written(tmp_path, rows, **stated)


def log(tmp_path: Path, times: Sequence[Any], key: str = "ts", **stated: Any) -> Trace:
    rows = [{key: at, "usage": {"prompt_tokens": 9, "completion_tokens": 3}} for at in times]
    return written(tmp_path, rows, **stated)


def written(tmp_path: Path, rows: list[dict[str, Any]], **stated: Any) -> Trace:
    path = tmp_path / "trace"
    path.write_text("\n".join(map(json.dumps, rows)))
    return read_trace(path, **stated)


def refused(read: Any, *given: Any, **stated: Any) -> tuple[str, str]:
    with pytest.raises(WorkloadError) as caught:
        read(*given, **stated)
    assert "time_unit" == caught.value.code
    return caught.value.message, caught.value.hint


def codes(trace: Trace) -> list[str]:
    return [word.partition(":")[0] for word in trace.warnings]


def unit_of(trace: Trace) -> tuple[str | None, str | None]:
    assert trace.reading is not None
    return trace.reading.time_unit, trace.reading.time_unit_by


@pytest.mark.parametrize("factor", [1, 1_000, 1_000_000, 1_000_000_000])
def test_digits_tell_the_unit_of_times_since_1970(factor: int) -> None:
    """From 2000 to 2116 a number is a date in one unit at most; before and after it is none."""
    units = {1: "s", 1_000: "ms", 1_000_000: "us", 1_000_000_000: "ns"}
    for second in (946_684_800, SINCE_1970_S, 4_294_967_296):
        assert units[factor] == since_1970(second * factor) == since_1970(Decimal(second * factor))
    assert since_1970(946_684_799 * factor) is since_1970(4_700_000_000 * factor) is since_1970(-1) is None


@pytest.mark.parametrize("times", [[SINCE_1970_S + 0.25], steady(9, 0.7, SINCE_1970_S), steady(9, 2, SINCE_1970_S)])
def test_seconds_since_1970_are_not_the_milliseconds_of_a_format(tmp_path: Path, times: list[float]) -> None:
    """One row or many, with fractions or without; the option reads them."""
    message, hint = refused(mooncake, tmp_path, times)
    assert "2026-08-17" in message
    assert "--time-unit s" in hint
    trace = mooncake(tmp_path, times, time_unit="s")
    assert (times[-1] - times[0], ("s", "stated")) == (pytest.approx(trace.span_s), unit_of(trace))


def test_a_stated_unit_goes_before_the_evidence(tmp_path: Path) -> None:
    """With a warning, because the user may know better."""
    trace = mooncake(tmp_path, steady(9, 1000, SINCE_1970_S), time_unit="ms")
    assert (["time_unit"], 8.0) == (codes(trace), trace.span_s)


def test_fractions_of_a_millisecond_at_impossible_rates(tmp_path: Path) -> None:
    """0.7 s apart read as ms is 1,429 requests per second; fractions at a rate that can be are left alone."""
    assert "--time-unit s" in refused(mooncake, tmp_path, steady(30, 0.7))[1]
    assert ("ms", "format") == unit_of(mooncake(tmp_path, steady(30, 350.7)))


@pytest.mark.parametrize(("gap", "found"), [(0, []), (1, []), (300, []), (0.5, ["odd_rate"]), (250_000, ["odd_rate"])])
def test_a_recognised_format_keeps_its_unit(tmp_path: Path, gap: float, found: list[str]) -> None:
    """Whole numbers from a start fit any unit: the format's holds; a mean rate that no service has gets a word."""
    trace = mooncake(tmp_path, [int(i * gap) for i in range(40)])
    assert (found, int(39 * gap) / 1e3) == (codes(trace), trace.span_s)


def test_milliseconds_since_1970_in_a_format_of_seconds(tmp_path: Path) -> None:
    """None of them can be read, and the error says what they look like."""
    path = tmp_path / "burst.csv"
    path.write_text("Timestamp,Request tokens,Response tokens\n1787000000123,5,6\n1787000001123,5,6\n")
    with pytest.raises(WorkloadError) as caught:
        read_trace(path)
    assert ("empty_trace", True) == (caught.value.code, "--time-unit ms" in caught.value.hint)
    assert [0, 10**9] == read_trace(path, time_unit="ms").arrival_ns.tolist()


@pytest.mark.parametrize(("factor", "unit"), [(1, "s"), (1_000, "ms"), (1_000_000, "us"), (1_000_000_000, "ns")])
def test_own_logs_since_1970(tmp_path: Path, factor: int, unit: str) -> None:
    """The digits decide, and the trace says so."""
    trace = log(tmp_path, [(SINCE_1970_S + i) * factor for i in range(5)])
    assert (4.0, (unit, "evidence")) == (trace.span_s, unit_of(trace))


@pytest.mark.parametrize(
    ("times", "options"),
    [
        ([0, 350, 900, 1400], "s or ms"),
        ([i * 500 for i in range(300)], "s or ms"),
        ([i * 500.25 for i in range(300)], "s or ms"),  # 0.002 per second is too slow for seconds to be certain
        ([i * 500_000 for i in range(300)], "s or ms or us"),
        (["0", "12", "30"], "s or ms"),
    ],
)
def test_two_units_that_fit_are_an_error(tmp_path: Path, times: list[Any], options: str) -> None:
    """Nobody guesses; each unit that fits is named with the rate it would mean."""
    message, hint = refused(log, tmp_path, times)
    assert "in ms" in message
    assert f"--time-unit {options}" in hint
    assert ("ms", "stated") == unit_of(log(tmp_path, times, time_unit="ms"))


def test_fractions_are_seconds_where_the_rate_is_one(tmp_path: Path) -> None:
    """As are whole seconds that would be 20,000 requests per second as milliseconds."""
    assert ("s", "evidence") == unit_of(log(tmp_path, steady(100, 0.37)))
    assert ("s", "evidence") == unit_of(log(tmp_path, [i // 20 for i in range(100)]))


def test_days_of_a_spreadsheet(tmp_path: Path) -> None:
    """46,275.25 is six in the morning there; as seconds the rows would come at 86,400 per second."""
    assert "date and time" in refused(log, tmp_path, steady(40, 0.00001, 46275.25))[1]


def test_one_instant_has_no_unit(tmp_path: Path) -> None:
    """Whatever it is, nothing comes of it."""
    assert (None, None) == unit_of(log(tmp_path, [7, 7, 7]))


def test_durations_are_no_arrivals(tmp_path: Path) -> None:
    """Numbers that go up and down from row to row: nginx's request_time is how long a request took."""
    times = np.random.default_rng(1).exponential(2.0, 40).round(3).tolist()
    message, hint = refused(log, tmp_path, times, key="request_time")
    assert "durations" in message
    assert "--columns" in hint
    assert 40 == len(log(tmp_path, times, key="request_time", time_unit="s"))


def test_newest_first_is_no_disorder(tmp_path: Path) -> None:
    """Some exports begin with the last row."""
    assert ("s", "evidence") == unit_of(log(tmp_path, steady(40, 0.5)[::-1]))


def test_a_name_that_says_the_unit(tmp_path: Path) -> None:
    """It is used, unless the times contradict it."""
    columns = Columns.parse("time=start_ms,prompt=usage.prompt_tokens,output=usage.completion_tokens")
    assert ("ms", "column name") == unit_of(log(tmp_path, [0, 350, 900], key="start_ms", columns=columns))
    refused(log, tmp_path, [SINCE_1970_S, SINCE_1970_S + 3], key="start_ms", columns=columns)


def test_times_written_in_several_ways(tmp_path: Path) -> None:
    """A row in milliseconds among seconds is read right, and told; a small number among dates stands in 1970."""
    times: list[Any] = steady(100, 0.5, SINCE_1970_S)
    times[7] *= 1_000
    assert (["mixed_times"], 49.5) == (codes(trace := log(tmp_path, times)), trace.span_s)
    times[7] = "2026-08-17T20:53:23.5Z"
    assert (["mixed_times"], 49.5) == (codes(trace := log(tmp_path, times)), trace.span_s)
    times[7] = 3.5
    trace = log(tmp_path, times)
    assert ([8], 49.5) == ([row.line for row in trace.rejected], trace.span_s)


def test_two_stated_units(tmp_path: Path) -> None:
    """A column map and an option that disagree."""
    columns = Columns.parse("time=ts,unit=ms,prompt=usage.prompt_tokens,output=usage.completion_tokens")
    refused(log, tmp_path, [0, 5], columns=columns, time_unit="s")
    assert 0.005 == log(tmp_path, [0, 5], columns=columns, time_unit="ms").span_s


@pytest.mark.parametrize(
    ("clock", "found"),
    [
        (["00:30", "01:00", "01:30", "01:59", "01:00", "01:30", "02:10"], True),  # 1 November in New York
        (["09:00", "11:00", "12:30", "12:59", "01:00", "02:30"], True),  # no am, no pm
        (["09:00", "10:00", "09:58", "11:00"], False),  # two writers
        (["09:00", "09:01", "13:00", "13:01"], False),
    ],
)
def test_local_clocks_that_are_set_back(tmp_path: Path, clock: list[str], found: bool) -> None:
    """Once by nearly an hour, or by nearly twelve: two hours would be replayed on top of each other."""
    path = tmp_path / "t.csv"
    rows = [f"2026-11-01 {at}:00,5,6" for at in clock]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    assert found == ("clock_set_back" in codes(read_trace(path)))
