"""Transforms of a trace: pure, exact, and clear about what they cannot do."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import traces
from workloads.errors import WorkloadError
from workloads.shape import fit_context, head, speed, to_rate, window
from workloads.trace import Rejected, Trace


def trace_of(arrival_s: list[float]) -> Trace:
    rows = len(arrival_s)
    columns = np.arange(1, rows + 1)
    return Trace("t", np.rint(np.array(arrival_s) * 1e9), columns * 10, columns, line=columns + 1, origin_ns=7)


@given(traces(), st.floats(0.01, 100))
def test_speed_divides_offsets(trace: Trace, x: float) -> None:
    """Every arrival is within a nanosecond (and float rounding) of t / x, by exact rational arithmetic."""
    for before, after in zip(trace.arrival_ns.tolist(), speed(trace, x).arrival_ns.tolist(), strict=True):
        assert abs(Fraction(before) / Fraction(x) - after) <= 1 + before / x * 1e-15


@given(traces(min_rows=2), st.floats(0.01, 1000))
def test_to_rate_is_exact(trace: Trace, rate: float) -> None:
    """Afterwards (n - 1) / span is the wanted rate, to the nanosecond of the last arrival."""
    if trace.span_s == 0:
        with pytest.raises(WorkloadError, match="arrive at one instant"):
            to_rate(trace, rate)
        return
    assert (len(trace) - 1) / rate == pytest.approx(to_rate(trace, rate).span_s, abs=1e-9, rel=1e-12)


def test_scaling_keeps_burstiness() -> None:
    """The coefficient of variation of the gaps does not change."""
    trace = trace_of(np.cumsum([0, 0.1, 5, 0.001, 3]).tolist())

    def cv(some: Trace) -> float:
        gaps = np.diff(some.arrival_ns)
        return float(gaps.std() / gaps.mean())

    assert cv(trace) == pytest.approx(cv(to_rate(trace, 3.7)), rel=1e-6)


def test_one_request_has_any_rate() -> None:
    """A single request has no gap to scale."""
    assert len(to_rate(trace_of([0]), 5.0)) == 1


@given(traces(), st.floats(0, 50), st.one_of(st.none(), st.floats(0.001, 50)))
def test_window_is_half_open(trace: Trace, start_s: float, length_s: float | None) -> None:
    """Kept are the rows with start <= t < start + length (brute force), restarted at the first of them."""
    low = round(start_s * 1e9)
    high = 2**62 if length_s is None else low + round(length_s * 1e9)
    kept = [i for i, t in enumerate(trace.arrival_ns.tolist()) if low <= t < high]
    if not kept:
        with pytest.raises(WorkloadError, match="No row"):
            window(trace, start_s, length_s)
        return
    part = window(trace, start_s, length_s)
    first = int(trace.arrival_ns[kept[0]])
    assert [int(trace.arrival_ns[i]) - first for i in kept] == part.arrival_ns.tolist()
    assert [int(trace.prompt_tokens[i]) for i in kept] == part.prompt_tokens.tolist()
    if trace.prefix is not None and part.prefix is not None:
        assert [trace.prefix.row(i) for i in kept] == [part.prefix.row(i) for i in range(len(part))]
    if trace.session is not None and part.session is not None:
        assert [int(trace.session[i]) for i in kept] == part.session.tolist()


def test_window_moves_the_origin() -> None:
    """The absolute time stays that of the first kept row."""
    assert window(trace_of([0, 1, 2]), 0.5).origin_ns == 1_000_000_007


def test_head() -> None:
    """The first rows, all of them when there are fewer, and never none."""
    assert [10, 20] == head(trace_of([0, 1, 2]), 2).prompt_tokens.tolist()
    assert len(head(trace_of([0, 1]), 9)) == 2
    with pytest.raises(WorkloadError):
        head(trace_of([0, 1]), 0)


def test_fit_context_reports_lines() -> None:
    """Prompt plus output must fit; the others are listed by line among what was rejected before."""
    trace = replace(trace_of([0, 1, 2, 3]), rejected=(Rejected(4, "number"),))
    fitted = fit_context(trace, 33)
    assert ([10, 20, 30], [0, 10**9, 2 * 10**9]) == (fitted.prompt_tokens.tolist(), fitted.arrival_ns.tolist())
    assert (Rejected(4, "number"), Rejected(5, "exceeds_context")) == fitted.rejected
    assert fit_context(trace, 44) is trace


def test_fit_context_restarts_the_clock() -> None:
    """When the first row does not fit, time begins at the first one that does."""
    trace = replace(trace_of([0, 1, 2.5]), prompt_tokens=np.array([99, 1, 1]))
    assert [0, 1_500_000_000] == fit_context(trace, 50).arrival_ns.tolist()


def test_nothing_fits() -> None:
    """A context too short for every row is an error with its own code."""
    with pytest.raises(WorkloadError) as caught:
        fit_context(trace_of([0, 1]), 5)
    assert caught.value.code == "exceeds_context"


def test_huge_counts_do_not_wrap() -> None:
    """The sum of two 31-bit counts is compared as it is."""
    trace = replace(trace_of([0, 1]), prompt_tokens=np.array([2**31 - 1, 1]), output_tokens=np.array([2**31 - 1, 1]))
    assert [1] == fit_context(trace, 100).prompt_tokens.tolist()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_factors(bad: float) -> None:
    """Rates and speeds are positive finite numbers."""
    for transform, code in ((speed, "speed"), (to_rate, "rate")):
        with pytest.raises(WorkloadError) as caught:
            transform(trace_of([0, 1]), bad)
        assert code == caught.value.code
