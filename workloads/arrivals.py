"""Arrival processes: seconds of n requests, the first one at 0 (but for processes that begin with a pause).

A process with a changing rate is a unit-rate Poisson process whose arrivals go through the inverse of the expected
count (time change), so its count in any interval is Poisson with the mean the profile says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError

Floats = NDArray[np.float64]


def checked_rate(rate_per_s: float) -> float:
    """The rate, when it is one: a positive finite number of requests per second."""
    if not 0 < rate_per_s < float("inf"):
        raise WorkloadError(
            f"A rate of {rate_per_s} requests per second cannot be offered.",
            code="rate",
            hint="Give a positive number.",
        )
    return rate_per_s


def from_gaps(gaps_s: Floats) -> Floats:
    """Arrivals of len(gaps) + 1 requests."""
    return np.concatenate(([0.0], np.cumsum(gaps_s)))


def constant(n: int, rate: float) -> Floats:
    """Evenly spaced arrivals."""
    return np.arange(n) / checked_rate(rate)


def poisson(n: int, rate: float, rng: np.random.Generator) -> Floats:
    """A Poisson process: independent exponential gaps."""
    return from_gaps(rng.exponential(1 / checked_rate(rate), max(n - 1, 0)))[:n]


def gamma(n: int, rate: float, cv: float, rng: np.random.Generator) -> Floats:
    """Independent gamma gaps with coefficient of variation `cv`: 1 is Poisson, above is bursty, below is regular."""
    shape = 1 / _positive("cv", cv) ** 2
    return from_gaps(rng.gamma(shape, 1 / shape / checked_rate(rate), max(n - 1, 0)))[:n]


def on_off(n: int, rate: float, on_s: float, off_s: float, rng: np.random.Generator) -> Floats:
    """Poisson bursts: exponential times on and off of these means, the rate while on such that the mean is `rate`."""
    on_s, off_s = _positive("on", on_s), _positive("off", off_s)
    inside = poisson(n, checked_rate(rate) * (on_s + off_s) / on_s, rng)  # on a clock that runs only while on
    bursts = max(int(inside[-1] / on_s * 1.5) + 20, 1) if n else 1
    ends = np.cumsum(rng.exponential(on_s, bursts))
    while n and ends[-1] <= inside[-1]:
        ends = np.append(ends, ends[-1] + np.cumsum(rng.exponential(on_s, bursts)))
    pauses = from_gaps(rng.exponential(off_s, len(ends)))
    return np.asarray(inside + pauses[np.searchsorted(ends, inside, side="right")])


def ramp(n: int, first: float, last: float, rng: np.random.Generator) -> Floats:
    """A Poisson process whose rate goes in a straight line from `first` to `last` over its n requests."""
    checked_rate(first), checked_rate(last)
    duration = 2 * n / (first + last)
    count = np.sort(rng.random(n)) * n
    slope = (last - first) / duration
    # Solve first * t + slope * t^2 / 2 = count, in the form that does not cancel for a small slope.
    arrival = 2 * count / (first + np.sqrt(first * first + 2 * slope * count))
    return np.asarray(arrival - arrival[:1])


def steps(n: int, rates: Sequence[float], lasting_s: Sequence[float], rng: np.random.Generator) -> Floats:
    """A Poisson process with one rate after the other, starting over after the last."""
    for rate, seconds in zip(rates, lasting_s, strict=True):
        if not 0 <= rate < float("inf") or not 0 < seconds < float("inf"):
            raise WorkloadError(
                f"A step of {rate:g} requests per second for {seconds:g} s cannot be offered.",
                code="rate",
                hint="Rates are 0 or more, durations above 0.",
            )
    expected = from_gaps(np.asarray(rates, dtype=float) * np.asarray(lasting_s, dtype=float))
    if not expected[-1] > 0:
        raise WorkloadError("The steps hold no request.", code="rate", hint="Give at least one rate above 0.")
    knots_s = from_gaps(np.asarray(lasting_s, dtype=float))
    rounds, within = np.divmod(poisson(n, 1.0, rng), expected[-1])
    return np.asarray(rounds * knots_s[-1] + _inverse(within, expected, knots_s))


def poisson_profile(n: int, rates: Floats, bin_s: float, rng: np.random.Generator) -> Floats:
    """A Poisson process whose rate changes every `bin_s` seconds and repeats after the last bin."""
    return steps(n, rates.tolist(), [bin_s] * len(rates), rng)


def _inverse(counts: Floats, expected: Floats, knots_s: Floats) -> Floats:
    """The instants at which the expected count reaches `counts`; where it stands still, the end of the pause."""
    bin_ = np.clip(np.searchsorted(expected, counts, side="right") - 1, 0, len(expected) - 2)
    rise = expected[bin_ + 1] - expected[bin_]
    share = np.divide(counts - expected[bin_], rise, out=np.ones_like(counts), where=rise > 0)
    return np.asarray(knots_s[bin_] + share * (knots_s[bin_ + 1] - knots_s[bin_]))


def _positive(name: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise WorkloadError(f"{name}={value:g} is no positive number.", code="arrivals", hint="Give one above 0.")
    return value
