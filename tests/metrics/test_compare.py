"""Comparisons of run sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from metrics.compare import Comparison, RunSet, compare, comparison_schema
from metrics.errors import MetricsError
from metrics.records import Outcome
from metrics.rundir import Run
from metrics.slo import SLO
from tests.metrics.rows import ok_rows, run_of

TARGETS = SLO.parse("ttft=200ms,tpot=50ms")


def runs(factor: float, count: int = 3, **info: Any) -> list[Run]:
    """Runs of 60 requests whose TTFT is a known series times a factor."""
    base = np.random.default_rng(1).uniform(0.08, 0.15, 60)
    found = []
    for number in range(count):
        wobble = 1 + 0.001 * np.sin(number + factor)
        found.append(run_of(ok_rows(list(base * factor * wobble)), trace_hash="t", recipe_hash="r", **info))
    return found


def sets(*factors: float, count: int = 3) -> list[RunSet]:
    return [RunSet(f"x{factor:g}", runs(factor, count), TARGETS) for factor in factors]


def contrast(found: Comparison, metric: str, label: str | None = None) -> Any:
    return next(c for c in found.contrasts if c.metric == metric and label in (None, c.label))


def test_the_effect_is_that_of_the_pairs() -> None:
    """Twenty per cent slower everywhere: +20 %, and worse beyond doubt; the same tokens."""
    found = compare(sets(1.0, 1.2))
    p90 = contrast(found, "ttft.p90")
    assert (0.2, "worse", 3) == (pytest.approx(p90.effect, abs=0.005), p90.standing, p90.pairs)
    assert p90.low < 0.2 < p90.high
    assert "cannot_tell" == contrast(found, "failed").standing
    assert "worse in TTFT p90 (+20\N{NO-BREAK SPACE}%)" in found.sentence


def test_a_large_effect_is_written_in_full() -> None:
    """3.2 times the time is +220 %, not +2.2e+02 %."""
    sentence = compare(sets(1.0, 3.2)).sentence
    assert "(+220\N{NO-BREAK SPACE}%)" in sentence
    assert "e+" not in sentence


def test_requests_are_paired_with_themselves() -> None:
    """The median change of the same request, and the share that got slower."""
    by_request = contrast(compare(sets(1.0, 1.2)), "ttft")
    assert ("request", 1.0) == (by_request.paired_by, by_request.slower_share)
    assert 0.2 == pytest.approx(by_request.effect, abs=0.005)


def test_one_run_a_side_says_nothing_about_the_next() -> None:
    """No interval over runs; the one from inside the run is labelled so."""
    found = compare(sets(1.0, 1.2, count=1))
    assert (None, "none", "cannot_tell") == (
        contrast(found, "ttft.p90").low,
        contrast(found, "ttft.p90").interval,
        contrast(found, "ttft.p90").standing,
    )
    assert "within_run" == contrast(found, "ttft").interval
    assert "one run says nothing" in found.sentence


def test_three_sides_are_each_compared_with_the_first() -> None:
    """A column per side, a contrast per side and metric."""
    found = compare(sets(1.0, 1.2, 0.8))
    assert ["x1", "x1.2", "x0.8"] == [side.label for side in found.sides]
    assert ["worse", "better"] == [contrast(found, "ttft.p90", label).standing for label in ("x1.2", "x0.8")]


@pytest.mark.parametrize(
    ("facts", "code"),
    [({"trace_hash": "other"}, "different_traces"), ({"host": {"cpus": 8}}, "different_machines")],
)
def test_sides_that_are_not_alike_are_not_compared_silently(facts: dict[str, Any], code: str) -> None:
    """The comparison says why it is not valid."""
    first = RunSet("a", runs(1.0, host={"cpus": 2}), TARGETS)
    other = [Run(msgspec.structs.replace(run.info, **facts), run.table) for run in runs(1.0, host={"cpus": 2})]
    found = compare([first, RunSet("b", other, TARGETS)])
    assert [code] == [reason.code for reason in found.invalid]
    assert "not valid" in found.sentence


def test_what_differed_in_the_set_up_is_listed() -> None:
    """The deployment, versions and settings of the first runs; equal ones and the salt are left out."""
    first = RunSet("a", runs(1.0, deployment="emulated:chunked", versions={"v": "1"}, salt="x"), TARGETS)
    other = RunSet("b", runs(1.0, deployment="emulated:colocated", versions={"v": "2"}, salt="y"), TARGETS)
    told = {d.what: d.values for d in compare([first, other]).differences}
    assert {"deployment": ["emulated:chunked", "emulated:colocated"], "versions.v": ["1", "2"]} == told


def test_rates_are_per_gpu_when_gpus_differ() -> None:
    """The same tokens from half the GPUs are twice as many."""
    found = compare([RunSet("a", runs(1.0, gpus=4), TARGETS), RunSet("b", runs(1.0, gpus=2), TARGETS)])
    assert found.per_gpu
    assert 1.0 == pytest.approx(contrast(found, "tokens_per_s").effect, abs=0.01)
    rates = [side.values["tokens_per_s"] for side in found.sides]
    assert 2.0 == pytest.approx((rates[1] or 0) / (rates[0] or 1), abs=0.01)


def test_failures_are_worse() -> None:
    """A side that fails is worse in attainment and in failures."""
    other = runs(1.0)
    for number, run in enumerate(other):
        run.table.rows["outcome"][: 10 + number] = Outcome.TIMEOUT
    found = compare([RunSet("a", runs(1.0), TARGETS), RunSet("b", other, TARGETS)])
    assert ["worse", "worse"] == [contrast(found, metric).standing for metric in ("attainment", "failed")]


def test_shares_differ_by_no_more_than_all() -> None:
    """Two runs a side, failing in 0 and 50 %: t says more than 300 points, a share cannot."""
    other = runs(1.0, 2)
    other[1].table.rows["outcome"][:30] = Outcome.TIMEOUT
    failed = contrast(compare([RunSet("a", runs(1.0, 2), TARGETS), RunSet("b", other, TARGETS)]), "failed")
    assert (0.25, -1.0, 1.0) == (failed.effect, failed.low, failed.high)


def test_metrics_can_be_chosen() -> None:
    """Only these, in this order; an unknown one is an error."""
    found = compare(sets(1.0, 1.1), ["e2e.p90", "tokens_per_s"])
    assert ["e2e.p90", "tokens_per_s"] == [c.metric for c in found.contrasts if c.paired_by == "run"]
    for wrong in ("tftt.p90", "ttft", "attainment.p90"):
        with pytest.raises(MetricsError, match="there is no metric"):
            compare(sets(1.0, 1.1), [wrong])


@pytest.mark.parametrize("factors", [(), (1.0,)])
def test_a_comparison_needs_two_sides(factors: Sequence[float]) -> None:
    """One side cannot be compared."""
    with pytest.raises(MetricsError, match="two sides"):
        compare(sets(*factors))


def test_the_document_is_strict_json() -> None:
    """And fits its schema by name."""
    text = msgspec.json.encode(compare(sets(1.0, 1.2, count=1)))
    assert b"NaN" not in text
    assert math.isfinite(len(text))
    assert "contrasts" in comparison_schema()["$defs"]["Comparison"]["properties"]
