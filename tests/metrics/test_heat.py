"""The heat map counts every answer once, in the cell where it lies."""

from __future__ import annotations

import numpy as np

from metrics.heat import LEAST_ANSWERS, heat


def test_every_answer_is_in_its_cell() -> None:
    """Due at 0.5 s with 1 s: column 0, row 0; due at 25 s with 0.1 s: column 2 (of 10 s), a decade lower."""
    due = np.array([0.5] * 200 + [25.0] * 150)
    ttft = np.array([1.0] * 200 + [0.1] * 150)
    found = heat(due, ttft, 10.0, 30)
    assert found is not None
    assert [(0, 0, 200), (2, -6, 150)] == list(zip(found.column, found.row, found.count, strict=True))


def test_many_bins_share_a_column() -> None:
    """120 bins of a second become 40 columns of three."""
    found = heat(np.linspace(0, 119, 400), np.full(400, 0.2), 1.0, 120)
    assert found is not None
    assert 3.0 == found.width_s
    assert 40 == len(set(found.column))
    assert 400 == sum(found.count)


def test_a_short_run_has_none() -> None:
    """Few answers or few bins are better seen as curves; answers without a first token do not count."""
    assert heat(np.zeros(LEAST_ANSWERS - 1), np.ones(LEAST_ANSWERS - 1), 1.0, 100) is None
    assert heat(np.zeros(1000), np.full(1000, np.nan), 1.0, 100) is None
    assert heat(np.zeros(1000), np.ones(1000), 1.0, 10) is None
