"""What a run has shown so far, against the judge of the finished run."""

from __future__ import annotations

from hypothesis import given

from loadtest.replay.tally import Tally, together
from metrics.judge import Verdict, judge_rows
from metrics.records import RECORD_DTYPE, Flag, Rows
from metrics.slo import SLO
from tests.metrics.rows import ok_rows
from tests.metrics.test_judge import any_rows, slos


def tallied(rows: Rows, slo: SLO) -> Tally:
    tally = Tally(str(slo))
    for row in rows:
        tally.add(dict(zip(RECORD_DTYPE.names or (), row.item(), strict=True)))
    return tally


@given(any_rows(), slos())
def test_progress_counts_what_the_report_will_say(rows: Rows, slo: SLO) -> None:
    """Good of judged, the undecided and the warm-up in neither."""
    rows["warmup"][::3] = True
    judged = judge_rows(rows[~rows["warmup"]], slo.limits)
    seen = together([tallied(rows, slo).seen])
    assert (judged.count(Verdict.GOOD), int(judged.decided.sum())) == (seen.good, seen.judged)


def test_answers_in_one_piece_are_good_by_their_end() -> None:
    """No token times are asked for, so none are missing."""
    rows = ok_rows([0.1] * 4, flags=Flag.NOT_STREAMED)
    rows["first_token_s"] = rows["last_token_s"] = float("nan")
    seen = tallied(rows, SLO(e2e_s=60.0)).seen
    assert (4, 4, 0, 0) == (seen.good, seen.judged, sum(seen.ttft), sum(seen.tpot))
