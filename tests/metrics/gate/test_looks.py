"""Verdicts over pairs and looks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from metrics.gate.looks import LOOKS, evaluate, overall
from metrics.gate.rules import parse_rule
from metrics.gate.sample import Sample
from metrics.intervals import t_quantile
from tests.metrics.gate.sides import paired, samples

TTFT = parse_rule("ttft.p90 rise < 10%")


def verdict(ratios: list[float], looks: list[int], text: str = "ttft.p90 rise < 10%") -> str:
    pairs = paired({"ttft_p90": [1.0] * len(ratios)}, {"ttft_p90": ratios})
    return evaluate([parse_rule(text)], pairs, looks)[0].verdict


def test_the_interval_of_five_pairs_by_scipy() -> None:
    """Log ratios, 5 % one-sided each way for one look, shown as per cent."""
    ratios = [1.02, 0.95, 1.06, 0.99, 1.01]
    (result,) = evaluate([TTFT], paired({"ttft_p90": [2.0] * 5}, {"ttft_p90": [2 * r for r in ratios]}), [5])
    theirs = ttest_1samp(np.log(ratios), 0).confidence_interval(0.9)
    assert (math.expm1(theirs.low), math.expm1(theirs.high)) == (pytest.approx(result.low), pytest.approx(result.high))
    assert "PASS" == result.verdict
    assert ttest_1samp(np.log(ratios), 0, alternative="greater").pvalue == pytest.approx(result.p_value)


def test_the_three_verdicts() -> None:
    """All of the interval worse, all better, or neither."""
    assert "FAIL" == verdict([1.30, 1.31, 1.29], [3])
    assert "PASS" == verdict([1.00, 1.01, 0.99], [3])
    assert "INCONCLUSIVE" == verdict([1.00, 1.20, 1.10], [3])


def test_a_rise_within_the_margin_passes_and_an_improvement_too() -> None:
    """The margin is what may be lost; being faster is no failure."""
    assert "PASS" == verdict([1.05, 1.051, 1.049], [3])
    assert "PASS" == verdict([0.5, 0.51, 0.49], [3])


def test_four_looks_spend_a_quarter_each() -> None:
    """1.25 % at each of 3, 5, 8, 12."""
    ratios = [1.0, 1.02, 1.01]
    (result,) = evaluate([TTFT], paired({"ttft_p90": [1.0] * 3}, {"ttft_p90": ratios}), list(LOOKS))
    reach = t_quantile(0.0125, 2) * np.std(np.log(ratios), ddof=1) / math.sqrt(3)
    assert math.expm1(np.mean(np.log(ratios)) + reach) == pytest.approx(result.high)


def test_too_few_pairs_decide_nothing() -> None:
    """Two of three pairs: inconclusive, however far apart the sides."""
    assert "INCONCLUSIVE" == verdict([9.0, 9.1], [3])


def test_a_rule_that_passed_stays_passed_but_may_still_fail() -> None:
    """Later pairs that leave it open change nothing; later pairs that fail it do."""
    early = [1.0, 1.001, 0.999]
    assert "PASS" == verdict([*early, 1.5, 1.0], [3, 5])
    assert "FAIL" == verdict([*early, *[1.6 + i / 100 for i in range(9)]], [3, 12])


def test_a_failure_is_final() -> None:
    """What failed at the first look is not voted down by later pairs."""
    assert "FAIL" == verdict([1.5, 1.501, 1.499, 0.5, 0.5], [3, 5])


def test_equal_sides_without_any_spread_pass() -> None:
    """A simulator's pairs can be identical: an interval of no width inside the margin."""
    assert "PASS" == verdict([1.0, 1.0, 1.0], [3])


def test_shares_are_differences() -> None:
    """Attainment 95 % to 92 %: a drop of 3 points, whatever the relative change."""
    pairs = paired({"attainment": [0.95, 0.96, 0.94]}, {"attainment": [0.92, 0.93, 0.91]})
    (result,) = evaluate([parse_rule("attainment drop < 2pp")], pairs, [3])
    assert ("FAIL", "difference", -0.03, -0.02) == (
        result.verdict,
        result.unit,
        pytest.approx(result.effect),
        pytest.approx(result.margin),
    )


def test_more_failures_never_look_better() -> None:
    """A candidate that fails its slow requests is faster on the rest, and red all the same."""
    base = {"ttft_p90": [1.0, 1.01, 0.99], "failed": [0.0, 0.0, 0.0]}
    worse = {"ttft_p90": [0.6, 0.61, 0.59], "failed": [0.20, 0.21, 0.19]}
    results = evaluate([TTFT, parse_rule("failed rise < 1pp")], paired(base, worse), [3])
    assert ["PASS", "FAIL"] == [result.verdict for result in results]
    assert "FAIL" == overall(results)


@given(st.lists(st.integers(0, 40), min_size=3, max_size=3), st.integers(1, 60))
def test_adding_failures_never_turns_a_verdict_better(failed: list[int], more: int) -> None:
    """Every further failure only raises the share."""
    order = ["PASS", "INCONCLUSIVE", "FAIL"]
    rule = parse_rule("failed rise < 1pp")

    def judged(extra: int) -> int:
        pairs = paired({"failed": [0.0] * 3}, {"failed": [(f + extra) / 100 for f in failed]})
        return order.index(evaluate([rule], pairs, [3])[0].verdict)

    assert judged(0) <= judged(more)


def test_a_candidate_that_answers_nothing_fails_on_time_too() -> None:
    """Its times are infinite; null in the document, never NaN."""
    pairs = paired({"ttft_p90": [1.0] * 3}, {"ttft_p90": [math.inf] * 3})
    (result,) = evaluate([TTFT], pairs, [3])
    assert ("FAIL", None, None) == (result.verdict, result.candidate, result.high)


def test_a_requirement_looks_at_the_candidate_alone() -> None:
    """No baseline value is needed, and the interval is in the metric's own unit."""
    pairs = list(zip([Sample()] * 3, samples(ttft_p90=[0.18, 0.19, 0.185]), strict=True))
    (result,) = evaluate([parse_rule("ttft.p90 < 250ms")], pairs, [3])
    assert ("PASS", "value", None, 0.25) == (result.verdict, result.unit, result.baseline, result.margin)
    assert result.low is not None
    assert 0.17 < result.low < 0.185


def test_a_required_share_needs_enough_requests() -> None:
    """No failure in 3 x 30 requests does not show less than 1 %; in 3 x 300 it does."""
    rule = parse_rule("failed < 1%")

    def judged(requests: int) -> str:
        side = [Sample(values={"failed": 0.0}, requests=requests) for _ in range(3)]
        return evaluate([rule], list(zip(side, side, strict=True)), [3])[0].verdict

    assert ["INCONCLUSIVE", "PASS"] == [judged(30), judged(300)]


def test_rates_are_per_gpu_when_gpus_differ() -> None:
    """Twice the tokens on twice the GPUs is no change; at equal GPUs it would be."""
    base = Sample(values={"tokens_per_s": 100.0}, gpus=2)
    rule = parse_rule("tokens_per_s drop < 5%")
    for gpus, effect in ((4, 0.0), (2, 1.0)):
        cand = Sample(values={"tokens_per_s": 200.0}, gpus=gpus)
        assert effect == pytest.approx(evaluate([rule], [(base, cand)] * 3, [3])[0].effect)


def test_warnings_never_decide() -> None:
    """A rule marked warn is printed, and not part of the verdict."""
    pairs = paired({"ttft_p90": [1.0] * 3}, {"ttft_p90": [2.0] * 3})
    assert "PASS" == overall(evaluate([parse_rule("ttft.p90 rise < 10% warn")], pairs, [3]))
