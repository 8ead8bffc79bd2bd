"""Phases add up to what they explain, whoever told them."""

from __future__ import annotations

import numpy as np

from metrics.latency import is_ok
from metrics.phases import CLIENT, ENGINE, phases
from metrics.records import RecordTable
from tests.metrics.rows import ok_rows, ragged


def table(count: int = 20) -> RecordTable:
    """Requests sent 10 ms late, first token after 110 to 129 ms, tokens 30 ms and then every 20 ms."""
    rows = ok_rows([0.11 + i / 1000 for i in range(count)])
    rows["scheduled_s"] = np.arange(count) * 1.0
    rows["sent_s"] = rows["scheduled_s"] + 0.01
    rows["first_token_s"] = rows["scheduled_s"] + 0.11 + np.arange(count) / 1000
    rows["last_token_s"] = rows["first_token_s"] + 0.21
    rows["done_s"] = rows["last_token_s"] + 0.005
    first = [100_000 + 1_000 * i for i in range(count)]
    return RecordTable(rows, ragged([[f, f + 30_000, *range(f + 50_000, f + 230_000, 20_000)] for f in first]))


def test_without_an_engine_the_client_says_what_it_saw() -> None:
    """Lag, wait for the first token, the second, the others and the end: they add up to end-to-end time."""
    found = phases(t := table(), is_ok(t.rows), disaggregated=False)
    assert found is not None
    assert ("client", list(CLIENT)) == (found.told_by, found.names)
    median = found.answer[0]
    assert np.isclose(median.total_s, sum(median.phase_s))
    np.testing.assert_allclose([0.01, 0.0, 0.1095, 0.03, 0.18, 0.005], median.phase_s, atol=1e-9)
    assert found.hand_off is None


def test_the_first_tokens_phases_end_there() -> None:
    """What comes after the first token is no part of waiting for it."""
    found = phases(t := table(), is_ok(t.rows), disaggregated=False)
    assert found is not None
    assert [0.0, 0.0, 0.0] == found.first[0].phase_s[3:]
    assert np.isclose(found.first[0].total_s, sum(found.first[0].phase_s))


def test_an_engines_spans_are_used_and_the_rest_is_said() -> None:
    """Queue, prefill, transfer and decode as told; what they leave is network and rest."""
    t = table()
    t.rows["queue_s"], t.rows["prefill_s"], t.rows["transfer_s"], t.rows["decode_s"] = 0.02, 0.07, 0.01, 0.2
    found = phases(t, is_ok(t.rows), disaggregated=True)
    assert found is not None
    assert ("engine", list(ENGINE)) == (found.told_by, found.names)
    level = found.answer[0]
    np.testing.assert_allclose([0.01, 0.02, 0.07, 0.01, 0.2], level.phase_s[:5], atol=1e-9)
    assert np.isclose(level.total_s, sum(level.phase_s))
    assert np.isclose(found.first[0].total_s, sum(found.first[0].phase_s))


def test_the_hand_off_is_placed_by_when_the_first_token_came() -> None:
    """Before the transfer could have ended: in the second gap. After it: in TTFT."""
    t = table()
    t.rows["queue_s"], t.rows["transfer_s"], t.rows["decode_s"] = 0.0, 0.01, 0.2
    places = []
    for prefill in (0.1095, 0.09):
        t.rows["prefill_s"] = prefill
        found = phases(t, is_ok(t.rows), disaggregated=True)
        assert found is not None
        assert found.hand_off is not None
        places.append(found.hand_off.place)
    assert ["second token", "first token"] == places


def test_without_spans_a_long_second_gap_gives_the_hand_off_away() -> None:
    """30 ms where later tokens come every 20: half as much again."""
    t = table()
    found = phases(t, is_ok(t.rows), disaggregated=True)
    assert found is not None
    assert found.hand_off is None or found.hand_off.place == "second token"


def test_waterfalls_are_of_real_requests() -> None:
    """The median and the p99 request by end-to-end time, with their own phases."""
    found = phases(t := table(), is_ok(t.rows), disaggregated=False)
    assert found is not None
    assert [("median", 10), ("p99", 19)] == [(w.name, w.request_id) for w in found.waterfalls]


def test_nothing_answered_has_no_phases() -> None:
    """No row, no phases."""
    t = table()
    assert phases(t, np.zeros(len(t), dtype=bool), disaggregated=True) is None
