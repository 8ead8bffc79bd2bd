"""Is a request good: the rules by hand, and the two forms of the judge against each other."""

from __future__ import annotations

from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.bins import table_bins
from metrics.judge import Verdict, judge_row, judge_rows, measure, measured_of, overdue
from metrics.records import RECORD_DTYPE, Flag, Outcome, RecordTable, Rows, empty_rows
from metrics.slo import SLO, attain, hinges, reaches
from metrics.sweep import SCALES, scaled_good
from metrics.tightness import SCALES as TIGHTNESS_SCALES
from tests.metrics.rows import ok_rows

SLO_ = SLO(ttft_s=0.2, tpot_s=0.05, e2e_s=2.0)
GOOD, UNDECIDED, UNMEASURABLE = Verdict.GOOD, Verdict.UNDECIDED, Verdict.UNMEASURABLE
MISSED, FAILED = Verdict.MISSED, Verdict.FAILED

INSTANT = st.one_of(st.just(nan), st.sampled_from([0.0, 0.1, 0.2, 0.2000005, 0.200002, 0.3, 1.0, 2.0]), st.floats(0, 5))
COUNT = st.sampled_from([0, 0, 1, 2, 2, 9, 40])
FLAGS = st.sampled_from(
    [0, 0, 0, Flag.NOT_STREAMED, Flag.BUFFERED, Flag.NOT_STREAMED | Flag.EMPTY_OUTPUT, Flag.HIDDEN_TOKENS]
)
OUTCOME = st.one_of(st.sampled_from([Outcome.OK, Outcome.OK, Outcome.INTERRUPTED]), st.sampled_from(list(Outcome)))
LIMIT = st.none() | st.sampled_from([0.01, 0.05, 0.2, 1.0]) | st.floats(1e-3, 5)


@st.composite
def slos(draw: st.DrawFn) -> SLO:
    """Any limits, at least one."""
    limits = draw(st.tuples(LIMIT, LIMIT, LIMIT).filter(lambda found: any(found)))
    return SLO(*limits, share=draw(st.sampled_from([0.5, 0.9, 0.99])))


@st.composite
def any_rows(draw: st.DrawFn, max_rows: int = 12) -> Rows:
    """Rows of every kind, also such as no server sends."""
    rows = empty_rows(draw(st.integers(1, max_rows)))
    for row in rows:
        due = row["scheduled_s"] = draw(st.one_of(st.just(nan), st.just(0.0), st.floats(0, 100)))
        row["sent_s"] = due + draw(st.sampled_from([0.0, 0.05, nan]))
        first = row["first_token_s"] = due + draw(INSTANT)
        row["last_token_s"] = first + draw(st.one_of(st.just(0.0), INSTANT))
        row["done_s"] = due + draw(INSTANT)
        row["output_tokens"], row["max_tokens"] = draw(COUNT), draw(COUNT)
        row["hidden_tokens"] = min(draw(st.sampled_from([0, 0, 1, 8, 40])), row["output_tokens"])
        row["outcome"], row["flags"] = draw(OUTCOME), draw(FLAGS)
    return rows


def plain(row: np.void) -> dict[str, float]:
    return dict(zip(RECORD_DTYPE.names or (), row.item(), strict=True))


@given(any_rows(), slos())
def test_both_forms_say_the_same(rows: Rows, slo: SLO) -> None:
    """Of every row, under all limits and under each alone."""
    judged = judge_rows(rows, slo.limits)
    assert judged.verdict.tolist() == [judge_row(plain(row), slo.limits) for row in rows]
    for quantity, limit in slo.limits.items():
        alone = [judge_row(plain(row), {quantity: limit}) for row in rows]
        assert judged.by_limit[quantity].tolist() == alone
        shown = measure(rows, [quantity]).values[quantity]
        for row, value in zip(rows, shown.tolist(), strict=True):
            if row["outcome"] == Outcome.OK:
                told = measured_of(plain(row), quantity)
                assert told == value or (isnan(told) and isnan(value))


@given(any_rows(), slos())
def test_every_figure_counts_the_same_requests(rows: Rows, slo: SLO) -> None:
    """Headline, quadrants, lengths, scales and certainty are about the same good and decided requests."""
    table = RecordTable(rows)
    attained, made = attain(table, slo), table_bins(table, slo)
    drawn = made.quadrants
    assert attained.total + attained.undecided == len(rows)
    assert scaled_good(table, slo)[SCALES.index(1.0)] == judge_rows(rows, slo.limits).count(GOOD)
    found = (drawn, made.lengths, made.tightness, made.certainty)
    if attained.share is None:
        assert found == (None, None, None, None)
        return
    assert drawn is not None
    parts = (drawn.late_first_token, drawn.slow_tokens, drawn.both, drawn.late_end, drawn.unmeasurable, drawn.failed)
    assert (attained.good, attained.total) == (drawn.ok, drawn.ok + sum(parts)) == (drawn.ok, drawn.total)
    assert found[1] is not None
    assert (attained.good, attained.total) == (sum(map(sum, found[1].good)), sum(map(sum, found[1].total)))
    assert found[2] is not None
    assert found[2].share[TIGHTNESS_SCALES.index(1.0)] == attained.share


@given(any_rows(), slos())
def test_whatever_the_undecided_become_the_share_lies_between_the_bounds(rows: Rows, slo: SLO) -> None:
    """None of them good, all of them good; given above 1 % of all."""
    attained = attain(RecordTable(rows), slo)
    if attained.bounds is None:
        assert attained.undecided <= 0.01 * len(rows) or attained.share is None
        return
    good = attained.good or 0
    assert attained.bounds == (good / len(rows), (good + attained.undecided) / len(rows))
    if attained.share is not None:
        assert attained.bounds[0] <= attained.share <= attained.bounds[1]


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_verdict_hinges_on_what_would_turn_it(good: int, unmeasurable: int, bad: int, share: float) -> None:
    """Missed as counted, met if all that could not be measured were good."""
    total = good + unmeasurable + bad
    turned = not reaches(good, total, share) and reaches(good + unmeasurable, total, share)
    assert turned == hinges(good, unmeasurable, total, share)


def one(**columns: object) -> Rows:
    """A good answer of eleven tokens, 20 ms apart, with some columns changed."""
    return ok_rows([0.1], **columns)


@pytest.mark.parametrize(
    ("rows", "verdicts"),
    [
        (one(), (GOOD, GOOD, GOOD)),
        (one(output_tokens=1, last_token_s=0.1), (GOOD, GOOD, GOOD)),  # one token has no TPOT to miss
        (one(last_token_s=0.1), (GOOD, UNMEASURABLE, GOOD)),  # all tokens in one read
        (one(last_token_s=0.1005, flags=Flag.BUFFERED), (GOOD, UNMEASURABLE, GOOD)),  # held back, then in two reads
        (one(flags=Flag.BUFFERED), (GOOD, GOOD, GOOD)),  # tokens in pairs: their mean time is known
        (one(hidden_tokens=10), (GOOD, UNMEASURABLE, GOOD)),  # one of eleven was streamed
        (one(hidden_tokens=9, last_token_s=0.15), (GOOD, GOOD, GOOD)),
        (one(hidden_tokens=11, first_token_s=nan, last_token_s=nan), (UNMEASURABLE, UNMEASURABLE, GOOD)),
        (one(flags=Flag.NOT_STREAMED, first_token_s=nan, last_token_s=nan), (UNMEASURABLE, UNMEASURABLE, GOOD)),
        (one(flags=Flag.NOT_STREAMED, output_tokens=1), (UNMEASURABLE, GOOD, GOOD)),
        (one(output_tokens=0, first_token_s=nan, last_token_s=nan), (MISSED, MISSED, MISSED)),
        (one(done_s=nan), (GOOD, GOOD, UNMEASURABLE)),
        (one(outcome=Outcome.TIMEOUT), (FAILED, FAILED, FAILED)),
        (one(outcome=Outcome.NOT_SENT), (FAILED, FAILED, FAILED)),
    ],
)
def test_what_is_undefined_is_never_met(rows: Rows, verdicts: tuple[Verdict, Verdict, Verdict]) -> None:
    """A limit that does not apply is met; one that applies and could not be measured is not."""
    judged = judge_rows(rows, SLO_.limits)
    assert verdicts == tuple(Verdict(int(judged.by_limit[name][0])) for name in ("ttft", "tpot", "e2e"))
    assert max(verdicts) == judged.verdict[0]


def cut(waited_s: float, first_s: float = nan, tokens: int = 0, last_s: float = nan, asked: int = 11) -> Rows:
    """A request due at 0 that a stop cut off."""
    rows = empty_rows(1)
    rows["scheduled_s"], rows["done_s"], rows["outcome"] = 0.0, waited_s, Outcome.INTERRUPTED
    rows["first_token_s"], rows["last_token_s"] = first_s, last_s
    rows["output_tokens"], rows["max_tokens"] = tokens, asked
    return rows


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (cut(0.2), UNDECIDED),
        (cut(0.3), MISSED),  # no first token after 200 ms
        (cut(0.3, 0.1, 3, 0.15), UNDECIDED),
        (cut(0.3, 0.25, 2, 0.3), MISSED),  # its first token was late
        (cut(0.6, 0.1, 9, 0.6), UNDECIDED),  # ten gaps in 500 ms are 50 ms each
        (cut(0.61, 0.1, 3, 0.2), MISSED),  # even if the rest came now, over 50 ms each
        (cut(0.61, 0.1, 11, 0.5), UNDECIDED),  # all that was asked came in time, its end did not yet
        (cut(0.61, 0.1, 3, 0.2, asked=1), UNDECIDED),  # longer than asked: nobody knows how long it will be
        (cut(0.61, 0.1, 3, 0.2, asked=0), UNDECIDED),
        (cut(2.1, 0.1, 1, 0.1, asked=400), MISSED),  # 2 s for the whole answer
        (cut(nan), UNDECIDED),
    ],
)
def test_what_a_stop_cut_off_is_a_miss_only_when_nothing_could_save_it(rows: Rows, verdict: Verdict) -> None:
    """By its wait, its first token, and the least time per token that it can still reach."""
    assert verdict == judge_rows(rows, SLO_.limits).verdict[0]


@given(st.floats(0, 5), st.booleans(), slos())
def test_a_waiting_request_is_overdue_when_a_stop_now_would_be_a_miss(waited: float, started: bool, slo: SLO) -> None:
    """The live form is the judge's, by the wait alone: TPOT is known at the end."""
    limits = {name: limit for name, limit in slo.limits.items() if name != "tpot"}
    row = plain(cut(waited, min(waited, limits.get("ttft", inf)) if started else nan, int(started))[0])
    assert overdue(slo.limits, waited, started=started) == (judge_row(row, limits) == MISSED)


def test_some_answers_without_times_are_not_good_and_the_rest_still_counts() -> None:
    """Two of ten came in one read: 80 %, named; all of them: nothing is known."""
    rows = ok_rows([0.1] * 10)
    rows["last_token_s"][:2] = rows["first_token_s"][:2]
    attained = attain(RecordTable(rows), SLO_)
    assert (0.8, 8, 10, {"tpot": 2}, 2) == (
        attained.share,
        attained.good,
        attained.total,
        attained.unmeasurable,
        attained.unmeasurable_requests,
    )
    assert attained.hinges_on_unmeasurable
    assert attained.binding == "unmeasurable"
    rows["last_token_s"] = rows["first_token_s"]
    assert (None, "tpot_not_measurable") == (
        attain(RecordTable(rows), SLO_).share,
        attain(RecordTable(rows), SLO_).reason,
    )


def test_a_miss_beside_an_unmeasurable_limit_is_a_miss() -> None:
    """A late first token is bad whatever the tokens after it did, so it does not hinge on them."""
    rows = ok_rows([0.3] * 10)
    rows["last_token_s"] = rows["first_token_s"]
    attained = attain(RecordTable(rows), SLO_)
    assert (0.0, 0, False, "ttft") == (
        attained.share,
        attained.unmeasurable_requests,
        attained.hinges_on_unmeasurable,
        attained.binding,
    )


def test_undecided_requests_are_left_out_of_every_share() -> None:
    """Six good, two late, two cut off: 75 % of eight, 60 to 80 % of ten."""
    rows = ok_rows([0.1] * 6 + [0.3] * 2 + [0.1] * 2)
    rows["outcome"][8:] = Outcome.INTERRUPTED
    attained = attain(RecordTable(rows), SLO_)
    assert (0.75, 6, 8, 2, (0.6, 0.8)) == (
        attained.share,
        attained.good,
        attained.total,
        attained.undecided,
        attained.bounds,
    )
    assert {"ttft": 0.75, "tpot": 1.0, "e2e": 1.0} == attained.marginals
    assert 0.75 == attained.from_sent.share
    rows["outcome"] = Outcome.INTERRUPTED
    rows["first_token_s"] = rows["scheduled_s"] + 0.1
    nothing = attain(RecordTable(rows), SLO_)
    assert (None, "undecided", 10, (0.0, 1.0)) == (nothing.share, nothing.reason, nothing.undecided, nothing.bounds)
