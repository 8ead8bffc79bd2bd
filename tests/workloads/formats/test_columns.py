"""Logs with columns of their own: maps, dotted paths, units, and the names that are guessed."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from workloads.errors import WorkloadError
from workloads.formats import read_trace
from workloads.formats.columns import Columns, found_at
from workloads.formats.timestamp import Unreadable
from workloads.trace import Rejected, Trace

MAP = "time=at,unit=ms,prompt=req.usage.in,output=req.usage.out,session=user.id,turn=n,class=tier,blocks=ids,block=16"


def read(tmp_path: Path, text: str, columns: str | None = None) -> Trace:
    path = tmp_path / "log"
    path.write_text(text)
    return read_trace(path, columns=Columns.parse(columns) if columns else None)


def row(at: Any, **more: Any) -> str:
    return json.dumps({"at": at, "req": {"usage": {"in": 30, "out": 4}}, **more})


def test_a_gateway_log(tmp_path: Path) -> None:
    """Everything a trace can hold comes from where the map says; names of classes and sessions are numbered."""
    lines = [
        row(1_700_000_000_000, user={"id": "ann"}, tier="interactive", n=1, ids=[7, 8]),
        row(1_700_000_000_500, user={"id": "bob"}, tier="batch", n=1),
        row(1_700_000_002_000.25, user={"id": "ann"}, tier="interactive", n=2, ids=[7, 9]),
    ]
    trace = read(tmp_path, "\n".join(lines), MAP)
    assert [0, 500_000_000, 2_000_250_000] == trace.arrival_ns.tolist()
    assert 1_700_000_000_000_000_000 == trace.origin_ns
    assert trace.session is not None
    assert trace.slo_class is not None
    assert trace.turn is not None
    assert trace.prefix is not None
    assert ([0, 1, 0], [0, 1, 0], [1, 1, 2]) == (trace.session.tolist(), trace.slo_class.tolist(), trace.turn.tolist())
    assert (16, [[7, 8], [], [7, 9]]) == (trace.prefix.block_tokens, [trace.prefix.row(i) for i in range(3)])
    assert ("classes: 0 is interactive, 1 is batch",) == trace.warnings


def test_rows_that_lack_something(tmp_path: Path) -> None:
    """Each bad line has its number and one word."""
    lines = [
        row(5),
        "{",
        row("soon"),
        json.dumps({"at": 6, "req": {"usage": {"in": 1}}}),
        row(7, ids="x"),
        row(8, n=1.5),
    ]
    trace = read(tmp_path, "\n".join(lines), MAP)
    reasons = [(2, "json"), (3, "timestamp"), (4, "columns"), (5, "hash_ids"), (6, "number")]
    assert [Rejected(*reason) for reason in reasons] == list(trace.rejected)


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    """The same map for delimited text; a dotted name is a column's whole name there; no origin before 2000."""
    text = "tier;usage.in;when;out\nfast;10;1.5;2\n3;20;2.25;4\n"
    trace = read(tmp_path, text, "time=when,unit=s,prompt=usage.in,output=out,class=tier")
    assert ([0, 750_000_000], [10, 20]) == (trace.arrival_ns.tolist(), trace.prompt_tokens.tolist())
    assert trace.origin_ns is None
    assert trace.slo_class is not None
    assert [0, 1] == trace.slo_class.tolist()


def test_lengths_only(tmp_path: Path) -> None:
    """Without a time the map makes a length-only trace."""
    trace = read(tmp_path, "a,b\n1,2\n3,4\n", "prompt=a,output=b")
    assert ([0, 0], "no_arrivals") == (trace.arrival_ns.tolist(), trace.warnings[0].partition(":")[0])


def test_usual_names_need_no_map(tmp_path: Path) -> None:
    """An OpenAI-like log, and a table with such columns."""
    log = {"created": "2024-05-10T12:00:00Z", "response": {"usage": {"input_tokens": 5, "output_tokens": 6}}}
    assert [5] == read(tmp_path, json.dumps(log)).prompt_tokens.tolist()
    text = "startTime,model,prompt_tokens,completion_tokens\n2024-05-10 12:00:00.5+00:00,m,5,6\n"
    assert [6] == read(tmp_path, text).output_tokens.tolist()


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (12, "auto", 12_000_000_000),
        (1_700_000_000, "auto", 1_700_000_000 * 10**9),
        (1_700_000_000_123, "auto", 1_700_000_000_123 * 10**6),
        (1_700_000_000_123_456, "auto", 1_700_000_000_123_456 * 10**3),
        (1_700_000_000_123_456_789, "auto", 1_700_000_000_123_456_789),
        ("1700000000.25", "auto", 1_700_000_000_250_000_000),
        (Decimal("1.5"), "ms", 1_500_000),
        (3, "us", 3_000),
        ("2023-11-14T22:13:20Z", "ms", 1_700_000_000 * 10**9),
    ],
)
def test_times(value: Any, unit: str, expected: int) -> None:
    """Numbers by unit or by size, text as number or as date, all exact."""
    assert expected == Columns(prompt="p", output="o", unit=unit).times().nanoseconds(value)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("start_ms", "ms"),
        ("startTimeUnixNano", "ns"),
        ("arrival (s)", "s"),
        ("request.elapsedMicros", "us"),
        ("TIMESTAMP_MS", "ms"),
        ("ts", None),
        ("items", None),
        ("timestamp", None),
    ],
)
def test_names_that_say_the_unit(name: str, unit: str | None) -> None:
    """The last word of a column's name, where it is a unit; `unit=` goes before it."""
    times = Columns(time=name, prompt="p", output="o").times()
    assert (unit, "column name" if unit else "evidence") == (times.unit, times.by)
    assert "us" == Columns(time=name, prompt="p", output="o", unit="us").times().unit


@pytest.mark.parametrize("value", ["", "soon", "1_0", "nan", True, None, [1], "2023-02-30T00:00:00Z", "٣"])
def test_what_is_no_time(value: Any) -> None:
    """Neither number nor date."""
    with pytest.raises(Unreadable):
        Columns(prompt="p", output="o").times().nanoseconds(value)


def test_paths() -> None:
    """A key with dots goes before a path, list items go by number, nothing is nothing."""
    value = {"a.b": 1, "a": {"b": 2, "c.d": {"e": 3}}, "l": [{"x": 4}], "n": None}
    assert [1, 3, 4, None, None] == [found_at(value, path) for path in ("a.b", "a.c.d.e", "l.0.x", "n", "l.7.x")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prompt=a",
        "prompt=a,output",
        "prompt=a,output=b,tme=c",
        "prompt=a,output=b,unit=h",
        "prompt=a,output=b,block=0",
    ],
)
def test_bad_maps(text: str) -> None:
    """One sentence that says what is wrong with the map."""
    with pytest.raises(WorkloadError) as caught:
        Columns.parse(text)
    assert "columns" == caught.value.code


def test_a_map_prints_as_it_is_written() -> None:
    """str() and parse() are each other's inverse."""
    assert MAP == str(Columns.parse(MAP))
    assert Columns.parse(MAP) == Columns.parse(str(Columns.parse(MAP)))


def test_too_many_classes(tmp_path: Path) -> None:
    """A class is one byte: the 257th name is rejected."""
    text = "t,p,o,c\n" + "".join(f"{i},1,1,name{i}\n" for i in range(257))
    trace = read(tmp_path, text, "time=t,unit=s,prompt=p,output=o,class=c")
    assert (256, (Rejected(258, "slo_class"),)) == (len(trace), trace.rejected)
