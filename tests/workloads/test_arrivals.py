"""Arrival processes: their mean, their spread, their first instant."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.arrivals import constant, gamma, on_off, poisson, poisson_profile, ramp, steps
from workloads.errors import WorkloadError


def test_constant() -> None:
    """Evenly spaced from zero."""
    assert constant(4, 2.0).tolist() == [0, 0.5, 1.0, 1.5]


def test_poisson_gaps_are_exponential() -> None:
    """Mean 1 / rate and CV 1, within five standard errors of 100,000 gaps."""
    gaps = np.diff(poisson(100_001, 4.0, np.random.default_rng(1)))
    assert gaps.mean() == pytest.approx(0.25, rel=5 / 316)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=5 / 316)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_counts(n: int) -> None:
    """Exactly n arrivals, the first at 0."""
    for arrivals in (constant(n, 3.0), poisson(n, 3.0, np.random.default_rng(2))):
        assert n == len(arrivals)
        assert (arrivals[:1] == 0).all()


def test_same_seed_same_arrivals() -> None:
    """Randomness comes from the generator alone."""
    a, b = (poisson(50, 3.0, np.random.default_rng(5)) for _ in range(2))
    assert a.tolist() == b.tolist()


def test_profile_follows_its_rates() -> None:
    """Counts per bin are the rates times the bin, within five standard deviations, and the profile repeats."""
    rates, bin_s = np.array([50.0, 0.0, 200.0]), 10.0
    arrivals = poisson_profile(8_000, rates, bin_s, np.random.default_rng(3))
    counts = np.bincount((arrivals // bin_s).astype(int))
    for expected, count in zip([500, 0, 2000, 500, 0, 2000, 500, 0], counts, strict=False):
        assert expected == pytest.approx(count, abs=5 * max(expected, 1) ** 0.5)


def test_bad_rate() -> None:
    """A rate of zero sends nothing and is refused."""
    with pytest.raises(WorkloadError, match="0 requests per second"):
        poisson(5, 0, np.random.default_rng(1))


@pytest.mark.parametrize("cv", [0.3, 1.0, 4.0])
def test_gamma_gaps(cv: float) -> None:
    """Mean 1 / rate and the wanted coefficient of variation."""
    gaps = np.diff(gamma(200_001, 4.0, cv, np.random.default_rng(1)))
    assert 0.25 == pytest.approx(gaps.mean(), rel=5 * cv / 447)
    assert cv == pytest.approx(gaps.std() / gaps.mean(), rel=0.06)


def test_on_off() -> None:
    """The mean rate is the wanted one, bursts and pauses have their shares: 10 s on and 30 s off make four times it."""
    arrivals = on_off(200_000, 5.0, 10.0, 30.0, np.random.default_rng(4))
    assert 5.0 == pytest.approx(len(arrivals) / arrivals[-1], rel=0.1)
    counts = np.bincount((arrivals // 1.0).astype(int))
    assert 0.75 == pytest.approx(float((counts == 0).mean()), abs=0.05)
    assert 20.0 == pytest.approx(counts[counts > 0].mean(), rel=0.12)
    assert (np.diff(arrivals) >= 0).all()


def test_ramp() -> None:
    """Rate 1 to 9 over n requests: duration n / 5, and the first half of the time holds 30 % of them."""
    arrivals = ramp(50_000, 1.0, 9.0, np.random.default_rng(5))
    assert 10_000 == pytest.approx(arrivals[-1], rel=0.01)
    assert 0.3 == pytest.approx(float((arrivals < 5_000).mean()), abs=0.015)
    flat = ramp(50_000, 5.0, 5.0, np.random.default_rng(5))
    assert 0.5 == pytest.approx(float((flat < flat[-1] / 2).mean()), abs=0.015)


def test_steps() -> None:
    """Each step has its rate for its time, then they start over."""
    arrivals = steps(6_000, [100.0, 0.0, 20.0], [10.0, 5.0, 50.0], np.random.default_rng(6))
    ends = [0, 10, 15, 65, 75, 80, 130]
    counts, _ = np.histogram(arrivals, ends)
    for expected, count in zip([1000, 0, 1000, 1000, 0, 1000], counts, strict=True):
        assert expected == pytest.approx(count, abs=5 * max(expected, 1) ** 0.5)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda rng: gamma(5, 1.0, 0.0, rng), "arrivals"),
        (lambda rng: on_off(5, 1.0, 1.0, -1.0, rng), "arrivals"),
        (lambda rng: ramp(5, 0.0, 1.0, rng), "rate"),
        (lambda rng: steps(5, [0.0], [1.0], rng), "rate"),
        (lambda rng: steps(5, [-1.0], [1.0], rng), "rate"),
    ],
)
def test_processes_that_cannot_be(make, code: str) -> None:  # type: ignore[no-untyped-def]
    """Refused in words."""
    with pytest.raises(WorkloadError) as caught:
        make(np.random.default_rng(1))
    assert code == caught.value.code
