"""When a run is lost, against brute force over every instant."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics.hopeless import allowed_misses, hopeless_at_s
from metrics.records import Outcome, Rows, empty_rows
from metrics.slo import SLO, good_rows, reaches

SLO_ = SLO(ttft_s=1.0, tpot_s=0.1, share=0.75)
REQUEST = st.tuples(st.floats(0.1, 2.0), st.floats(0.02, 0.2), st.integers(1, 20), st.booleans())


def rows_of(requests: list[tuple[float, float, int, bool]]) -> Rows:
    rows = empty_rows(len(requests))
    for i, (ttft, tpot, tokens, ok) in enumerate(requests):
        rows["scheduled_s"][i] = rows["sent_s"][i] = 0.5 * i
        rows["first_token_s"][i] = 0.5 * i + ttft
        rows["last_token_s"][i] = rows["done_s"][i] = 0.5 * i + ttft + tpot * (tokens - 1)
        rows["output_tokens"][i] = tokens
        rows["outcome"][i] = Outcome.OK if ok else Outcome.HTTP_ERROR
    return rows


@given(st.lists(REQUEST, min_size=1, max_size=25))
def test_a_run_is_lost_exactly_when_its_whole_verdict_is_a_fail(
    requests: list[tuple[float, float, int, bool]],
) -> None:
    """Then, at that instant more have missed than may; just before it not yet."""
    rows = rows_of(requests)
    passes = reaches(int(good_rows(rows, SLO_).sum()), len(rows), SLO_.share)
    lost_s = hopeless_at_s(rows, SLO_)
    assert passes == (lost_s is None)
    if lost_s is not None:
        assert lost_s <= float(np.nanmax(rows["done_s"])) + 1e-9


@given(st.integers(1, 2000), st.floats(0.01, 1.0))
def test_the_misses_that_may_be_are_the_most_that_still_reach_the_share(total: int, share: float) -> None:
    """One more would fail."""
    allowed = allowed_misses(total, share)
    assert reaches(total - allowed, total, share)
    assert (
        allowed == total
        or not reaches(total - allowed - 1, total, share)
        or math.isclose((total - allowed - 1) / total, share, abs_tol=1e-8)
    )


def test_a_late_first_token_is_known_as_soon_as_it_is_late() -> None:
    """Two of four may not miss: the run is lost when the second has waited for a second."""
    rows = rows_of([(1.5, 0.05, 2, True), (1.5, 0.05, 2, True), (0.1, 0.05, 2, True), (0.1, 0.05, 2, True)])
    assert math.isclose(1.5, hopeless_at_s(rows, SLO_) or 0.0, abs_tol=1e-5)


def test_what_could_not_be_measured_ends_no_run() -> None:
    """It may decide, and then the whole run says so: only certain misses count."""
    rows = rows_of([(0.5, 0.05, 5, True)] * 4)
    rows["last_token_s"][:2] = rows["first_token_s"][:2]
    assert hopeless_at_s(rows, SLO_) is None
