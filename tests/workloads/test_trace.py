"""`Trace`: frozen columns with a hash of what will be sent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.strategies import traces
from workloads.errors import WorkloadError
from workloads.trace import Prefix, Trace


def trace_of(arrival_s: list[float]) -> Trace:
    rows = len(arrival_s)
    return Trace("t", np.rint(np.array(arrival_s) * 1e9), np.arange(1, rows + 1), np.full(rows, 5))


def test_rate_and_span() -> None:
    """Three requests in two seconds are one per second: n - 1 gaps."""
    assert (2.0, 1.0) == (trace_of([0, 0.5, 2]).span_s, trace_of([0, 0.5, 2]).mean_rate_per_s)


@pytest.mark.parametrize("arrivals", [[], [0.0], [0.0, 0.0, 0.0]])
def test_no_span_no_rate(arrivals: list[float]) -> None:
    """A burst has no mean rate, and nothing is divided by zero."""
    assert (0.0, None) == (trace_of(arrivals).span_s, trace_of(arrivals).mean_rate_per_s)


@given(traces())
def test_hash_is_of_the_content(trace: Trace) -> None:
    """Name, lines and date do not matter; every column that decides what is sent does."""
    same = replace(trace, name="other", line=None, origin_ns=5, warnings=("w",))
    assert trace.content_hash == same.content_hash
    assert trace.content_hash != replace(trace, output_tokens=trace.output_tokens + 1).content_hash
    assert trace.content_hash != replace(trace, turn=np.full(len(trace), 99)).content_hash
    blocks = Prefix(np.arange(len(trace) + 1), np.full(len(trace), 9))
    assert trace.content_hash != replace(trace, prefix=blocks).content_hash


def test_columns_cannot_be_changed() -> None:
    """What was hashed stays what it was."""
    with pytest.raises(ValueError, match="read-only"):
        trace_of([0, 1]).arrival_ns[0] = 1


def test_columns_are_checked() -> None:
    """Columns of different lengths, a late start or a step back cannot become a trace."""
    with pytest.raises(WorkloadError, match="prompt_tokens of trace t has 1 rows"):
        Trace("t", np.array([0, 1]), np.array([1]), np.array([1, 1]))
    for arrivals in ([1.0, 2.0], [0.0, 2.0, 1.0]):
        with pytest.raises(WorkloadError, match="start at 0 and never go back"):
            trace_of(arrivals)


@given(traces())
def test_prefix_rows_can_be_taken_in_any_order(trace: Trace) -> None:
    """Taking rows of the ragged blocks equals taking them from a list of lists."""
    if trace.prefix is None:
        return
    order = np.arange(len(trace))[::-1][::2]
    taken = trace.prefix.take(order)
    assert [trace.prefix.row(i) for i in order] == [taken.row(i) for i in range(len(taken))]
