"""How tight the targets could be, against counting by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics.judge import judge_rows
from metrics.lengths import length_grid
from metrics.records import Outcome, RecordTable, Rows
from metrics.slo import SLO, attain
from metrics.tightness import SCALES, Tightness, tightness
from tests.metrics.rows import ok_rows

SLO_ = SLO(ttft_s=0.1, tpot_s=0.02, share=0.9)


def tightness_of(rows: Rows) -> Tightness:
    return tightness(judge_rows(rows, SLO_.limits), SLO_)


def test_at_scale_one_it_is_the_attainment() -> None:
    """The curve goes through what `attain` says."""
    rows = ok_rows([0.05, 0.08, 0.1, 0.12, 0.2], 0.01)
    found = tightness_of(rows)
    assert attain(RecordTable(rows), SLO_).share == found.share[SCALES.index(1.0)]


def test_the_smallest_scale_keeps_the_share_and_no_smaller_one_does() -> None:
    """Nine of ten need at most 0.9 times the limits, the tenth twice: 0.9 suffices."""
    found = tightness_of(ok_rows([0.09] * 9 + [0.2], 0.01))
    assert found.smallest is not None
    assert np.isclose(0.9, found.smallest, atol=1e-4)


def test_failures_are_never_good() -> None:
    """Two of ten failed: no scale brings 90 %."""
    rows = ok_rows([0.01] * 10, 0.01)
    rows["outcome"][:2] = Outcome.TIMEOUT
    found = tightness_of(rows)
    assert found.smallest is None
    assert 0.8 == found.share[-1]


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40), st.floats(0.001, 0.1))
def test_wider_limits_never_make_it_worse(ttft: list[float], tpot: float) -> None:
    """Attainment rises with the scale."""
    found = tightness_of(ok_rows(ttft, tpot))
    assert sorted(found.share) == found.share


@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 900)), min_size=1, max_size=60))
def test_every_request_is_in_one_cell(lengths: list[tuple[int, int]]) -> None:
    """The grid's totals are the requests, the good ones at most as many, whatever their lengths."""
    rows = ok_rows([0.05] * len(lengths), 0.01)
    rows["prompt_tokens"], rows["max_tokens"] = zip(*lengths, strict=True)
    grid = length_grid(rows, judge_rows(rows, SLO_.limits))
    assert len(lengths) == sum(map(sum, grid.total)) == sum(map(sum, grid.good))
    for edges in (grid.prompt_edge, grid.output_edge):
        assert sorted(set(edges)) == edges
        assert len(edges) <= 8
