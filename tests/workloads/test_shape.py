"""Transforms of a trace: pure, exact, and clear about what they cannot do."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import traces
from workloads.combine import repeat
from workloads.errors import WorkloadError
from workloads.schedule import plan
from workloads.shape import (
    clip_context,
    fit_context,
    head,
    sample,
    speed,
    spread_ticks,
    thin,
    to_rate,
    units,
    window,
    with_arrivals,
)
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


@given(traces(), st.integers(2, 40_000))
def test_clip_makes_every_row_fit(trace: Trace, context: int) -> None:
    """All rows stay, nothing grows, nothing exceeds the context, and what fitted is untouched."""
    clipped = clip_context(trace, context)
    before = trace.prompt_tokens.astype(int) + trace.output_tokens
    after = clipped.prompt_tokens.astype(int) + clipped.output_tokens
    assert len(trace) == len(clipped)
    assert (after[before > context] == context).all()
    assert (after[before <= context] == before[before <= context]).all()
    assert clipped.prompt_tokens.min() >= 1
    assert (clipped.output_tokens <= trace.output_tokens).all()
    cut = int((before > context).sum())
    assert (f"clipped: {cut} rows",) == tuple(
        word[: len(f"clipped: {cut} rows")] for word in clipped.warnings
    ) or not cut


@given(traces(min_rows=2), st.integers(1, 50), st.integers(0, 99))
def test_sample_keeps_order_and_sessions_whole(trace: Trace, n: int, seed: int) -> None:
    """A subsequence of the rows, of n of them without sessions; a session is in it with all of its turns or none."""
    kept = sample(replace(trace, line=np.arange(len(trace))), n, np.random.default_rng(seed))
    assert kept.line is not None
    rows = kept.line.tolist()
    assert rows == sorted(set(rows))
    if trace.session is None:
        assert min(n, len(trace)) == len(rows)
    else:
        for unit in set(units(trace)[rows].tolist()):
            assert set(np.flatnonzero(units(trace) == unit).tolist()) <= set(rows)
    again = sample(trace, n, np.random.default_rng(seed))
    assert kept.content_hash == again.content_hash


def test_thinning_keeps_times() -> None:
    """Half the rate of 2,001 rows is 1,001 of them, each at one of the recorded instants."""
    trace = trace_of(np.cumsum([0, *np.random.default_rng(1).exponential(1, 2000)]).tolist())
    half = thin(trace, (trace.mean_rate_per_s or 0) / 2, np.random.default_rng(2))
    assert 1001 == len(half)
    offset = (half.origin_ns or 0) - (trace.origin_ns or 0)
    assert set((half.arrival_ns + offset).tolist()) <= set(trace.arrival_ns.tolist())
    with pytest.raises(WorkloadError, match="raise the rate"):
        thin(trace, 99.0, np.random.default_rng(2))


@given(traces(min_rows=2), st.integers(0, 99))
def test_spreading_stays_within_ticks(trace: Trace, seed: int) -> None:
    """Rows keep their order and their tick: no row reaches the next instant, and lone rows do not move."""
    spread = spread_ticks(replace(trace, origin_ns=None), np.random.default_rng(seed))
    assert trace.prompt_tokens.tolist() == spread.prompt_tokens.tolist()
    instants = sorted(set(trace.arrival_ns.tolist()))
    if len(instants) < 2 or len(instants) == len(trace):
        assert trace.arrival_ns.tolist() == spread.arrival_ns.tolist()
        return
    first_moved = trace.arrival_ns.tolist().count(0) > 1
    longest = max(b - a for a, b in pairwise(instants))
    for before, after in zip(trace.arrival_ns.tolist(), spread.arrival_ns.tolist(), strict=True):
        assert -longest < after - before < longest or not first_moved
    assert ["spread_ticks"] == [word.split(":")[0] for word in spread.warnings]


def test_spreading_a_clock_of_three_seconds() -> None:
    """300 rows on ten instants become evenly spread: windows of 1 s hold about ten each."""
    trace = trace_of(np.repeat(np.arange(10) * 3.0, 30).tolist())
    counts = np.bincount((spread_ticks(trace, np.random.default_rng(3)).arrival_ns // 10**9).astype(int))
    assert counts.max() < 25


def test_other_arrivals() -> None:
    """The same requests at other instants; where the recorded ones were missing, they are not missing any more."""
    trace = replace(trace_of([0, 0, 0]), warnings=("no_arrivals: lengths only", "other: stays"))
    made = with_arrivals(trace, np.array([2.0, 2.5, 4.0]), "steps")
    assert ([0, 500_000_000, 2_000_000_000], [10, 20, 30]) == (made.arrival_ns.tolist(), made.prompt_tokens.tolist())
    assert (["other", "arrivals"], None) == ([word.split(":")[0] for word in made.warnings], made.origin_ns)


@given(traces(), st.integers(1, 60), st.integers(2, 40_000))
def test_parts_are_subsequences(trace: Trace, n: int, context: int) -> None:
    """head is the first rows, fit_context those that fit: order, lengths and distances between instants stay."""
    fits = [i for i in range(len(trace)) if int(trace.prompt_tokens[i]) + int(trace.output_tokens[i]) <= context]
    parts = [(head(trace, n), list(range(min(n, len(trace)))))]
    if fits:
        parts.append((fit_context(trace, context), fits))
    for part, rows in parts:
        assert [int(trace.prompt_tokens[i]) for i in rows] == part.prompt_tokens.tolist()
        assert [int(trace.arrival_ns[i] - trace.arrival_ns[rows[0]]) for i in rows] == part.arrival_ns.tolist()
        rejected = len(trace) - len(rows) if part is not parts[0][0] else 0
        assert rejected == len(part.rejected)


@given(traces(min_rows=3), st.floats(0.05, 1.0), st.integers(0, 99))
def test_thinning_is_a_subsequence_of_the_wanted_size(trace: Trace, factor: float, seed: int) -> None:
    """round(rate x span) + 1 rows at recorded instants; the same for the same seed."""
    if trace.span_s == 0 or trace.session is not None:
        return
    rate = (trace.mean_rate_per_s or 0) * factor
    part, again = (
        thin(replace(trace, line=np.arange(len(trace))), rate, np.random.default_rng(seed)) for _ in range(2)
    )
    assert part.line is not None
    assert (round(rate * trace.span_s) + 1, part.content_hash) == (len(part), again.content_hash)
    rows = part.line.tolist()
    assert rows == sorted(set(rows))
    assert [int(trace.arrival_ns[i] - trace.arrival_ns[rows[0]]) for i in rows] == part.arrival_ns.tolist()


@pytest.mark.parametrize("workers", [1, 2, 5])
@given(trace=traces(min_rows=2), seed=st.integers(0, 99))
def test_workers_together_send_the_shaped_trace(workers: int, trace: Trace, seed: int) -> None:
    """Whatever was done to a trace, the union over workers is the same schedule for every number of them."""
    rng = np.random.default_rng(seed)
    schedule = plan(repeat(spread_ticks(clip_context(trace, 500), rng), 2, rng), seed=seed, salt="aa")
    shards = [schedule.shard(worker, workers) for worker in range(workers)]
    order = np.argsort(np.concatenate([shard.request_id for shard in shards]))
    for column in ("request_id", "scheduled_s", "prompt_tokens", "max_tokens", "session", "slo_class"):
        union = np.concatenate([getattr(shard, column) for shard in shards])[order]
        assert getattr(schedule, column).tolist() == union.tolist()
