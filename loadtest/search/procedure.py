"""The procedure: bracket the crossing, then runs close to it, all pooled in one fit.

Why it is this one: docs/goodput.md. Nothing here knows whether a run is simulated or live.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

import msgspec

from loadtest.errors import UsageError
from metrics.goodput import GoodputEstimate, LimitCount, fit_limits
from metrics.objective import Family, Objective
from metrics.search import Attempt, Counted, Found, Purpose, binding

BRACKET_FACTOR: Final = 1.6
MAX_BRACKET_STEPS: Final = 24
SPREAD: Final = 0.05  # adaptive runs lie this far, in ln(rate), on either side of the current estimate
WIDE_SPREAD: Final = 0.15  # of the extra runs, when those did not show the crossing, and for flat curves
QUICK_RUNS: Final = 6
ADAPTIVE_RUNS: Final = 12
MAX_EXTRA_RUNS: Final = 8
MOST_RUNS: Final = 60
ENOUGH_WIDTH: Final = 0.10  # of the interval, relative to the estimate: a budget left over is spent until here

Measure = Callable[[float, int], Counted]
OnAttempt = Callable[[Attempt, float], None]


class Budget(msgspec.Struct, frozen=True):
    """How much a search may offer in all: requests, or seconds of load on the target's clock. None: no limit."""

    requests: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> Budget:
        """`10m`, `90s`, `2h`, or a number of requests like `6000`."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h)?\s*", text)
        if match is None or not float(match[1]) > 0 or (match[2] is None and "." in match[1]):
            raise UsageError(
                f"--budget {text!r} is neither a time nor a number of requests",
                hint="write it like 10m, 90s or 6000",
                code="bad_budget",
            )
        if match[2] is None:
            return cls(requests=int(match[1]))
        return cls(seconds=float(match[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0}[match[2]])

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.requests is not None or self.seconds is not None

    def allows(self, spent: list[Attempt]) -> bool:
        """Whether one more run like the last one still fits; the first one always does."""
        if not spent:
            return True
        requests = sum(a.requests for a in spent) + spent[-1].requests
        seconds = sum(a.seconds for a in spent) + spent[-1].seconds
        return (self.requests is None or requests <= self.requests) and (
            self.seconds is None or seconds <= self.seconds
        )


def spread_of(objective: Objective) -> float:
    """Token gaps grow slowly with the rate: their runs have to lie wider apart to show it."""
    return WIDE_SPREAD if isinstance(objective, Family) and objective.needs_gaps else SPREAD


class _Spent(Exception):
    """The budget allows no further run."""


class Search:
    """One search; `measure(rate, number)` makes the run of that number, each with arrivals of its own.

    `bracketing` makes the runs that only have to pass or fail, so it may end one early; `measure` does without it.
    `spread` is how far, in ln(rate), the adaptive runs lie from the estimate. With a budget the search goes on after
    its runs until the interval is narrow or the budget is used up.
    """

    def __init__(
        self,
        measure: Measure,
        share: float,
        on_attempt: OnAttempt | None = None,
        *,
        bracketing: Measure | None = None,
        budget: Budget | None = None,
        spread: float = SPREAD,
    ) -> None:
        self._measure, self._share, self._on_attempt = measure, share, on_attempt
        self._bracketing = bracketing or measure
        self._budget, self._spread = budget or Budget(), spread
        self._attempts: list[Attempt] = []
        self._estimate = 0.0

    def run(self, start_rate_per_s: float, runs: int = ADAPTIVE_RUNS) -> Found:
        """Goodput in requests per second, looked for from `start_rate_per_s` on."""
        self._estimate = start_rate_per_s
        try:
            if not self._bracket(start_rate_per_s):
                return self._found(self._one_sided())
            self._estimate = self._middle()
            return self._found(self._adapt(runs))
        except _Spent:
            return self._found(self._so_far(), stopped="budget")

    def _bracket(self, rate: float) -> bool:
        """Find a passing and a failing rate a factor apart; False when there seems to be only one of the two."""
        passes = self._passes(rate, "bracket")
        factor = BRACKET_FACTOR if passes else 1 / BRACKET_FACTOR
        for _ in range(MAX_BRACKET_STEPS):
            rate *= factor
            self._estimate = rate
            if self._passes(rate, "bracket") != passes:
                return True
        return False

    def _adapt(self, runs: int) -> GoodputEstimate:
        """Runs on either side of the estimate, which follows them; more when they all lie on one side."""
        number = 0
        while True:
            reach = self._spread if number < runs else WIDE_SPREAD
            self._passes(self._estimate * math.exp(reach if number % 2 else -reach), "fit")
            number += 1
            fit = fit_limits(self._points("fit"), interval=False)
            crossed = fit.bound == "estimate"
            self._estimate = fit.rate if crossed else fit_limits(self._points("bracket", "fit"), interval=False).rate
            if number >= runs and (self._enough(number) if crossed else number >= runs + MAX_EXTRA_RUNS):
                # The bracket knows both sides: where the close runs do not show the crossing, its runs help out.
                return fit_limits(self._points("fit") if crossed else self._points("bracket", "fit"))

    def _enough(self, number: int) -> bool:
        """Whether the interval is narrow, or nobody gave a budget to make it so."""
        if not self._budget.limited or number >= MOST_RUNS:
            return True
        fit = fit_limits(self._points("fit"))
        return fit.low is not None and fit.high is not None and fit.high - fit.low < ENOUGH_WIDTH * fit.rate

    def _passes(self, rate: float, purpose: Purpose) -> bool:
        if not self._budget.allows(self._attempts):
            raise _Spent
        make = self._measure if purpose == "fit" else self._bracketing
        counted = make(rate, len(self._attempts))
        attempt = Attempt(**msgspec.structs.asdict(counted), rate_per_s=rate, purpose=purpose)
        self._attempts.append(attempt)
        if self._on_attempt is not None:
            self._on_attempt(attempt, self._estimate)
        return not attempt.aborted and all(limit.met for limit in attempt.counts(self._share))

    def _edges(self) -> tuple[float | None, float | None]:
        """The highest passing and the lowest failing rate of the bracketing runs."""
        runs = [a for a in self._attempts if a.purpose == "bracket"]
        passing = {a.rate_per_s: not a.aborted and all(c.met for c in a.counts(self._share)) for a in runs}
        passed, failed = ([rate for rate, ok in passing.items() if ok is wanted] for wanted in (True, False))
        return max(passed, default=None), min(failed, default=None)

    def _middle(self) -> float:
        """Where between the edges to look first: what their shares say, or halfway when one was cut short."""
        low, high = self._edges()
        assert low is not None
        assert high is not None
        if any(a.aborted and a.rate_per_s == high for a in self._attempts):
            return math.sqrt(low * high)
        return min(max(fit_limits(self._points("bracket"), interval=False).rate, low), high)

    def _one_sided(self) -> GoodputEstimate:
        """At least the highest rate tried, or below the lowest."""
        low, high = self._edges()
        rate = self._attempts[-1].rate_per_s
        if high is None:
            return GoodputEstimate(rate=rate, low=rate, high=None, bound="at_least", runs=len(self._attempts))
        assert low is None
        return GoodputEstimate(rate=rate, low=None, high=rate, bound="below", runs=len(self._attempts))

    def _so_far(self) -> GoodputEstimate:
        """What can be said when the budget ends the search: the fit, or the bracket as far as it goes."""
        if sum(a.purpose == "fit" for a in self._attempts) >= 3:
            fit = fit_limits(self._points("fit"))
            if fit.bound == "estimate":
                return fit
        low, high = self._edges()
        if low is None or high is None:
            return self._one_sided()
        rate = min(max(self._estimate, low), high)
        return GoodputEstimate(rate=rate, low=low, high=high, bound="estimate", runs=len(self._attempts))

    def _points(self, *purposes: Purpose) -> list[tuple[float, list[LimitCount]]]:
        wanted = [a for a in self._attempts if a.purpose in purposes and not a.aborted]
        return [(a.rate_per_s, a.counts(self._share)) for a in wanted]

    def _found(self, goodput: GoodputEstimate, stopped: str = "") -> Found:
        fitted = [a for a in self._attempts if a.purpose == "fit"]
        counting = fitted or [a for a in self._attempts if not a.aborted]
        return Found(goodput, self._attempts, stopped, binding(counting))
