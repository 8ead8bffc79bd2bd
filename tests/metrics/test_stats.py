"""Distributions in a few numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.stats import describe, nearest_rank

SAMPLES = st.lists(st.floats(0, 1e3), min_size=1, max_size=60)


def test_nothing_is_described_as_none() -> None:
    """An empty sample has no percentile, not zero; NaN is no sample."""
    assert describe([]) is None
    assert describe([math.nan]) is None
    assert nearest_rank([], 50) is None


@given(SAMPLES)
def test_percentiles_interpolate_linearly(values: list[float]) -> None:
    """A percentile lies at rank (n - 1) q between the two samples around it."""
    stat = describe(values)
    assert stat is not None
    ordered = sorted(values)
    for q, got in ((0.5, stat.p50), (0.9, stat.p90), (0.99, stat.p99)):
        rank = (len(ordered) - 1) * q
        low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
        assert low + (high - low) * (rank - math.floor(rank)) == pytest.approx(got, abs=1e-9)


@given(SAMPLES, st.integers(1, 100))
def test_nearest_rank_is_the_smallest_sample_with_enough_below(values: list[float], percent: int) -> None:
    """At least `percent` % of the samples are at or below it, and no smaller sample has that."""
    got = nearest_rank(values, percent)
    enough = [v for v in values if Fraction(sum(w <= v for w in values), len(values)) >= Fraction(percent, 100)]
    assert min(enough) == got


def test_p99_of_a_hundred_samples_is_not_the_maximum() -> None:
    """ceil(99) is 99: rounding 0.99 * 100 up in floats must not give rank 100."""
    assert nearest_rank(np.arange(1, 101), 99) == 99


@pytest.mark.parametrize(("n", "few"), [(1, ["p50", "p90", "p99"]), (9, ["p90", "p99"]), (99, ["p99"]), (100, [])])
def test_percentiles_of_too_few_samples_are_marked(n: int, few: list[str]) -> None:
    """A p99 needs 100 samples, a p90 ten, a median two."""
    stat = describe(np.arange(n))
    assert stat is not None
    assert few == stat.few
