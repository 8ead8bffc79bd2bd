"""Objectives and attainment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.errors import MetricsError
from metrics.records import Flag, Outcome, RecordTable, empty_rows
from metrics.slo import SLO, attain, attain_by_class, good_rows, reaches
from tests.metrics.rows import ok_rows

TARGETS = SLO(ttft_s=0.2, tpot_s=0.05)
LIMIT = st.none() | st.floats(1e-6, 1e5)


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=200ms,tpot=50ms,share=90%", SLO(0.2, 0.05)),
        (" ttft = 1s , share=0.99", SLO(ttft_s=1.0, share=0.99)),
        ("e2e=2m,tpot=0.05s", SLO(e2e_s=120.0, tpot_s=0.05)),
    ],
)
def test_slo_text_is_read(text: str, slo: SLO) -> None:
    """Limits with ms, s or m; the share as per cent or fraction, 90 % unless given."""
    assert slo == SLO.parse(text)


@given(LIMIT, LIMIT, LIMIT, st.floats(0.001, 1))
def test_slo_prints_what_it_reads(ttft: float | None, tpot: float | None, e2e: float | None, share: float) -> None:
    """parse(str(slo)) is the same SLO, to the last bit."""
    if ttft is tpot is e2e is None:
        return
    slo = SLO(ttft, tpot, e2e, share)
    assert slo == SLO.parse(str(slo))


def test_slo_prints_plainly() -> None:
    """The canonical form is the one people write."""
    assert str(SLO(1.0, 0.06)) == "ttft=1s,tpot=60ms,share=90%"
    assert str(SLO(tpot_s=0.0125, share=0.995)) == "tpot=12.5ms,share=99.5%"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ttft=200", "not a duration"),
        ("ttft=200us", "not a duration"),
        ("ttft=-1s", "not a duration"),
        ("ttft=1.2.3s", "not a duration"),
        ("ttft=0s", "above 0"),
        ("tpto=50ms", "'tpto'"),
        ("ttft=1s,ttft=2s", "twice"),
        ("ttft", "KEY=VALUE"),
        ("share=90%", "at least one limit"),
        ("", "at least one limit"),
        ("ttft=1s,share=0%", "share"),
        ("ttft=1s,share=90", "share"),
        ("ttft=1s,share=nan", "share"),
        ("ttft=1s,share=x%", "share"),
    ],
)
def test_a_bad_slo_is_named(text: str, says: str) -> None:
    """One sentence that names what is wrong, under the code bad_slo."""
    with pytest.raises(MetricsError, match=says) as caught:
        SLO.parse(text)
    assert caught.value.code == "bad_slo"


def test_a_misspelt_quantity_gets_a_suggestion() -> None:
    """The nearest known name is the hint."""
    with pytest.raises(MetricsError) as caught:
        SLO.parse("tpto=50ms")
    assert caught.value.hint == "did you mean 'tpot'?"


def test_exactly_at_the_limit_is_good() -> None:
    """0.2 s as a float difference meets 0.2 s; 2 us above does not."""
    rows = ok_rows([0.2, 0.200002], tpot_s=0.05)
    rows["scheduled_s"] += 1e5
    for column in ("sent_s", "first_token_s", "last_token_s", "done_s"):
        rows[column] += 1e5
    assert [True, False] == good_rows(rows, TARGETS).tolist()


def test_one_token_is_judged_by_ttft_and_no_token_is_not_good() -> None:
    """One-token answers have no TPOT to miss; an empty answer meets nothing."""
    rows = ok_rows([0.1, 0.3, np.nan], output_tokens=[1, 1, 0])
    assert [True, False, False] == good_rows(rows, TARGETS).tolist()
    assert [True, True, False] == good_rows(rows, SLO(tpot_s=0.05)).tolist()


def test_failures_count_in_the_denominator() -> None:
    """Eight good of ten is 80 %, although the two failures were fast."""
    outcome = [Outcome.OK] * 8 + [Outcome.HTTP_ERROR, Outcome.NOT_SENT]
    attained = attain(RecordTable(ok_rows([0.1] * 10, outcome=outcome)), TARGETS)
    assert (8, 10, 0.8, False) == (attained.good, attained.total, attained.share, attained.meets)
    assert {"ttft": 0.8, "tpot": 0.8} == attained.marginals
    assert attained.binding == "failures"


def test_binding_is_what_most_requests_missed() -> None:
    """Two late first tokens against one failure: TTFT binds; nothing missed: nothing binds."""
    rows = ok_rows([0.3, 0.3, 0.1, 0.1], outcome=[0, 0, Outcome.TIMEOUT, 0])
    assert attain(RecordTable(rows), TARGETS).binding == "ttft"
    assert attain(RecordTable(ok_rows([0.1])), TARGETS).binding is None


def test_attainment_from_sent_forgives_the_client() -> None:
    """Requests that left 0.1 s late are late from the schedule and on time from sent."""
    rows = ok_rows([0.25] * 4)
    rows["sent_s"] += 0.1
    attained = attain(RecordTable(rows), TARGETS)
    assert (0.0, 1.0) == (attained.share, attained.from_sent.share)


def test_an_answer_in_one_piece_makes_the_share_unknown() -> None:
    """TTFT defaults neither to 0 nor to the whole latency; a limit on E2E alone is still judged."""
    rows = ok_rows([np.nan, np.nan], flags=Flag.NOT_STREAMED)
    rows["done_s"] = rows["scheduled_s"] + [1.0, 3.0]
    attained = attain(RecordTable(rows), TARGETS)
    assert (None, None, None, "ttft_not_measurable") == (
        attained.share,
        attained.good,
        attained.meets,
        attained.reason,
    )
    assert attain(RecordTable(rows), SLO(e2e_s=2.0)).share == 0.5


def test_no_counted_row_means_no_share() -> None:
    """A run whose rows are all warm-up has no attainment."""
    assert attain(RecordTable(ok_rows([0.1], warmup=True)), TARGETS).reason == "no_requests"


@given(st.integers(1, 10_000), st.integers(1, 100))
def test_counts_decide_not_rounded_shares(total: int, per_cent: int) -> None:
    """`good` reaches p % exactly when 100 good >= p total, in whole numbers."""
    least = -(-per_cent * total // 100)
    assert reaches(least, total, per_cent / 100)
    assert not reaches(least - 1, total, per_cent / 100)


def test_each_class_is_judged_by_itself() -> None:
    """Two classes with one SLO, with one each, and a class that nobody asks about."""
    rows = empty_rows(5)
    rows["outcome"], rows["scheduled_s"], rows["sent_s"] = Outcome.OK, 0.0, 0.0
    rows["slo_class"] = [0, 0, 1, 1, 1]
    rows["first_token_s"] = [0.1, 0.3, 0.3, 0.3, 2.0]
    rows["last_token_s"], rows["output_tokens"], rows["token_events"] = rows["first_token_s"], 1, 1
    fast, slow = SLO(ttft_s=0.2, share=0.5), SLO(ttft_s=1.0, share=0.9)
    same = attain_by_class(RecordTable(rows), fast)
    assert {0: (1, 2, True), 1: (0, 3, False)} == {n: (a.good, a.total, a.meets) for n, a in same.items()}
    own = attain_by_class(RecordTable(rows), {0: fast, 1: slow})
    assert {0: (1, 2, True), 1: (2, 3, False)} == {n: (a.good, a.total, a.meets) for n, a in own.items()}
    assert [1] == list(attain_by_class(RecordTable(rows), {1: slow, 7: fast}))
