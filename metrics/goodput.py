"""Goodput: the highest rate whose attainment reaches the target share (DistServe), from a sweep or by a fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.slo import reaches

Floats = NDArray[np.float64]

# The fit's slope e^v: attainment near goodput falls from 90 % to about 73 % over 10 % of rate (facts of our
# simulations), which is e^v = 7. One prior observation of that keeps separable data finite; real runs outweigh it.
TYPICAL_LOG_SLOPE = float(np.log(7.0))
ITERATIONS, TOLERANCE = 200, 1e-9


class SweepPoint(msgspec.Struct, frozen=True):
    """One rate tried: its attainment (None when it could not be measured) and how many requests stand behind it."""

    rate: float
    attainment: float | None
    total: int = 1


class SweepGoodput(msgspec.Struct, frozen=True, kw_only=True):
    """The highest passing rate below the first failing one; never a rate that was not tried.

    `bound`: `bracketed` (bracket = that rate and the first failing one), `at_least` (nothing failed),
    `below` (nothing passed: rate 0, below `below_rate`), `unknown` (nothing measured: rate None).
    """

    rate: float | None
    bound: Literal["bracketed", "at_least", "below", "unknown"]
    bracket: tuple[float, float] | None = None
    below_rate: float | None = None
    warnings: list[str] = []  # non_monotone, contradictory_repeats, unmeasured
    retest: list[float] = []  # rates to run again


class GoodputEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted goodput in requests per second with its 95 % interval.

    `bound` is `at_least` (or `below`) when the runs never reached the crossing: `rate` is then the highest
    (lowest) rate tried, one side of the interval stays open (None), and nothing is extrapolated.
    """

    rate: float
    low: float | None
    high: float | None
    bound: Literal["estimate", "at_least", "below"]
    runs: int

    @property
    def least(self) -> float:
        """The least the data allow."""
        return 0.0 if self.bound == "below" else self.rate if self.low is None else self.low

    @property
    def most(self) -> float:
        """The most the data allow."""
        return float("inf") if self.bound == "at_least" else self.rate if self.high is None else self.high

    def per_gpu(self, gpus: int) -> GoodputEstimate:
        """The same per GPU of all pools."""
        low, high = (None if edge is None else edge / gpus for edge in (self.low, self.high))
        return GoodputEstimate(rate=self.rate / gpus, low=low, high=high, bound=self.bound, runs=self.runs)


def sweep_goodput(points: Sequence[SweepPoint], target_share: float = 0.9) -> SweepGoodput:
    """Read goodput off a sweep in any order; repeats of a rate are pooled by their requests."""
    passed, contradictory = _pool(points, target_share)
    unmeasured = sorted({p.rate for p in points if p.attainment is None} - set(passed))
    rates = sorted(passed)
    failing = [rate for rate in rates if not passed[rate]]
    first_fail = failing[0] if failing else float("inf")
    best = max((rate for rate in rates if rate < first_fail), default=None)
    dipped = _dip(rates, passed, first_fail)
    warnings = {"non_monotone": dipped, "contradictory_repeats": contradictory, "unmeasured": unmeasured}
    return SweepGoodput(
        rate=best if best is not None else 0.0 if failing else None,
        bound=_bound(best, failing),
        bracket=(best, first_fail) if best is not None and failing else None,
        below_rate=first_fail if best is None and failing else None,
        warnings=[name for name, affected in warnings.items() if affected],
        retest=sorted({*dipped, *contradictory, *unmeasured}),
    )


def _pool(points: Sequence[SweepPoint], target_share: float) -> tuple[dict[float, bool], list[float]]:
    """Whether each measured rate passes, and the rates whose repeats disagree."""
    repeats: dict[float, list[SweepPoint]] = defaultdict(list)
    for point in points:
        if point.attainment is not None:
            repeats[point.rate].append(point)
    passed: dict[float, bool] = {}
    contradictory = []
    for rate, runs in repeats.items():
        good = [float(run.attainment or 0.0) * run.total for run in runs]
        passed[rate] = _passes(sum(good), sum(run.total for run in runs), target_share)
        if len({_passes(g, run.total, target_share) for g, run in zip(good, runs, strict=True)}) > 1:
            contradictory.append(rate)
    return passed, contradictory


def _passes(good: float, total: float, target_share: float) -> bool:
    return good >= (target_share - 1e-9) * total


def _dip(rates: Sequence[float], passed: dict[float, bool], first_fail: float) -> list[float]:
    """From the first failing rate to the last passing one above it: what a monotone sweep would not show."""
    last_pass = max((rate for rate in rates if passed[rate]), default=float("-inf"))
    return [rate for rate in rates if first_fail <= rate <= last_pass]


def _bound(best: float | None, failing: Sequence[float]) -> Literal["bracketed", "at_least", "below", "unknown"]:
    if best is not None:
        return "bracketed" if failing else "at_least"
    return "below" if failing else "unknown"


class LimitCount(msgspec.Struct, frozen=True):
    """How many of `total` units (requests or token gaps) met one objective, and the share of them that should."""

    name: str
    good: int
    total: int
    share: float

    @property
    def met(self) -> bool:
        """Whether the share is reached."""
        return reaches(self.good, self.total, self.share)


def fit_goodput(runs: Sequence[tuple[float, int, int]], share: float = 0.9) -> GoodputEstimate:
    """Fit goodput to runs of (rate, good, total), all pooled in one curve; ValueError when there is no run."""
    return fit_limits([(rate, [LimitCount("", good, total, share)]) for rate, good, total in runs])


def fit_limits(runs: Sequence[tuple[float, Sequence[LimitCount]]], *, interval: bool = True) -> GoodputEstimate:
    """Fit goodput to runs of (rate, the same objectives in each): the lowest of the rates the objectives allow.

    For each objective P(good | rate) = Phi(u - e^v (ln rate - m)), m the mean of ln rate; the rate at its share is
    exp(m + (u - Phi^-1(share)) e^-v). Requests of one run are strongly correlated (20 to 40 times the binomial
    variance), so the interval is a jackknife over runs with Student's t of runs - 2 degrees of freedom; it needs
    three runs, and is left out where it is not wanted. ValueError when there is no run.
    """
    rates = np.array([rate for rate, limits in runs if any(limit.total for limit in limits)])
    limits = [found for _, found in runs if any(limit.total for limit in found)]
    n = len(rates)
    if not n:
        raise ValueError("no run with requests to fit goodput to")
    if rates.min() == rates.max():
        return _one_sided(float(rates[0]), at_least=all(pooled.met for pooled in pool(limits)), runs=n)
    interval = interval and n >= 3
    # Row 0 keeps all runs; row i leaves out run i - 1.
    keep = np.vstack([np.ones(n), 1.0 - np.eye(n)]) if interval else np.ones((1, n))
    log_rates = np.min(_log_rates(rates, limits, keep), axis=0)
    estimate = float(np.exp(log_rates[0]))
    if not rates.min() <= estimate <= rates.max():
        at_least = estimate > rates.max()
        return _one_sided(float(rates.max() if at_least else rates.min()), at_least=at_least, runs=n)
    low, high = _jackknife(log_rates) if interval else (None, None)
    return GoodputEstimate(rate=estimate, low=low, high=high, bound="estimate", runs=n)


def rates_of_limits(runs: Sequence[tuple[float, Sequence[LimitCount]]]) -> dict[str, float]:
    """The rate at which each objective alone would reach its share, by name: the lowest one binds.

    Far outside the rates of the runs these are extrapolations: good for the order, not as figures of their own.
    """
    rates = np.array([rate for rate, _ in runs])
    limits = [found for _, found in runs]
    by_limit = _log_rates(rates, limits, np.ones((1, len(rates))))
    return {limit.name: float(np.exp(at[0])) for limit, at in zip(limits[0], by_limit, strict=True)}


def pool(runs: Sequence[Sequence[LimitCount]]) -> list[LimitCount]:
    """The same objectives of several runs, counted together."""
    return [
        LimitCount(same[0].name, sum(c.good for c in same), sum(c.total for c in same), same[0].share)
        for same in zip(*runs, strict=True)
    ]


def _log_rates(rates: Floats, runs: Sequence[Sequence[LimitCount]], keep: Floats) -> list[Floats]:
    """`_log_rate_at` of every objective."""
    found = []
    for same in zip(*runs, strict=True):
        good, total = (np.array(column, dtype=float) for column in zip(*((c.good, c.total) for c in same), strict=True))
        found.append(_log_rate_at(same[0].share, np.log(rates), good, total, keep))
    return found


def _one_sided(rate: float, *, at_least: bool, runs: int) -> GoodputEstimate:
    if at_least:
        return GoodputEstimate(rate=rate, low=rate, high=None, bound="at_least", runs=runs)
    return GoodputEstimate(rate=rate, low=None, high=rate, bound="below", runs=runs)


def _jackknife(log_rates: Floats) -> tuple[float, float]:
    """95 % interval of exp(log_rates[0]) from the leave-one-out estimates log_rates[1:]."""
    from scipy.stats import t

    left_out = log_rates[1:]
    n = len(left_out)
    error = np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2))
    reach = float(t.ppf(0.975, n - 2) * error)
    return float(np.exp(log_rates[0] - reach)), float(np.exp(log_rates[0] + reach))


def _log_rate_at(share: float, x: Floats, good: Floats, total: Floats, keep: Floats) -> Floats:
    """ln of the rate at `share` for every subset of runs (a row of `keep`), fitted by Fisher scoring.

    The subsets are fitted together: u and v are vectors with one entry per subset.
    """
    from scipy.special import ndtr, ndtri

    weight = keep * total
    m = (keep @ x) / keep.sum(axis=1)
    centred = x[None, :] - m[:, None]
    u = ndtri(np.clip((keep @ good + 0.5) / (weight.sum(axis=1) + 1.0), 1e-6, 1 - 1e-6))
    v = np.full(len(keep), TYPICAL_LOG_SLOPE)
    for _ in range(ITERATIONS):
        slope = np.exp(v)[:, None]
        eta = np.clip(u[:, None] - slope * centred, -8.0, 8.0)
        p = ndtr(eta)
        density = np.exp(-0.5 * eta**2) / np.sqrt(2 * np.pi)
        # Quasi-score and expected information of (u, v); d eta / du = 1, d eta / dv = -slope * centred.
        variance = p * (1 - p)
        by_v = -slope * centred
        residual = keep * (good - total * p) * density / variance
        information = weight * density**2 / variance
        score_u = residual.sum(axis=1)
        score_v = (residual * by_v).sum(axis=1) - (v - TYPICAL_LOG_SLOPE)
        uu = information.sum(axis=1) + 1e-9
        uv = (information * by_v).sum(axis=1)
        vv = (information * by_v**2).sum(axis=1) + 1.0
        determinant = uu * vv - uv**2
        step_u = np.clip((vv * score_u - uv * score_v) / determinant, -0.5, 0.5)
        step_v = np.clip((uu * score_v - uv * score_u) / determinant, -0.5, 0.5)
        u, v = u + step_u, v + step_v
        if max(np.abs(step_u).max(), np.abs(step_v).max()) < TOLERANCE:
            break
    return np.asarray(m + (u - ndtri(share)) * np.exp(-v))
