"""A row per request, for other programs."""

from __future__ import annotations

import math

from metrics.records import Outcome
from metrics.requests import COLUMNS, request_rows
from metrics.slo import SLO
from tests.metrics.rows import ok_rows, run_of
from tests.reports.samples import TARGETS, run


def test_every_planned_request_has_a_row_with_every_column() -> None:
    """Failed ones too; what never happened is None, never NaN."""
    made = run(requests=50, failures=0.3)
    rows = list(request_rows(made, TARGETS))
    assert 50 == len(rows)
    assert {len(COLUMNS)} == {len(row) for row in rows}
    assert [] == [cell for row in rows for cell in row if isinstance(cell, float) and math.isnan(cell)]


def test_derived_cells_are_those_of_the_definitions() -> None:
    """TTFT from the scheduled instant, outcome by name, the error's text."""
    made = run(requests=50, failures=0.3)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in request_rows(made, TARGETS)]
    ok = next(row for row in rows if row["outcome"] == "ok")
    bad = next(row for row in rows if row["outcome"] == "http_503")
    assert abs(ok["first_token_s"] - ok["scheduled_s"] - ok["ttft_s"]) < 1e-8
    assert (None, None, False) == (bad["ttft_s"], bad["first_token_s"], bad["good"])
    assert 'too many <requests> & "others"' == bad["error"]


def test_without_an_slo_nobody_is_good_or_bad() -> None:
    """Unknown, not false."""
    assert {None} == {row[COLUMNS.index("good")] for row in request_rows(run(requests=5), None)}


def test_each_row_says_its_verdict() -> None:
    """Good or not, unknown where a stop came first; the reason by name."""
    rows = ok_rows([0.1, 0.9, 0.1, 0.1, 0.1])
    rows["last_token_s"][2] = rows["first_token_s"][2]
    rows["outcome"][3:] = Outcome.INTERRUPTED, Outcome.TIMEOUT
    cells = [dict(zip(COLUMNS, row, strict=True)) for row in request_rows(run_of(rows), SLO(ttft_s=0.5, tpot_s=0.1))]
    assert [
        (True, "good"),
        (False, "missed"),
        (False, "unmeasurable"),
        (None, "undecided"),
        (False, "failed"),
    ] == [(row["good"], row["verdict"]) for row in cells]
