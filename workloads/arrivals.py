"""Arrival processes: seconds of n requests, the first one at 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError


def checked_rate(rate_per_s: float) -> float:
    """The rate, when it is one: a positive finite number of requests per second."""
    if not 0 < rate_per_s < float("inf"):
        raise WorkloadError(
            f"A rate of {rate_per_s} requests per second cannot be offered.",
            code="rate",
            hint="Give a positive number.",
        )
    return rate_per_s


def from_gaps(gaps_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Arrivals of len(gaps) + 1 requests."""
    return np.concatenate(([0.0], np.cumsum(gaps_s)))


def constant(n: int, rate: float) -> NDArray[np.float64]:
    """Evenly spaced arrivals."""
    return np.arange(n) / checked_rate(rate)


def poisson(n: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """A Poisson process: independent exponential gaps."""
    return from_gaps(rng.exponential(1 / checked_rate(rate), max(n - 1, 0)))[:n]


def poisson_profile(n: int, rates: NDArray[np.float64], bin_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """A Poisson process whose rate changes every `bin_s` seconds and repeats after the last bin.

    Time change: unit-rate arrivals go through the inverse of the expected count Lambda(t), which is piecewise linear.
    """
    expected = from_gaps(rates * bin_s)
    knots_s = bin_s * np.arange(len(rates) + 1)
    rounds, within = np.divmod(poisson(n, 1.0, rng), expected[-1])
    return np.asarray(rounds * knots_s[-1] + np.interp(within, expected, knots_s))
