"""Reading in numpy gives exactly what reading row by row gives, whatever is in the file."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.errors import WorkloadError
from workloads.formats import delimited, read_trace, source
from workloads.trace import Trace

HEADERS = {
    "calendar": "TIMESTAMP,ContextTokens,GeneratedTokens",
    "seconds": "arrived_at,num_prefill_tokens,num_decode_tokens",
    "nanoseconds": "arrival_ns,prompt_tokens,output_tokens",
}
ODD = ["", " ", '"5"', "0", "-1", "1.0", "1e3", "٣", "x", "999999999", "2147483648", "\x7f", "5 ", "00000012", "+4"]

counts = st.one_of(st.integers(1, 99_999).map(str), st.sampled_from(ODD))
calendar = st.one_of(
    st.builds(
        "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}".format,
        st.integers(2022, 2025),
        st.integers(1, 13),
        st.integers(1, 31),
        st.sampled_from(" T"),
        st.integers(0, 24),
        st.integers(0, 60),
        st.integers(0, 60),
        st.sampled_from(["", ".", ".5", ".1234567", ".123456789", ".1234567891", ".12a", ",5"]),
        st.sampled_from(["", "Z", "+00:00", "-07:30", " +00:00"]),
    ),
    st.sampled_from(["", "yesterday", "2023-11-16", '"2023-11-16 18:15:46"']),
)
seconds = st.one_of(
    st.decimals(0, 10**9, places=6).map(str),
    st.decimals(0, 1000, places=18).map(str),
    st.floats(0, 1e6).map(repr),
    st.sampled_from(
        ["5", "5.", ".5", "-1.5", "1e3", "nan", "0.0000000005", "0.0000000015", "1234567890123", "1..2", ""]
    ),
)
nanoseconds = st.one_of(
    st.integers(-(2**63), 2**63).map(str), st.integers(0, 10**19).map(str), st.sampled_from(["", "1.5", "x"])
)
TIMES = {"calendar": calendar, "seconds": seconds, "nanoseconds": nanoseconds}


def rows(form: str) -> st.SearchStrategy[str]:
    """Lines of a table: mostly plain, some too short, too long, blank or quoted."""
    plain = st.tuples(TIMES[form], counts, counts).map(",".join)
    odd = st.sampled_from(["", "   ", "1,2", "1,2,3,4", "1,2,3,", "é,1,1", ",,", "1,2,3,,,"])
    return st.one_of(plain, plain, plain, odd)


def outcome(path: Path) -> tuple[object, ...] | str:
    try:
        trace = read_trace(path)
    except WorkloadError as error:
        return error.message
    return described(trace)


def described(trace: Trace) -> tuple[object, ...]:
    lines = trace.line.tolist() if trace.line is not None else None
    return trace.content_hash, trace.origin_ns, lines, [astuple(row) for row in trace.rejected], trace.warnings


@pytest.mark.parametrize("form", HEADERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data(), end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_same_as_row_by_row(form: str, data: st.DataObject, end: str, tmp_path: Path) -> None:
    """Same columns, lines, rejected rows, warnings or error, with any line ends and any block size."""
    lines = data.draw(st.lists(rows(form), min_size=1, max_size=30))
    path = tmp_path / "table"
    path.write_bytes(end.join([HEADERS[form], *lines]).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_BLOCK", data.draw(st.sampled_from([7, 64, 1 << 19])))
        fast = outcome(path)
        patch.setattr(delimited._Rows, "layout", lambda _: None)
        assert outcome(path) == fast


def test_plain_rows_are_really_read_in_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a single row of the usual shapes goes the slow way."""

    def refused(*_: object) -> None:
        raise AssertionError("a plain row was read by itself")

    monkeypatch.setattr(delimited._Rows, "_read_line", refused)
    times = {
        "calendar": ["2023-11-16 18:15:46.6805900", "2024-05-10 00:00:00+00:00", "2024-05-10 00:00:01.123456+00:00"],
        "seconds": ["0.0", "4.314579", "5", "12.3456789012345"],
        "nanoseconds": ["0", "1700158546680590000", "12"],
    }
    for form, texts in times.items():
        path = tmp_path / form
        path.write_text("\r\n".join([HEADERS[form], *(f"{text},374,44" for text in texts)]))
        assert len(texts) == len(read_trace(path))


def test_half_nanoseconds_round_to_even(tmp_path: Path) -> None:
    """As Decimal does: 0.5 ns to 0, 1.5 ns and 2.5 ns to 2."""
    path = tmp_path / "t"
    texts = ["0", "0.0000000005", "0.0000000015", "0.0000000025"]
    path.write_text("\n".join([HEADERS["seconds"], *(f"{text},1,1" for text in texts)]))
    assert [0, 0, 2, 2] == read_trace(path).arrival_ns.tolist()


def test_memory_of_a_row(tmp_path: Path) -> None:
    """The trace itself holds 24 bytes a row."""
    path = tmp_path / "t"
    path.write_text("\n".join([HEADERS["seconds"], *(f"{i}.5,7,9" for i in range(1000))]))
    trace = read_trace(path)
    columns = (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens, trace.line)
    assert 24 * 1000 == sum(column.nbytes for column in columns if column is not None)
    assert np.all(np.diff(trace.arrival_ns) == 10**9)
