"""The same run by other tools' definitions."""

from __future__ import annotations

import pytest

from metrics.definitions import by_definition
from metrics.records import Flag, Outcome
from tests.metrics.rows import ok_rows, run_of


def test_each_definition_by_hand() -> None:
    """Sent 0.05 s late, headers 0.01 s later, first token at 0.2 s, 11 tokens 0.1 s apart, the end at 1.5 s."""
    rows = ok_rows([0.2], tpot_s=0.1, tokens=11, sent_s=0.05, headers_s=0.06, done_s=1.5, token_events=3, max_tokens=20)
    found = [(d.quantity, d.formula.split(" ")[0], d.stat.p50) for d in by_definition(run_of(rows)) if d.stat]
    expected = [0.2, 0.15, 0.01, 1.0 / 10, 1.3 / 10, 1.0 / 11, 1.45 / 11, 11, 3, 20]
    assert [pytest.approx(value) for value in expected] == [value for _, _, value in found]


def test_only_streamed_answers_count() -> None:
    """Failures, and answers in one piece, have no token times by any definition."""
    rows = ok_rows([0.2, 0.2, 0.2], tpot_s=0.1)
    rows["outcome"][0], rows["flags"][1] = Outcome.TIMEOUT, Flag.NOT_STREAMED
    assert {1} == {d.stat.n for d in by_definition(run_of(rows)) if d.stat and d.quantity != "TTFT"}


def test_one_token_has_no_tpot_after_the_first() -> None:
    """Nothing is divided by zero."""
    found = {d.formula: d.stat for d in by_definition(run_of(ok_rows([0.2], tokens=1)))}
    assert found["(end of answer - first token) / (tokens - 1)"] is None
