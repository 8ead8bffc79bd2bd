"""The noise floor, what it can find, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t

from metrics.gate.noise import detectable, evaluate_one_pair, matches, noise_floor, pairs_needed, refusals
from metrics.gate.rules import parse_rule
from metrics.gate.sample import Sample
from tests.metrics.gate.sides import paired

RULE = parse_rule("ttft.p90 rise < 10%")


def floor(sigma: float, pairs: int = 8) -> object:
    effects = [sigma * (-1) ** i for i in range(pairs)]  # root mean square: sigma
    sides = paired({"ttft_p90": [1.0] * pairs}, {"ttft_p90": [math.exp(e) for e in effects]})
    return noise_floor(sides, [RULE])


def test_sigma_is_around_zero() -> None:
    """Equal builds have no effect: what their pairs show is all noise, also a common part of it."""
    found = noise_floor(paired({"ttft_p90": [1.0, 1.0]}, {"ttft_p90": [math.exp(0.03), math.exp(0.04)]}), [RULE])
    assert math.sqrt((0.03**2 + 0.04**2) / 2) == pytest.approx(found.sigma("ttft.p90"))
    assert 2 == found.pairs


def test_the_detectable_change_is_the_formula() -> None:
    """(t[1-alpha, k-1] + t[0.8, k-1]) sigma / sqrt(k)."""
    by_hand = (t.ppf(0.95, 4) + t.ppf(0.8, 4)) * 0.04 / math.sqrt(5)
    assert by_hand == pytest.approx(detectable(0.04, 5, 0.05))


def test_the_detectable_change_is_found_four_times_in_five() -> None:
    """By simulation, at five pairs."""
    rng = np.random.default_rng(1)
    change = detectable(1.0, 5, 0.05)
    effects = rng.normal(change, 1.0, (4000, 5))
    low = effects.mean(1) - t.ppf(0.95, 4) * effects.std(1, ddof=1) / math.sqrt(5)
    assert 0.8 == pytest.approx((low > 0).mean(), abs=0.05)


def test_a_margin_below_twice_the_noise_is_refused_with_what_would_do() -> None:
    """Sigma 8 % against 10 %: a wider margin, more pairs, or longer runs."""
    (refusal,) = refusals([RULE], floor(0.08))  # type: ignore[arg-type]
    assert math.expm1(0.16) == pytest.approx(refusal.margin_needed)
    assert (0.16 / math.log(1.1)) ** 2 == pytest.approx(refusal.longer_runs)
    assert refusal.pairs_needed is not None
    assert (
        detectable(0.08, refusal.pairs_needed, 0.05) <= math.log(1.1) < detectable(0.08, refusal.pairs_needed - 1, 0.05)
    )


def test_a_margin_that_the_noise_carries_is_not_refused() -> None:
    """Sigma 4 % against 10 %; a warning is never refused."""
    assert [] == refusals([RULE], floor(0.04))  # type: ignore[arg-type]
    assert [] == refusals([parse_rule("ttft.p90 rise < 1% warn")], floor(0.04))  # type: ignore[arg-type]


def test_some_noise_is_beyond_any_number_of_pairs() -> None:
    """Above 200 pairs nothing is promised."""
    assert pairs_needed(0.01, 1.0) is None


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "PASS"), (1.3, "FAIL"), (1.08, "INCONCLUSIVE")])
def test_one_pair_is_judged_by_the_stored_spread(ratio: float, verdict: str) -> None:
    """effect +- t[0.95, K] sigma with sigma 2 % from 8 pairs: +- 3.8 %."""
    pair = (Sample(values={"ttft.p90": 1.0}), Sample(values={"ttft.p90": ratio}))
    (result,) = evaluate_one_pair([RULE], pair, floor(0.02))  # type: ignore[arg-type]
    assert (verdict, "noise_floor") == (result.verdict, result.interval)
    assert math.expm1(math.log(ratio) + t.ppf(0.95, 8) * 0.02) == pytest.approx(result.high)


def test_one_pair_without_a_floor_is_never_a_silent_pass() -> None:
    """Inconclusive, and it says why; the same when the floor is of another set-up."""
    pair = (Sample(values={"ttft.p90": 1.0}, recipe="b"), Sample(values={"ttft.p90": 1.0}, recipe="b"))
    (result,) = evaluate_one_pair([RULE], pair, None)
    assert ("INCONCLUSIVE", "none") == (result.verdict, result.interval)
    other = noise_floor([(Sample(values={"ttft.p90": 1.0}, recipe="a"),) * 2] * 3, [RULE])
    assert not matches(other, pair[0])
    (result,) = evaluate_one_pair([RULE], pair, other)
    assert "INCONCLUSIVE" == result.verdict
    assert "another" in result.note
