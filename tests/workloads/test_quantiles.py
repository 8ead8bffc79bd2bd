"""Knots: near the data in distribution and mean, and few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.quantiles import Quantiles, distance, of_counts, of_gaps

EVEN = (np.arange(200_000) + 0.5) / 200_000


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=300), st.sampled_from([0.002, 0.02]))
def test_counts_come_back(values: list[int], tolerance: float) -> None:
    """Drawn evenly and rounded, the distance is at most the tolerance (and the grid's step), nothing lies outside."""
    data = np.array(values, dtype=np.int32)
    drawn = np.rint(Quantiles(of_counts(data, tolerance)).sample(EVEN))
    assert distance(data, drawn) <= tolerance + 1e-3
    assert min(values) - 1 <= drawn.min()
    assert drawn.max() <= max(values) + 1


@given(st.lists(st.floats(0, 1e4), min_size=2, max_size=300))
def test_the_mean_of_gaps_is_kept(gaps: list[float]) -> None:
    """The rate of a process depends on it: within 2 % plus what interpolation of few gaps changes."""
    data = np.array(gaps)
    drawn = Quantiles(of_gaps(data, 0.01)).sample(EVEN)
    assert data.mean() == pytest.approx(drawn.mean(), rel=0.02 + 2 / len(gaps), abs=data.max() / len(gaps) + 2e-9)


def test_a_smooth_distribution_needs_few_knots() -> None:
    """20,000 lognormal values become a handful."""
    data = np.random.default_rng(1).lognormal(5, 1, 20_000).astype(np.int32) + 1
    assert len(of_counts(data, 0.005)) < 45


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50), st.lists(st.integers(0, 9), min_size=1, max_size=50))
def test_distance_is_the_largest_difference(a: list[int], b: list[int]) -> None:
    """Kolmogorov-Smirnov of two samples with ties: the largest difference of their empirical distributions."""
    largest = max(abs(sum(x <= v for x in a) / len(a) - sum(x <= v for x in b) / len(b)) for v in range(10))
    assert largest == pytest.approx(distance(np.array(a), np.array(b)))
