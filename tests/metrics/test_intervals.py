"""Intervals over runs, blocks and shares."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from metrics.intervals import (
    block_interval,
    block_length,
    correlation_time,
    effective_sample_size,
    holm,
    p_above_zero,
    share_interval,
    t_interval,
    t_quantile,
)

VALUES = st.lists(st.floats(-10, 10), min_size=3, max_size=12).filter(lambda x: np.std(x) > 1e-3)


def test_quantiles_are_those_of_the_printed_table() -> None:
    """t of 95 % with 2, 4 and 10 degrees of freedom, as in any textbook."""
    assert [2.920, 2.132, 1.812] == [pytest.approx(t_quantile(0.05, n), abs=5e-4) for n in (2, 4, 10)]


@given(VALUES, st.sampled_from([0.05, 0.0125]))
def test_the_t_interval_is_the_one_of_scipy(values: list[float], alpha: float) -> None:
    """One-sided alpha each way is a two-sided interval of 1 - 2 alpha."""
    theirs = ttest_1samp(values, 0.0).confidence_interval(1 - 2 * alpha)
    ours = t_interval(values, alpha)
    assert (theirs.low, theirs.high) == (pytest.approx(ours.low), pytest.approx(ours.high))


@given(VALUES)
def test_the_p_value_is_the_one_of_scipy(values: list[float]) -> None:
    """One-sided, of a mean above 0."""
    assert ttest_1samp(values, 0.0, alternative="greater").pvalue == pytest.approx(p_above_zero(values), abs=1e-9)


def test_one_value_bounds_nothing() -> None:
    """A single pair has a mean and no interval."""
    assert (-math.inf, 0.3, math.inf) == (lambda i: (i.low, i.estimate, i.high))(t_interval([0.3], 0.05))
    assert p_above_zero([0.3]) is None


def test_a_side_that_never_answers_is_infinitely_worse() -> None:
    """All pairs infinite: certain; some: open above."""
    assert math.inf == t_interval([math.inf] * 3, 0.05).low
    mixed = t_interval([0.1, math.inf, 0.2], 0.05)
    assert (0.1, math.inf) == (mixed.low, mixed.high)


def test_holm_by_hand() -> None:
    """0.01, 0.04, 0.03 of three tests: 0.03, 0.06 (twice 0.03), 0.06; None does not count."""
    assert [pytest.approx(0.03), pytest.approx(0.06), None, pytest.approx(0.06)] == holm([0.01, 0.04, None, 0.03])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_never_helps(p_values: list[float]) -> None:
    """Adjusted values are no smaller, at most 1, and ordered as the raw ones."""
    adjusted = [p for p in holm(list(p_values)) if p is not None]
    assert all(raw <= after <= 1 for raw, after in zip(p_values, adjusted, strict=True))
    ordered = [after for _, after in sorted(zip(p_values, adjusted, strict=True))]
    assert all(a <= b for a, b in pairwise(ordered))


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_correlation_time_of_an_autoregression(phi: float) -> None:
    """x[t] = phi x[t-1] + noise has 1 + 2 sum phi^k = (1 + phi) / (1 - phi)."""
    rng = np.random.default_rng(1)
    series = np.zeros(40_000)
    noise = rng.normal(size=len(series))
    for t in range(1, len(series)):
        series[t] = phi * series[t - 1] + noise[t]
    assert (1 + phi) / (1 - phi) == pytest.approx(correlation_time(series), rel=0.15)
    assert len(series) * (1 - phi) / (1 + phi) == pytest.approx(effective_sample_size(series), rel=0.15)


def test_a_constant_or_tiny_series_is_taken_as_independent() -> None:
    """There is nothing to correlate."""
    assert (1.0, 1.0) == (correlation_time(np.ones(50)), correlation_time([1.0, 2.0]))


def test_blocks_are_a_twentieth_or_twice_the_correlation_time() -> None:
    """Independent samples: n / 20; a slow wave: longer, but never above half."""
    rng = np.random.default_rng(2)
    assert 50 == block_length(rng.normal(size=1000))
    wave = np.sin(np.arange(1000) / 50)
    assert 50 < block_length(wave) <= 500


def test_the_block_interval_of_independent_samples_is_the_normal_one() -> None:
    """mean +- 1.645 / sqrt(n), up to the noise of the resampling."""
    sample = np.random.default_rng(3).normal(size=2000)
    found = block_interval(sample, lambda x: float(x.mean()), np.random.default_rng(4), resamples=1000)
    assert 2 * 1.645 / math.sqrt(2000) == pytest.approx(found.high - found.low, rel=0.25)
    assert found.low < found.estimate < found.high


def test_the_block_interval_knows_that_neighbours_are_alike() -> None:
    """The same values in runs of 50 say less: the interval is several times as wide."""
    values = np.random.default_rng(5).normal(size=40)
    alike = np.repeat(values, 50)
    rng = np.random.default_rng(6)
    shuffled = rng.permutation(alike)
    wide, narrow = (block_interval(x, lambda v: float(v.mean()), np.random.default_rng(7)) for x in (alike, shuffled))
    assert wide.high - wide.low > 4 * (narrow.high - narrow.low)


def test_the_same_generator_gives_the_same_interval() -> None:
    """Same seed, same bytes."""
    sample = np.random.default_rng(8).exponential(size=300)
    one, two = (block_interval(sample, lambda x: float(np.median(x)), np.random.default_rng(9)) for _ in range(2))
    assert one == two


@given(st.integers(1, 500), st.data())
def test_the_share_interval_is_wilsons(whole: int, data: st.DataObject) -> None:
    """As scipy's Wilson interval without continuity correction."""
    part = data.draw(st.integers(0, whole))
    theirs = binomtest(part, whole).proportion_ci(0.9, method="wilson")
    ours = share_interval(part, whole, 0.05)
    assert (pytest.approx(theirs.low, abs=1e-9), pytest.approx(theirs.high, abs=1e-9)) == (ours.low, ours.high)


def test_no_failure_in_ninety_does_not_show_one_per_cent() -> None:
    """The upper bound of 0 of 90 is about 2.9 %; of 0 of 900 about 0.3 %."""
    assert 0.029 == pytest.approx(share_interval(0, 90).high, abs=1e-3)
    assert 0.003 == pytest.approx(share_interval(0, 900).high, abs=1e-4)
