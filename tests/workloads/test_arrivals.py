"""Arrival processes: their mean, their spread, their first instant."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.arrivals import constant, poisson, poisson_profile
from workloads.errors import WorkloadError


def test_constant() -> None:
    """Evenly spaced from zero."""
    assert constant(4, 2.0).tolist() == [0, 0.5, 1.0, 1.5]


def test_poisson_gaps_are_exponential() -> None:
    """Mean 1 / rate and CV 1, within five standard errors of 100,000 gaps."""
    gaps = np.diff(poisson(100_001, 4.0, np.random.default_rng(1)))
    assert gaps.mean() == pytest.approx(0.25, rel=5 / 316)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=5 / 316)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_counts(n: int) -> None:
    """Exactly n arrivals, the first at 0."""
    for arrivals in (constant(n, 3.0), poisson(n, 3.0, np.random.default_rng(2))):
        assert n == len(arrivals)
        assert (arrivals[:1] == 0).all()


def test_same_seed_same_arrivals() -> None:
    """Randomness comes from the generator alone."""
    a, b = (poisson(50, 3.0, np.random.default_rng(5)) for _ in range(2))
    assert a.tolist() == b.tolist()


def test_profile_follows_its_rates() -> None:
    """Counts per bin are the rates times the bin, within five standard deviations, and the profile repeats."""
    rates, bin_s = np.array([50.0, 0.0, 200.0]), 10.0
    arrivals = poisson_profile(8_000, rates, bin_s, np.random.default_rng(3))
    counts = np.bincount((arrivals // bin_s).astype(int))
    for expected, count in zip([500, 0, 2000, 500, 0, 2000, 500, 0], counts, strict=False):
        assert expected == pytest.approx(count, abs=5 * max(expected, 1) ** 0.5)


def test_bad_rate() -> None:
    """A rate of zero sends nothing and is refused."""
    with pytest.raises(WorkloadError, match="0 requests per second"):
        poisson(5, 0, np.random.default_rng(1))
