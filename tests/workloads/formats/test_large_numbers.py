"""Numbers of any size in a trace: each row of them is rejected or read, in no time and no memory."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from workloads.describe import describe, dispersions
from workloads.formats import read_trace
from workloads.formats.columns import Columns
from workloads.formats.rows import Reject, whole, whole_value
from workloads.trace import Trace

DIGITS = "9" * 5000
HUGE = [DIGITS, "1" + "0" * 400, "1e99999999", "-1e99999999", "1e-99999999", "9" * 20, str(2**63), "1e25"]


def reasons(trace: Trace) -> dict[str, int]:
    return dict(Counter(row.reason for row in trace.rejected))


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("place", [1, 2])
def test_counts_in_tables(number: str, place: int, tmp_path: Path) -> None:
    """The row is rejected as `number`, the others are read."""
    cells = ["2023-11-16 18:17:03.0", "7", "5"]
    cells[place] = number
    rows = [",".join(cells), "2023-11-16 18:17:04.0,7,5", "2023-11-16 18:17:05.0,7,5"]
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    trace = read_trace(tmp_path / "t.csv")
    assert (2, {"number": 1}) == (len(trace), reasons(trace))


def test_sessions_and_turns_in_our_own_form(tmp_path: Path) -> None:
    """Beyond 64 bits, and beyond 32."""
    rows = ["0,4,5,99999999999999999999,1", "1,4,5,1,4999999999", f"2,4,5,{DIGITS},1", "3,4,5,7,2"]
    (tmp_path / "t.csv").write_text("arrival_ns,prompt_tokens,output_tokens,session,turn\n" + "\n".join(rows) + "\n")
    trace = read_trace(tmp_path / "t.csv")
    assert (1, {"number": 3}) == (len(trace), reasons(trace))
    assert trace.session is not None
    assert [7] == trace.session.tolist()


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("key", ["timestamp", "input_length", "output_length", "turn", "chat_id", "parent_chat_id"])
def test_numbers_in_json_lines(number: str, key: str, tmp_path: Path) -> None:
    """Whatever holds it, the row fails alone; a time so small is 0."""
    plain: dict[str, Any] = {"chat_id": 1, "parent_chat_id": -1, "turn": 1}
    plain |= {"timestamp": 1, "input_length": 4, "output_length": 2, "hash_ids": [1]}
    text = json.dumps({**plain, key: "X", "chat_id": "X" if key == "chat_id" else 2}).replace('"X"', number)
    (tmp_path / "t.jsonl").write_text(f"{json.dumps(plain)}\n{text}\n{json.dumps({**plain, 'timestamp': 2})}\n")
    trace = read_trace(tmp_path / "t.jsonl")
    left = 3 - len(trace)
    assert left == sum(reasons(trace).values())
    assert left == ((key, number) != ("timestamp", "1e-99999999"))


@pytest.mark.parametrize("number", [*HUGE, "true", '"' + DIGITS + '"', "[1]"])
def test_numbers_of_a_log_with_a_column_map(number: str, tmp_path: Path) -> None:
    """Counts and turns; a session may be called anything."""
    columns = Columns.parse("time=t,prompt=p,output=o,turn=n,class=c,unit=s")
    plain: dict[str, Any] = {"t": 1, "p": 4, "o": 2, "n": 1, "c": 3}
    lines = [json.dumps(plain)]
    lines += [json.dumps({**plain, key: "X"}).replace('"X"', number) for key in ("p", "o", "n")]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    trace = read_trace(tmp_path / "t.jsonl", columns=columns)
    assert 1 == len(trace)


def test_a_class_of_many_digits(tmp_path: Path) -> None:
    """Rejected, not counted to."""
    rows = [f"1,4,5,{DIGITS}", "2,4,5,3"]
    (tmp_path / "t.csv").write_text("t,p,o,c\n" + "\n".join(rows) + "\n")
    trace = read_trace(tmp_path / "t.csv", columns=Columns.parse("time=t,prompt=p,output=o,class=c,unit=s"))
    assert {"slo_class": 1} == reasons(trace)


def test_whole_numbers() -> None:
    """As text and as decimals."""
    from decimal import Decimal

    assert [20, -3, 5] == [whole(" 20 "), whole("-3"), whole("5.0")]
    assert [12, 10**19] == [whole_value(Decimal("12.0")), whole_value(Decimal("1e19"))]
    for odd in (Decimal("1.5"), Decimal("1e99999999"), Decimal("NaN"), True, None):
        with pytest.raises(Reject):
            whole_value(odd)


def test_two_rows_centuries_apart_need_no_memory_for_what_is_between(tmp_path: Path) -> None:
    """1829 and 2040: a count for each second between them would be 49 GiB."""
    rows = ["1829-11-16 18:17:03.0,4,5", "2040-11-16 18:17:03.0,4,5"]
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    found = describe(read_trace(tmp_path / "t.csv"))
    seconds = int(found.span_s)
    assert 211 == round(seconds / 86400 / 365.25)
    assert {"1": 1, "10": 1, "60": 1} == found.largest_window
    assert found.empty_1s_windows_share == pytest.approx(1 - 1 / seconds)
    assert found.idc["1"] == pytest.approx(1.0)  # one arrival in a window of so many: (1/n - 1/n^2) / (1/n)


def test_windows_are_counted_as_with_a_count_for_each() -> None:
    """Against the plain way."""
    import numpy as np

    rng = np.random.default_rng(3)
    at = np.sort(rng.integers(0, 400 * 10**9, 300))
    at -= at[0]
    for width, found in zip((1, 10, 60), dispersions(at), strict=True):
        counts = [0] * (int(at[-1]) // (width * 10**9))
        for instant in at.tolist():
            if instant // (width * 10**9) < len(counts):
                counts[instant // (width * 10**9)] += 1
        mean = sum(counts) / len(counts)
        variance = sum((count - mean) ** 2 for count in counts) / len(counts)
        assert found == pytest.approx(variance / mean)
