"""Find goodput: bracket the crossing, then runs close to it, all pooled in one fit.

The procedure and why it is this one: docs/goodput.md. Nothing here knows whether a run is simulated or live.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from loadtest.backends.simulator import simulate
from loadtest.deployment import Deployment
from metrics.goodput import GoodputEstimate, fit_goodput
from metrics.latency import e2e_s
from metrics.slo import SLO, attain, reaches
from workloads.schedule import Schedule, plan
from workloads.synth import generate

BRACKET_FACTOR = 1.6
MAX_BRACKET_STEPS = 24
SPREAD = 0.05  # adaptive runs lie this far, in ln(rate), on either side of the current estimate
ADAPTIVE_RUNS = 12
MAX_EXTRA_RUNS = 8
MIN_REQUESTS, MAX_REQUESTS = 500, 4_000
MIN_MEDIAN_DURATIONS = 20
WARMUP_SHARE = 0.2


class Counted(NamedTuple):
    """What one run at a rate showed: good requests of those counted."""

    good: int
    total: int


class Attempt(msgspec.Struct, frozen=True):
    """One run of a search; bracketing runs say where to look, only the others are fitted."""

    rate_per_s: float
    good: int
    total: int
    purpose: Literal["bracket", "fit"]


class Found(msgspec.Struct, frozen=True):
    """The estimate and every run behind it."""

    goodput: GoodputEstimate
    attempts: list[Attempt]


Measure = Callable[[float, int], Counted]
OnAttempt = Callable[[Attempt, float], None]


class Search:
    """One search; `measure(rate, number)` makes the run of that number, each with arrivals of its own."""

    def __init__(self, measure: Measure, share: float, on_attempt: OnAttempt | None = None) -> None:
        self._measure, self._share, self._on_attempt = measure, share, on_attempt
        self._attempts: list[Attempt] = []
        self._estimate = 0.0

    def run(self, start_rate_per_s: float, runs: int = ADAPTIVE_RUNS) -> Found:
        """Goodput in requests per second, looked for from `start_rate_per_s` on."""
        self._estimate = start_rate_per_s
        crossed = self._bracket(start_rate_per_s)
        self._estimate = fit_goodput(self._points("bracket"), self._share).rate
        if not crossed:
            return Found(fit_goodput(self._points("bracket"), self._share), self._attempts)
        return Found(self._adapt(runs), self._attempts)

    def _bracket(self, rate: float) -> bool:
        """Find a passing and a failing rate a factor apart; False when there seems to be only one of the two."""
        passes = self._passes(rate, "bracket")
        factor = BRACKET_FACTOR if passes else 1 / BRACKET_FACTOR
        for _ in range(MAX_BRACKET_STEPS):
            rate *= factor
            if self._passes(rate, "bracket") != passes:
                return True
        return False

    def _adapt(self, runs: int) -> GoodputEstimate:
        """Runs on either side of the estimate, which follows them; more when they all lie on one side."""
        for number in range(runs + MAX_EXTRA_RUNS):
            sign = 1 if number % 2 else -1
            self._passes(self._estimate * math.exp(sign * SPREAD), "fit")
            fit = fit_goodput(self._points("fit"), self._share)
            crossed = fit.bound == "estimate"
            self._estimate = fit.rate if crossed else fit_goodput(self._points("bracket", "fit"), self._share).rate
            if number + 1 >= runs and crossed:
                break
        return fit

    def _passes(self, rate: float, purpose: Literal["bracket", "fit"]) -> bool:
        counted = self._measure(rate, len(self._attempts))
        attempt = Attempt(rate, counted.good, counted.total, purpose)
        self._attempts.append(attempt)
        if self._on_attempt is not None:
            self._on_attempt(attempt, self._estimate)
        return reaches(counted.good, counted.total, self._share)

    def _points(self, *purposes: str) -> list[tuple[float, int, int]]:
        return [(a.rate_per_s, a.good, a.total) for a in self._attempts if a.purpose in purposes]


class VirtualRuns:
    """Runs of a deployment on the virtual clock, replaying a built-in workload at any rate.

    A run has at least 500 requests and lasts 20 median requests, so that it outlives the empty start; the first
    fifth of it is warm-up.
    """

    def __init__(self, deployment: Deployment, workload: str, slo: SLO, *, seed: int = 0) -> None:
        self._deployment, self._workload, self._slo, self._seed = deployment, workload, slo, seed
        self._median_s = 0.0

    def __call__(self, rate_per_s: float, number: int) -> Counted:
        lasting = math.ceil(MIN_MEDIAN_DURATIONS * self._median_s * rate_per_s)
        table = simulate(
            self._deployment,
            virtual_schedule(
                self._workload,
                requests=min(max(MIN_REQUESTS, lasting), MAX_REQUESTS),
                rate_per_s=rate_per_s,
                rng=np.random.default_rng([self._seed, number]),
            ),
            events=False,
        )
        self._median_s = float(np.nanmedian(e2e_s(table.rows)))
        attainment = attain(table, self._slo)
        assert attainment.good is not None  # simulated requests are always measurable
        return Counted(attainment.good, attainment.total)


def virtual_schedule(workload: str, *, requests: int, rate_per_s: float, rng: np.random.Generator) -> Schedule:
    """A schedule of a built-in workload whose first fifth is warm-up."""
    trace = generate(workload, requests=requests, rate_per_s=rate_per_s, rng=rng)
    warmup_s = float(trace.arrival_ns[int(WARMUP_SHARE * len(trace))]) / 1e9
    return plan(trace, seed=0, salt="", warmup_s=warmup_s)
