"""Counted microseconds are described exactly as the sorted values would be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.counts import COUNTED_US, Counts
from metrics.stats import describe

VALUES = st.lists(st.integers(0, 2 * COUNTED_US), min_size=1, max_size=80)


@given(VALUES, st.integers(0, 80))
def test_counting_and_sorting_agree(values: list[int], cut: int) -> None:
    """However the values are split into blocks, and on both sides of what is counted by the microsecond."""
    us = np.array(values, dtype=np.uint32)
    found, sorted_ = Counts([us[:cut], us[cut:]]).stat(), describe(us / 1e6)
    assert found is not None
    assert sorted_ is not None
    for name in ("n", "mean", "p50", "p90", "p99", "max"):
        assert getattr(sorted_, name) == pytest.approx(getattr(found, name), rel=1e-12, abs=1e-15)
    assert sorted_.few == found.few


def test_nothing_has_no_distribution() -> None:
    """As with `describe`."""
    assert Counts([]).stat() is None
    assert 0 == Counts([np.zeros(0, dtype=np.uint16)]).n


def test_quantiles_by_hand() -> None:
    """Of 1, 2, 3 and 10 microseconds the median is 2.5."""
    assert [1e-6, 2.5e-6, 10e-6] == pytest.approx(
        Counts([np.array([10, 2, 1, 3], dtype=np.uint16)]).quantiles_s((0.0, 0.5, 1.0))
    )
