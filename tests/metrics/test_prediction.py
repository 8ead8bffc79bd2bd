"""A prediction beside the measurement: by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from metrics import prediction as predictions
from metrics.errors import MetricsError
from metrics.prediction import Beside, beside, prediction
from metrics.records import RecordTable
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO
from metrics.summary import summarise
from tests.metrics.rows import ok_rows

TARGETS = SLO(ttft_s=0.2, tpot_s=0.05)


def test_a_prediction_is_about_the_rows_of_the_run() -> None:
    """Not the warm-up's, and after a stop only what was due before: one of two within 200 ms, not of four."""
    rows = ok_rows([9.0, 0.1, 0.3, 9.0], warmup=[True, False, False, False])
    rows["scheduled_s"] = [0.0, 1.0, 2.0, 3.0]
    rows["first_token_s"] = rows["scheduled_s"] + [9.0, 0.1, 0.3, 9.0]
    rows["last_token_s"] = rows["done_s"] = rows["first_token_s"] + 0.1
    found = prediction(RecordTable(rows), TARGETS, stopped_at_s=2.5)
    assert 0.5 == found.attainment
    assert found.ttft_s is not None
    assert (2, pytest.approx(0.2)) == (found.ttft_s.n, found.ttft_s.p50)


def test_errors_by_hand() -> None:
    """Shares differ by points, others relative to what was measured; none where a side lacks it."""
    assert -0.05 == pytest.approx(Beside(quantity="a", unit="share", measured=0.9, predicted=0.85).error or 0)
    assert 0.25 == pytest.approx(Beside(quantity="b", unit="s", measured=0.2, predicted=0.25).error or 0)
    assert Beside(quantity="c", unit="s", measured=None, predicted=0.25).error is None
    assert Beside(quantity="d", unit="tokens/s", measured=0.0, predicted=0.25).error is None


def test_the_lines() -> None:
    """Attainment, TTFT and TPOT at p50 and p90, output: measured 0.3 s where 0.1 s was predicted is -67 %."""
    measured = summarise(Run(RunInfo(), RecordTable(ok_rows([0.3, 0.3]))), TARGETS)
    foretold = prediction(RecordTable(ok_rows([0.1, 0.1])), TARGETS)
    lines = {line.quantity: line for line in beside(measured, foretold)}
    assert ["attainment", "TTFT p50", "TTFT p90"] == list(lines)[:3]
    assert (0.0, 1.0, 1.0) == (lines["attainment"].measured, lines["attainment"].predicted, lines["attainment"].error)
    assert -2 / 3 == pytest.approx(lines["TTFT p90"].error or 0)


def test_it_comes_back_from_the_disk(tmp_path: Path) -> None:
    """With its attainment only under the SLO that it is about; None without a file, an error for a damaged one."""
    assert predictions.load(tmp_path, TARGETS) is None
    foretold = prediction(RecordTable(ok_rows([0.1])), TARGETS, "a model", notes=["a note"])
    predictions.save(tmp_path, foretold)
    assert foretold == predictions.load(tmp_path, TARGETS)
    assert msgspec.structs.replace(foretold, attainment=None) == predictions.load(tmp_path, SLO(ttft_s=1.0))
    (tmp_path / predictions.PREDICTION).write_text("{")
    with pytest.raises(MetricsError, match="cannot be read"):
        predictions.load(tmp_path, TARGETS)
