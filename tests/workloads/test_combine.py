"""Merging, superposing and repeating: no row is lost, none is made up, sources stay apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import traces
from workloads.combine import merge, repeat, superpose
from workloads.errors import WorkloadError
from workloads.sharing import hit_ratio
from workloads.trace import Prefix, Trace


def lengths(trace: Trace) -> list[tuple[int, int]]:
    return sorted(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


@given(st.lists(traces(max_rows=15), min_size=1, max_size=4), st.booleans())
def test_merge_is_a_union_on_absolute_time(parts: list[Trace], classes: bool) -> None:
    """Every row of every trace once, at its absolute instant; sessions of two traces never become one."""
    parts = [replace(part, origin_ns=10**18 + 7 * i) for i, part in enumerate(parts)]
    merged = merge(parts, class_per_trace=classes)
    absolute = sorted((part.origin_ns or 0) + at for part in parts for at in part.arrival_ns.tolist())
    assert absolute == [(merged.origin_ns or 0) + at for at in merged.arrival_ns.tolist()]
    assert sorted(pair for part in parts for pair in lengths(part)) == lengths(merged)
    sessions = sum(len(set(p.session[p.session >= 0].tolist())) for p in parts if p.session is not None)
    assert sessions == (0 if merged.session is None else len(set(merged.session[merged.session >= 0].tolist())))
    if classes:
        assert merged.slo_class is not None
        assert [len(part) for part in parts] == np.bincount(merged.slo_class, minlength=len(parts)).tolist()


def test_merge_needs_dates() -> None:
    """A trace that counts from zero has no place among others, but may be alone."""
    dated, undated = (
        Trace(n, np.array([0]), np.array([1]), np.array([1]), origin_ns=o) for n, o in (("a", 5), ("b", None))
    )
    with pytest.raises(WorkloadError, match="b counts from zero"):
        merge([dated, undated])
    assert 1 == len(merge([undated]))


@given(traces(min_rows=2), st.floats(1.0, 5.0), st.integers(0, 99))
def test_superposition_reaches_the_rate(trace: Trace, factor: float, seed: int) -> None:
    """The first copy stands unturned; as many rows as the rate needs (exactly so without sessions)."""
    if trace.span_s == 0:
        return
    rate = (trace.mean_rate_per_s or 0) * factor
    more = superpose(trace, rate, np.random.default_rng(seed))
    wanted = round(rate * trace.span_s + 1)
    copies, rest = divmod(wanted, len(trace))
    if trace.session is None:
        assert wanted == len(more)
        assert more.arrival_ns[-1] <= trace.arrival_ns[-1]
    else:
        assert copies * len(trace) <= len(more) <= copies * len(trace) + max(rest, len(trace))
    if trace.prefix is not None and rest == 0:
        assert hit_ratio(trace) == pytest.approx(hit_ratio(more))
    again = superpose(trace, rate, np.random.default_rng(seed))
    assert more.content_hash == again.content_hash


def test_superposition_only_adds() -> None:
    """A lower rate is for thinning."""
    with pytest.raises(WorkloadError, match="lower the rate"):
        superpose(Trace("t", np.array([0, 10**9, 2 * 10**9]), *(np.ones(3),) * 2), 0.5, np.random.default_rng(1))


def test_superposition_keeps_bursts() -> None:
    """Turned copies of one burst are bursts of their own."""
    trace = Trace("t", np.append(np.arange(100) * 1000, 10**12), np.ones(101), np.ones(101))
    more = superpose(trace, (trace.mean_rate_per_s or 0) * 5 * 1.0001, np.random.default_rng(3))
    gaps = np.diff(more.arrival_ns)
    assert (gaps == 1000).sum() > 450


@given(traces(min_rows=2), st.integers(1, 4), st.integers(0, 99))
def test_repetition(trace: Trace, times: int, seed: int) -> None:
    """Times over the same rows, each pass a span and a mean gap after the one before; the rate stays."""
    again = repeat(trace, times, np.random.default_rng(seed))
    assert times * len(trace) == len(again)
    assert sorted(lengths(trace) * times) == lengths(again)
    period = int(trace.arrival_ns[-1]) + round(int(trace.arrival_ns[-1]) / (len(trace) - 1))
    expected = sorted(at + period * i for i in range(times) for at in trace.arrival_ns.tolist())
    assert expected == again.arrival_ns.tolist()
    if trace.session is not None and again.session is not None:
        per_pass = len(set(trace.session[trace.session >= 0].tolist()))
        assert times * per_pass == len(set(again.session[again.session >= 0].tolist()))


def test_repetition_reshuffles() -> None:
    """The second pass has the lengths in another order; with shared prefixes rows stay as they are, with new blocks."""
    rows = 50
    trace = Trace("t", np.arange(rows) * 10**9, np.arange(1, rows + 1), np.ones(rows))
    again = repeat(trace, 2, np.random.default_rng(1))
    assert trace.prompt_tokens.tolist() == again.prompt_tokens[:rows].tolist()
    assert trace.prompt_tokens.tolist() != again.prompt_tokens[rows:].tolist()
    shared = replace(trace, prefix=Prefix(np.arange(rows + 1), np.arange(rows) % 5, 16))
    twice = repeat(shared, 2, np.random.default_rng(1))
    assert trace.prompt_tokens.tolist() == twice.prompt_tokens[rows:].tolist()
    assert hit_ratio(shared) == hit_ratio(twice)


def test_blocks_of_two_sizes_do_not_mix() -> None:
    """Refused in words."""
    a, b = (
        Trace(
            "t",
            np.array([0]),
            np.array([9]),
            np.array([1]),
            prefix=Prefix(np.array([0, 1]), np.array([3]), n),
            origin_ns=1,
        )
        for n in (16, 512)
    )
    with pytest.raises(WorkloadError, match="16 and 512"):
        merge([a, b])
