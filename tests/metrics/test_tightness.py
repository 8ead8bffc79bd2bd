"""How tight the targets could be, against counting by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics.lengths import length_grid
from metrics.records import Outcome, RecordTable
from metrics.slo import SLO, attain
from metrics.tightness import SCALES, tightness
from tests.metrics.rows import ok_rows

SLO_ = SLO(ttft_s=0.1, tpot_s=0.02, share=0.9)


def found_of(ttft: list[float], tpot: float = 0.01) -> tuple[RecordTable, np.ndarray]:
    table = RecordTable(ok_rows(ttft, tpot))
    return table, np.ones(len(ttft), dtype=bool)


def test_at_scale_one_it_is_the_attainment() -> None:
    """The curve goes through what `attain` says."""
    table, keep = found_of([0.05, 0.08, 0.1, 0.12, 0.2])
    found = tightness(table, keep, SLO_)
    assert found is not None
    assert attain(table, SLO_).share == found.share[SCALES.index(1.0)]


def test_the_smallest_scale_keeps_the_share_and_no_smaller_one_does() -> None:
    """Nine of ten need at most 0.9 times the limits, the tenth twice: 0.9 suffices."""
    table, keep = found_of([0.09] * 9 + [0.2])
    found = tightness(table, keep, SLO_)
    assert found is not None
    assert found.smallest is not None
    assert np.isclose(0.9, found.smallest, atol=1e-4)


def test_failures_are_never_good() -> None:
    """Two of ten failed: no scale brings 90 %."""
    table, keep = found_of([0.01] * 10)
    table.rows["outcome"][:2] = Outcome.TIMEOUT
    found = tightness(table, keep, SLO_)
    assert found is not None
    assert found.smallest is None
    assert 0.8 == found.share[-1]


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40), st.floats(0.001, 0.1))
def test_wider_limits_never_make_it_worse(ttft: list[float], tpot: float) -> None:
    """Attainment rises with the scale."""
    found = tightness(*found_of(ttft, tpot), SLO_)
    assert found is not None
    assert sorted(found.share) == found.share


@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 900)), min_size=1, max_size=60))
def test_every_request_is_in_one_cell(lengths: list[tuple[int, int]]) -> None:
    """The grid's totals are the requests, the good ones at most as many, whatever their lengths."""
    table, keep = found_of([0.05] * len(lengths))
    table.rows["prompt_tokens"], table.rows["max_tokens"] = zip(*lengths, strict=True)
    grid = length_grid(table, keep, SLO_)
    assert grid is not None
    assert len(lengths) == sum(map(sum, grid.total)) == sum(map(sum, grid.good))
    for edges in (grid.prompt_edge, grid.output_edge):
        assert sorted(set(edges)) == edges
        assert len(edges) <= 8
