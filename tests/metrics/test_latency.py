"""The latency formulas."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.latency import client_lag_s, counted, e2e_s, itl_s, second_token_gap_s, tpot_s, ttft_from_sent_s, ttft_s
from metrics.records import Flag, Outcome
from tests.metrics.rows import ok_rows, ragged

EVENTS = st.lists(st.lists(st.integers(0, 10_000_000), max_size=8).map(sorted), min_size=1, max_size=8)


def test_ttft_counts_from_the_schedule_and_apart_from_sent() -> None:
    """A request that left 0.1 s late has 0.1 s more TTFT, and that lag is a figure of its own."""
    rows = ok_rows([0.25], sent_s=0.1)
    assert [0.25] == ttft_s(rows).tolist()
    assert [pytest.approx(0.15)] == ttft_from_sent_s(rows).tolist()
    assert [pytest.approx(0.1)] == client_lag_s(rows).tolist()


def test_waiting_for_a_slot_is_not_client_lag() -> None:
    """The wait under a cap is client queue time: inside TTFT, outside the lag."""
    rows = ok_rows([1.0], sent_s=0.75, client_queue_s=0.7)
    assert [pytest.approx(0.05)] == client_lag_s(rows).tolist()


def test_tpot_divides_by_tokens_minus_one_and_not_by_hidden_ones() -> None:
    """1.0 s over 11 tokens is 0.1 s; 5 hidden tokens leave a divisor of 5; one token has no TPOT."""
    rows = ok_rows([0.2, 0.2, 0.2, 0.2], output_tokens=[11, 11, 1, 11], hidden_tokens=[0, 5, 0, 10])
    rows["last_token_s"] = rows["first_token_s"] + 1.0
    assert [pytest.approx(0.1), pytest.approx(0.2)] == tpot_s(rows)[:2].tolist()
    assert np.isnan(tpot_s(rows)[2:]).all()


def test_failed_and_unstreamed_answers_have_no_token_latency() -> None:
    """A failure's partial times enter no distribution; a body in one piece has an end but no first token."""
    rows = ok_rows([0.1, 0.1], outcome=[Outcome.IN_BAND_ERROR, Outcome.OK], flags=[0, Flag.NOT_STREAMED])
    for quantity in (ttft_s, ttft_from_sent_s, tpot_s):
        assert np.isnan(quantity(rows)).all()
    assert np.isnan(e2e_s(rows)[0])
    assert pytest.approx(0.3) == e2e_s(rows)[1]


def test_rows_count_by_their_scheduled_time() -> None:
    """Warm-up rows and rows due at or after a stop are left out."""
    rows = ok_rows([0.1] * 4, warmup=[True, False, False, False])
    assert [False, True, True, True] == counted(rows).tolist()
    assert [False, True, True, False] == counted(rows, 3.0).tolist()


@given(EVENTS, st.data())
def test_token_gaps_stay_within_their_request(times: list[list[int]], data: st.DataObject) -> None:
    """ITL pools the gaps of the chosen rows, never from one request to the next."""
    of = data.draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)))
    expected = [(b - a) / 1e6 for row, keep in zip(times, of, strict=True) if keep for a, b in itertools.pairwise(row)]
    assert expected == itl_s(ragged(times), np.array(of)).tolist()


@given(EVENTS)
def test_second_token_gap_needs_two_tokens(times: list[list[int]]) -> None:
    """The gap after a row's first token; NaN for rows with fewer than two."""
    gaps = second_token_gap_s(ragged(times)).tolist()
    expected = [(row[1] - row[0]) / 1e6 if len(row) > 1 else None for row in times]
    assert expected == [None if np.isnan(gap) else gap for gap in gaps]
