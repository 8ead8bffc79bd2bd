"""The search on made-up servers, whose goodput is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from loadtest.errors import UsageError
from loadtest.search import Attempt, Budget, Counted, Search
from loadtest.search.procedure import BRACKET_FACTOR, SPREAD, Measure
from metrics.goodput import LimitCount

TOTAL = 1000


def server(goodput: float, slope: float = 7.0, noise: float = 0.0, seed: int = 0) -> Measure:
    """Attainment Phi(1.2816 - slope ln(rate / goodput)): 90 % exactly at `goodput`; noise in its units."""
    rng = np.random.default_rng(seed)

    def measure(rate: float, _number: int) -> Counted:
        share = ndtr(1.2815515655 - slope * np.log(rate / goodput) + noise * rng.standard_normal())
        return Counted(round(TOTAL * float(share)), TOTAL, requests=TOTAL, seconds=TOTAL / rate)

    return measure


@settings(max_examples=30)
@given(st.floats(0.05, 500.0), st.floats(0.2, 5.0))
def test_without_noise_the_goodput_is_found_from_anywhere(goodput: float, start: float) -> None:
    """To the rounding of whole requests, whatever rate it begins with."""
    found = Search(server(goodput), 0.9).run(start * goodput, 6)
    assert "estimate" == found.goodput.bound
    assert pytest.approx(goodput, rel=0.01) == found.goodput.rate


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Of 150 noisy searches, 95 % give or take three standard errors."""
    found = [Search(server(3.0, noise=0.35, seed=seed), 0.9).run(1.5, 6).goodput for seed in range(150)]
    held = sum(g.low is not None and g.high is not None and g.low <= 3.0 <= g.high for g in found)
    assert 0.89 * 150 <= held
    assert pytest.approx(3.0, rel=0.02) == np.mean([g.rate for g in found])


def test_adaptive_runs_lie_on_both_sides_of_the_estimate_and_bracketing_runs_are_not_fitted() -> None:
    """Rates go up by 1.6 until one fails; then 5 % below and above in turn."""
    found = Search(server(3.0), 0.9).run(1.0, 6)
    bracket = [a.rate_per_s for a in found.attempts if a.purpose == "bracket"]
    close = [a.rate_per_s for a in found.attempts if a.purpose == "fit"]
    assert pytest.approx([1.0, BRACKET_FACTOR, BRACKET_FACTOR**2, BRACKET_FACTOR**3]) == bracket
    assert (6, 6) == (len(close), found.goodput.runs)
    assert pytest.approx([-SPREAD, SPREAD] * 3, abs=0.02) == np.log(np.array(close) / 3.0)


@pytest.mark.parametrize(("good", "bound"), [(TOTAL, "at_least"), (0, "below")])
def test_a_server_that_always_passes_or_never_gives_a_bound(good: int, bound: str) -> None:
    """No rate between: the highest (lowest) tried, and one side of the interval open."""
    found = Search(lambda _rate, _number: Counted(good, TOTAL), 0.9).run(1.0, 6).goodput
    assert bound == found.bound
    assert (None in (found.low, found.high)) is True


def test_an_aborted_run_serves_the_bracket_only() -> None:
    """The estimate is that of the whole runs, although the aborted one looked almost good."""
    whole = server(3.0)

    def bracketing(rate: float, number: int) -> Counted:
        counted = whole(rate, number)
        lost = counted.good < 0.9 * TOTAL
        return Counted(899, TOTAL, requests=100, aborted=True) if lost else counted

    found = Search(whole, 0.9, bracketing=bracketing).run(1.0, 6)
    assert [True] == [a.aborted for a in found.attempts if a.aborted]
    assert pytest.approx(3.0, rel=0.01) == found.goodput.rate


def test_several_limits_give_the_lowest_rate_and_name_what_binds() -> None:
    """Two limits with goodput 5 and 2: the search finds 2."""
    slow, fast = server(2.0), server(5.0)

    def measure(rate: float, number: int) -> Counted:
        limits = [
            LimitCount(name, made(rate, number).good, TOTAL, 0.9) for name, made in {"a": fast, "b": slow}.items()
        ]
        return Counted(limits[1].good, TOTAL, limits=limits)

    found = Search(measure, 0.9).run(1.0, 6)
    assert pytest.approx(2.0, rel=0.01) == found.goodput.rate
    assert "b" == found.binding


def test_a_budget_in_requests_is_kept_and_the_answer_says_what_it_rests_on() -> None:
    """Six runs of 1,000 fit 6,500 requests; with four runs the bracket is all there is."""
    found = Search(server(3.0), 0.9, budget=Budget(requests=6_500)).run(1.0, 12)
    assert (6, "budget") == (len(found.attempts), found.stopped)
    assert found.requests <= 6_500
    assert found.goodput.low is not None
    assert found.goodput.high is not None
    assert found.goodput.low <= 3.0 <= found.goodput.high


def test_what_is_left_of_a_budget_narrows_the_interval() -> None:
    """More runs than asked for, until the width is below a tenth."""
    found = Search(server(3.0, noise=0.5, seed=1), 0.9, budget=Budget(requests=60_000)).run(1.5, 6)
    assert sum(a.purpose == "fit" for a in found.attempts) > 6
    assert found.goodput.low is not None
    assert found.goodput.high is not None
    assert found.goodput.high - found.goodput.low < 0.1 * found.goodput.rate


def test_progress_tells_every_run_with_the_estimate() -> None:
    """One call per run."""
    told: list[tuple[Attempt, float]] = []
    found = Search(server(3.0), 0.9, lambda attempt, estimate: told.append((attempt, estimate))).run(1.0, 6)
    assert found.attempts == [attempt for attempt, _ in told]
    assert all(estimate > 0 for _, estimate in told)


def test_budgets_are_times_or_requests() -> None:
    """A unit makes it a time."""
    assert Budget(seconds=600.0) == Budget.parse("10m")
    assert Budget(seconds=90.0) == Budget.parse("90 s")
    assert Budget(requests=6000) == Budget.parse("6000")


@pytest.mark.parametrize("text", ["", "10 minutes", "0", "-5", "1.5", "5ms"])
def test_other_budgets_are_refused(text: str) -> None:
    """With an example of a good one."""
    with pytest.raises(UsageError) as error:
        Budget.parse(text)
    assert "bad_budget" == error.value.code
