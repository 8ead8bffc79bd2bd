"""Requirements on a single run."""

from __future__ import annotations

import numpy as np
import pytest

from metrics.errors import MetricsError
from metrics.gate.requirement import parse_requirements, require
from metrics.gate.sample import sample_of
from metrics.records import Outcome
from metrics.slo import SLO
from metrics.summary import summarise
from tests.metrics.rows import ok_rows, run_of

TARGETS = SLO.parse("ttft=200ms,share=90%")


def judged(ttft_s: list[float], *texts: str, failed: int = 0) -> list[str]:
    rows = ok_rows(ttft_s)
    rows["outcome"][:failed] = Outcome.TIMEOUT
    run = run_of(rows)
    rules = parse_requirements(texts, TARGETS)
    return [r.verdict for r in require(run, sample_of(summarise(run, TARGETS)), TARGETS, rules)]


def test_a_clear_case_is_decided() -> None:
    """All good, or half of them."""
    rng = np.random.default_rng(1)
    assert ["PASS"] == judged([0.1] * 200, "attainment > 90%")
    assert ["FAIL"] == judged(list(rng.permutation([0.1] * 100 + [0.5] * 100)), "attainment > 90%")


def test_a_short_run_cannot_show_a_high_share() -> None:
    """Ten good requests of ten do not show 90 %."""
    assert ["INCONCLUSIVE"] == judged([0.1] * 10, "attainment > 90%")


def test_misses_in_one_stretch_say_less_than_the_same_spread_out() -> None:
    """Requests of one jam are not independent evidence."""
    jam = [0.1] * 920 + [0.5] * 80
    spread = list(np.random.default_rng(2).permutation(jam))
    assert ["INCONCLUSIVE", "PASS"] == [judged(jam, "attainment > 90%")[0], judged(spread, "attainment > 90%")[0]]


def test_percentiles_rates_and_failures_are_judged_too() -> None:
    """A percentile by blocks, a rate by its value, failures by their count."""
    ttft = list(np.random.default_rng(3).uniform(0.08, 0.12, 600))
    texts = ("ttft.p90 < 150ms", "ttft.p90 < 100ms", "tokens_per_s > 5", "tokens_per_s > 5000", "failed < 1%")
    assert ["PASS", "FAIL", "PASS", "FAIL", "PASS"] == judged(ttft, *texts)
    assert ["FAIL"] == judged(ttft, "failed < 1%", failed=60)


def test_a_run_without_an_answer_misses_every_time() -> None:
    """Failures are evidence, not a missing metric."""
    assert ["FAIL"] == judged([0.1] * 30, "ttft.p90 < 1s", failed=30)


@pytest.mark.parametrize("text", ["ttft.p90 rise < 10%", "goodput > 4", "tpot@8.p50 < 10ms"])
def test_what_one_run_cannot_say_is_refused(text: str) -> None:
    """A change, a search's or a ladder's value."""
    with pytest.raises(MetricsError):
        parse_requirements([text], TARGETS)


def test_attainment_needs_an_slo() -> None:
    """There is none without targets."""
    with pytest.raises(MetricsError, match="SLO"):
        parse_requirements(["attainment > 90%"], None)


def test_a_requirement_is_open_where_the_undecided_could_turn_it() -> None:
    """All of 300 that ended are good, 100 were cut off: from 75 % to 100 %, so nobody knows; of 70 % everybody does."""
    rows = ok_rows([0.1] * 400)
    rows["outcome"][300:] = Outcome.INTERRUPTED
    run = run_of(rows, stopped_at_s=400.0)
    rules = parse_requirements(("attainment > 90%", "attainment > 70%", "failed < 1%"), TARGETS)
    found = require(run, sample_of(summarise(run, TARGETS)), TARGETS, rules)
    assert ["INCONCLUSIVE", "PASS", "PASS"] == [result.verdict for result in found]
