"""Our own form keeps every column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.strategies import traces
from workloads.formats import goodput, read_trace
from workloads.trace import Trace


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traces())
def test_round_trip(tmp_path: Path, trace: Trace) -> None:
    """Writing and reading gives the same content hash and origin, plain and gzip."""
    for name in ("t.csv", "t.csv.gz"):
        goodput.write(trace, tmp_path / name)
        again = read_trace(tmp_path / name)
        assert (trace.content_hash, trace.origin_ns) == (without_empty(again, trace), again.origin_ns)


def without_empty(again: Trace, trace: Trace) -> str:
    """The hash; a column in which no row says anything cannot be told from none."""
    from dataclasses import replace

    for name, absent in (("session", -1), ("turn", -1), ("slo_class", 0)):
        column = getattr(trace, name)
        if column is not None and (column == absent).all():
            again = replace(again, **{name: np.full(len(trace), absent)})
    if trace.prefix is not None and not len(trace.prefix.ids):
        again = replace(again, prefix=trace.prefix)
    return again.content_hash


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    """No time of writing and no name inside."""
    trace = Trace("t", np.array([0, 5]), np.array([1, 2]), np.array([3, 4]))
    for name in ("a.csv.gz", "b.csv.gz"):
        goodput.write(trace, tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


@pytest.mark.parametrize(("origin", "column"), [(None, "arrival_ns"), (10**18, "arrival_unix_ns")])
def test_the_header_says_what_the_times_are(tmp_path: Path, origin: int | None, column: str) -> None:
    """Absolute and relative times have different names."""
    goodput.write(Trace("t", np.array([0]), np.array([1]), np.array([3]), origin_ns=origin), tmp_path / "t.csv")
    assert column == (tmp_path / "t.csv").read_text().split(",")[0]
