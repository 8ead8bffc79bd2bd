"""Rates and throughput."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.latency import counted
from metrics.rates import duration_s, offered_per_s, peak_tokens_per_s, rates
from metrics.records import Outcome
from tests.metrics.rows import ok_rows, ragged


def test_rates_name_their_denominators() -> None:
    """Ten requests a second apart, each 1.1 s long: offered 9/9, completed 10/10.1, 11 tokens each."""
    rows = ok_rows([0.1] * 10, tpot_s=0.1)
    got = rates(rows, None, counted(rows), good=9, gpus=2)
    assert pytest.approx((1.0, 10.1)) == (got.offered_per_s, got.duration_s)
    assert pytest.approx(10 / 10.1) == got.completed_per_s
    assert pytest.approx(9 / 10.1) == got.slo_throughput_per_s
    assert pytest.approx(110 / 10.1) == got.output_tokens_per_s
    assert pytest.approx(55 / 10.1) == got.output_tokens_per_s_per_gpu


def test_failures_are_offered_but_not_completed() -> None:
    """A failed request's partial tokens are no throughput; its end still belongs to the run."""
    rows = ok_rows([0.1] * 3, outcome=[0, 0, Outcome.CONNECTION_LOST])
    rows["done_s"][2] = 10.0
    got = rates(rows, None, counted(rows), good=None, gpus=None)
    assert (1.0, 0.2, 2.2, None, None) == (
        got.offered_per_s,
        got.completed_per_s,
        got.output_tokens_per_s,
        got.slo_throughput_per_s,
        got.output_tokens_per_s_per_gpu,
    )


def test_rates_of_nothing_are_none() -> None:
    """One request, or none sent, has no rate; never a division by zero."""
    assert offered_per_s(ok_rows([0.1])) is None
    assert offered_per_s(ok_rows([0.1, 0.1], scheduled_s=0.0)) is None
    assert duration_s(ok_rows([0.1], sent_s=np.nan)) is None
    rows = ok_rows([])
    assert rates(rows, ragged([]), counted(rows), 0, 1).peak_tokens_per_s is None


def test_peak_counts_the_servers_tokens_and_not_its_events() -> None:
    """Ten events of an answer of 40 tokens within a second are 40 tokens/s, even when events say 1 token each."""
    rows = ok_rows([0.1], output_tokens=40)
    events = ragged([[100_000 * k for k in range(1, 11)]])
    assert pytest.approx(40) == peak_tokens_per_s(rows, events, counted(rows))


@given(st.lists(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=20).map(sorted), min_size=1, max_size=5))
def test_peak_is_the_fullest_of_the_windows(times: list[list[int]]) -> None:
    """Half-open windows of one second from the first event, as counted one by one."""
    rows = ok_rows([0.1] * len(times), output_tokens=[len(row) for row in times])
    absolute = [i * 1_000_000 + t for i, row in enumerate(times) for t in row]
    windows = Counter((t - min(absolute)) // 1_000_000 for t in absolute)
    assert pytest.approx(max(windows.values())) == peak_tokens_per_s(rows, ragged(times), counted(rows))
