"""What the figures of a report are drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.bins import SHARES, Bins, table_bins
from metrics.records import EventTimes, Flag, Outcome, RecordTable, Rows, empty_rows
from metrics.slo import SLO, attain

TARGETS = SLO(ttft_s=0.2, tpot_s=0.05, share=0.9)


def answered(times: list[tuple[float, float, float, int]]) -> Rows:
    """Rows that came through: (scheduled, TTFT, TPOT, tokens)."""
    rows = empty_rows(len(times))
    for row, (due, ttft, tpot, tokens) in zip(rows, times, strict=True):
        row["scheduled_s"] = row["sent_s"] = due
        row["first_token_s"] = due + ttft
        row["last_token_s"] = row["done_s"] = due + ttft + tpot * (tokens - 1)
        row["output_tokens"] = row["max_tokens"] = tokens
        row["outcome"] = Outcome.OK
    return rows


def of(rows: Rows, slo: SLO | None = TARGETS, stopped_at_s: float | None = None) -> Bins:
    return table_bins(RecordTable(rows), slo, stopped_at_s)


def test_quadrants_count_each_planned_request_once() -> None:
    """Good, late, slow, both and failed are counted by hand; one token is judged by TTFT alone."""
    rows = answered([(0, 0.1, 0.04, 9), (1, 0.3, 0.04, 9), (2, 0.1, 0.06, 9), (3, 0.3, 0.06, 9), (4, 0.1, 0, 1)])
    rows = np.concatenate([rows, empty_rows(2)])
    rows["scheduled_s"][5:] = (5.0, 6.0)
    found = of(rows).quadrants
    assert found is not None
    assert (2, 1, 1, 1, 0, 2, 7) == (
        found.ok,
        found.late_first_token,
        found.slow_tokens,
        found.both,
        found.late_end,
        found.failed,
        found.total,
    )


def test_quadrants_tell_a_late_end_apart() -> None:
    """An answer within TTFT and TPOT but over the end-to-end limit is neither good nor late."""
    found = of(answered([(0, 0.1, 0.04, 100)]), SLO(ttft_s=0.2, e2e_s=1.0)).quadrants
    assert found is not None
    assert (0, 1) == (found.ok, found.late_end)


def test_without_an_slo_nothing_is_judged() -> None:
    """No targets, no quadrants and no target in any curve."""
    found = of(answered([(0, 0.1, 0.04, 9)]), None)
    assert found.quadrants is None
    assert found.curves.ttft_s is not None
    assert found.curves.ttft_s.within_target is None


def test_without_rows_or_an_slo_nothing_hangs_on_a_verdict() -> None:
    """No quadrants, scale, grid or interval."""
    for found in (of(answered([(0, 0.1, 0.04, 9)]), None), of(answered([]))):
        assert (None,) * 4 == (found.quadrants, found.tightness, found.lengths, found.certainty)


def test_quadrants_are_absent_when_token_times_are_not_measurable() -> None:
    """An answer in one piece has no TTFT: no count pretends otherwise."""
    rows = answered([(0, 0.1, 0.04, 9)])
    rows["flags"] |= np.uint32(Flag.NOT_STREAMED)
    assert of(rows).quadrants is None


def test_warmup_and_rows_after_a_stop_are_left_out() -> None:
    """Counts and curves are of the rows results are about."""
    rows = answered([(0, 9.0, 0.04, 9), (1, 0.1, 0.04, 9), (2, 8.0, 0.04, 9)])
    rows["warmup"][0] = True
    found = of(rows, stopped_at_s=2.0)
    assert found.quadrants is not None
    assert (1, 1) == (found.quadrants.ok, found.quadrants.total)
    assert found.curves.ttft_s is not None
    assert pytest.approx([0.1] * len(SHARES)) == found.curves.ttft_s.quantile_s


def test_a_request_at_both_targets_lies_in_the_good_cell() -> None:
    """The lattice is anchored at the targets: at the limit is inside cell -1, a little above is cell 0."""
    found = of(answered([(0, 0.2, 0.05, 11), (1, 0.2002, 0.0502, 11)])).density
    assert found is not None
    assert [(-1, -1, 1), (0, 0, 1)] == list(zip(found.ttft_cell, found.tpot_cell, found.count, strict=True))


def test_the_plane_holds_every_answer_with_two_tokens() -> None:
    """Counts sum to the answers that have a TPOT; the others are told apart."""
    found = of(answered([(0, 0.1, 0.04, 9), (1, 0.1, 0.0, 1), (2, 0.1, 0.04, 2)])).density
    assert found is not None
    assert (2, 1) == (sum(found.count), found.without_tpot)


def test_the_plane_is_coarsened_until_few_cells_are_left() -> None:
    """Spread-out data fall on a coarser lattice instead of thousands of cells."""
    rng = np.random.default_rng(5)
    spread = [(float(i), 10.0 ** rng.uniform(-3, 2), 10.0 ** rng.uniform(-4, 0), 9) for i in range(4000)]
    found = of(answered(spread)).density
    assert found is not None
    assert len(found.count) <= 500
    assert found.tpot_per_decade == 2 * found.ttft_per_decade


def test_a_zero_latency_is_drawn_in_the_lowest_cell() -> None:
    """A simulated run can have a TTFT of nothing; its logarithm must not appear."""
    found = of(answered([(0, 0.0, 0.04, 9)])).density
    assert found is not None
    assert found.ttft_cell[0] < -60


def test_timeline_of_two_requests_by_hand() -> None:
    """Bins of 0.1 s: arrivals where they were due, mean requests in flight, failures, TTFT percentiles."""
    rows = answered([(0.0, 0.1, 0.05, 2), (0.3, 0.1, 0.0, 1)])
    rows["done_s"] = (0.15, 0.4)
    rows = np.concatenate([rows, empty_rows(1)])
    rows["scheduled_s"][2] = 0.35
    found = of(rows).timeline
    assert found is not None
    assert found.width_s == 0.1
    assert [1, 0, 0, 2, 0] == found.arrivals
    assert [0, 0, 0, 1, 0] == found.failed
    assert pytest.approx([1.0, 0.5, 0.0, 1.0, 0.0]) == found.in_flight
    assert pytest.approx([0.1, None, None, 0.1, None]) == found.ttft_p90_s


def test_token_rate_counts_tokens_not_events() -> None:
    """Two events of three tokens each in one bin of 0.1 s are 60 tokens per second."""
    rows = answered([(0.0, 0.01, 0.01, 6)])
    events = EventTimes(np.array([0, 2]), np.array([10_000, 60_000], "u4"), np.array([3, 3], "u2"), np.zeros(2, "u2"))
    found = table_bins(RecordTable(rows, events), TARGETS).timeline
    assert found is not None
    assert found.output_tokens_per_s is not None
    assert pytest.approx(60.0) == found.output_tokens_per_s[0]


def test_a_long_run_has_few_bins() -> None:
    """A day is drawn in at most 121 bins of a round width."""
    found = of(answered([(0.0, 0.1, 0.04, 9), (86_400.0, 0.1, 0.04, 9)])).timeline
    assert found is not None
    assert found.width_s == 1800.0
    assert len(found.start_s) <= 121


def test_nothing_measured_gives_nothing_drawn() -> None:
    """A run of which nothing was sent has a timeline of arrivals and no curve, plane or gap."""
    rows = empty_rows(3)
    rows["scheduled_s"] = (0.0, 1.0, 2.0)
    found = of(rows)
    assert (None, None, None) == (found.density, found.worst_gap, found.interference)
    assert (None, None) == (found.curves.ttft_s, found.curves.itl_s)
    assert found.timeline is not None
    assert 3 == sum(found.timeline.arrivals) == sum(found.timeline.failed)


LATENCY = st.floats(0.001, 2.0)
REQUEST = st.tuples(st.floats(0, 50), LATENCY, st.floats(0.001, 0.2), st.integers(1, 40))


@given(st.lists(REQUEST, min_size=1, max_size=40), st.sets(st.integers(0, 39)))
def test_good_requests_are_the_attainments(requests: list[tuple[float, float, float, int]], bad: set[int]) -> None:
    """The good quadrant is attainment's count, and all parts sum to its total."""
    rows = answered(requests)
    rows["outcome"][[i for i in bad if i < len(rows)]] = Outcome.TIMEOUT
    found, attained = of(rows).quadrants, attain(RecordTable(rows), TARGETS)
    assert found is not None
    assert (attained.good, attained.total) == (found.ok, found.total)
    parts = found.ok + found.late_first_token + found.slow_tokens + found.both + found.late_end + found.failed
    assert found.total == parts


@given(st.lists(REQUEST, min_size=1, max_size=40))
def test_in_flight_adds_up_to_the_time_requests_were_open(requests: list[tuple[float, float, float, int]]) -> None:
    """Mean in flight times width, summed, is the sum of all (done - sent)."""
    rows = answered(requests)
    found = of(rows).timeline
    assert found is not None
    open_s = float((rows["done_s"] - rows["sent_s"]).sum())
    assert pytest.approx(open_s, rel=1e-6, abs=1e-6) == sum(found.in_flight) * found.width_s
