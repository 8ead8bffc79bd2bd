"""Runs of one deployment at several rates."""

from __future__ import annotations

import pytest

from metrics.errors import MetricsError
from metrics.goodput import fit_goodput
from metrics.search import Attempt, SearchRow
from metrics.slo import attain
from metrics.sweep import SCALES, sweep, sweep_of_search, sweeps_of
from tests.reports.samples import TARGETS, run

RATES = (20.0, 4.0, 12.0)


def test_points_rise_and_agree_with_the_attainment_of_their_runs() -> None:
    """Sorted by rate; counts as `attain` has them; goodput as the fit over all."""
    runs = [run("colocated", requests=80, rate_per_s=rate) for rate in RATES]
    found = sweep("a", runs, TARGETS)
    assert sorted(p.rate_per_s for p in found.points) == [p.rate_per_s for p in found.points]
    judged = {attain(r.table, TARGETS).good for r in runs}
    assert judged == {p.good for p in found.points}
    assert found.goodput is not None
    fitted = fit_goodput([(p.rate_per_s, p.good, p.total) for p in found.points], 0.9)
    assert pytest.approx(fitted.rate) == found.goodput.rate
    at_one = SCALES.index(1.0)
    assert [p.good for p in found.points] == [p.scaled_good[at_one] for p in found.points]
    at_scale_one = found.scaled_goodput[at_one]
    assert at_scale_one is not None
    assert pytest.approx(found.goodput.rate) == at_scale_one.rate


def test_only_deployments_loaded_at_several_rates_are_sweeps() -> None:
    """One run of a kind is no sweep."""
    runs = [run("colocated", requests=40, rate_per_s=rate) for rate in RATES] + [run("chunked", requests=40)]
    assert ["colocated"] == [found.label for found in sweeps_of(runs, TARGETS)]
    assert [] == sweeps_of(runs, None)


def test_a_searchs_runs_are_a_sweep_but_for_those_cut_short() -> None:
    """What each limit alone would have let through follows from the misses; a failure met no limit."""
    attempts = [
        Attempt(90, 100, misses={"ttft": 6, "failures": 4}, rate_per_s=2.0, purpose="fit"),
        Attempt(10, 100, rate_per_s=4.0, purpose="bracket", aborted=True),
    ]
    row = SearchRow(label="a", deployment="d", gpus=2, attempts=attempts)
    found = sweep_of_search(row, 0.9)
    assert found is not None
    (point,) = found.points
    assert pytest.approx(0.90) == point.marginals["ttft"]
    assert pytest.approx(0.04) == point.failed_share


def test_runs_that_cannot_be_judged_are_refused() -> None:
    """No attainment, no sweep."""
    made = run("colocated", requests=1)
    with pytest.raises(MetricsError, match="can be judged"):
        sweep("a", [made], TARGETS)
