"""The built-in workloads: Splitwise-like requests from tables fitted to the Azure traces, without the data.

Sampling rule: u uniform, log(value) linear between the (quantile, value) knots, tokens rounded to whole numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads import arrivals
from workloads.errors import WorkloadError
from workloads.shape import to_rate
from workloads.trace import Trace

BUILTIN = ("azure-conv", "azure-code")

_PROFILE_BIN_S = 300.0


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A distribution as rows of (quantile, value) knots; every row shares the quantiles."""

    q: NDArray[np.float64]
    log_values: NDArray[np.float64]

    @staticmethod
    def of(q: Any, values: Any) -> Quantiles:
        return Quantiles(np.asarray(q, dtype=float), np.log(np.atleast_2d(np.asarray(values, dtype=float))))

    def sample(self, u: NDArray[np.float64], row: NDArray[np.int64] | int = 0) -> NDArray[np.float64]:
        """Values at the quantiles `u`, each from its row of knots."""
        left = np.clip(np.searchsorted(self.q, u, side="right") - 1, 0, len(self.q) - 2)
        low, high = self.log_values[row, left], self.log_values[row, left + 1]
        share = (u - self.q[left]) / (self.q[left + 1] - self.q[left])
        return np.asarray(np.exp(low + share * (high - low)))


def generate(
    name: str,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
    rate_per_s: float | None = None,
    rng: np.random.Generator,
) -> Trace:
    """A trace of the built-in workload `name` at exactly `rate_per_s` (default: that of the trace it imitates).

    `requests` and `duration_s` bound the length, the shorter one counts; without both it is the original's.
    """
    fit = _fit(name)
    rate = arrivals.checked_rate(fit["mean_rate_rps"] if rate_per_s is None else rate_per_s)
    count = _count(fit["n"], requests, duration_s, rate)
    arrival_s = _arrivals(fit, count, rng)
    prompt = np.rint(_table(fit["prompt_tokens"]).sample(rng.random(count)))
    trace = Trace(
        name=name,
        arrival_ns=np.rint(arrival_s * 1e9).astype(np.int64),
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=np.rint(_outputs(fit, prompt, rng)).astype(np.int32),
    )
    return to_rate(trace, rate)


def _count(original: int, requests: int | None, duration_s: float | None, rate: float) -> int:
    limits = [] if requests is None else [requests]
    if duration_s is not None:
        limits.append(round(rate * duration_s) if 0 <= duration_s < float("inf") else 0)
    count = min(limits, default=original)
    if count < 1:
        raise WorkloadError(
            "The workload would hold no request.",
            code="empty_trace",
            hint="Ask for more requests or a longer duration.",
        )
    return count


def _arrivals(fit: dict[str, Any], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if "rate_profile_5min_rps" in fit:
        return arrivals.poisson_profile(count, np.array(fit["rate_profile_5min_rps"]), _PROFILE_BIN_S, rng)
    return arrivals.from_gaps(_table(fit["interarrival_s"]).sample(_even(count - 1, rng)))


def _even(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Uniform numbers in random order, one in each n-th of [0, 1).

    Half of the coding trace's hour lies in 0.5 % of its gaps: drawn one by one their sum, and with it the factor to
    the wanted rate, varies by 15 % between seeds and moves the 100 ms grid of all the others; evenly drawn, by 0.5 %.
    """
    return (rng.permutation(n) + rng.random(n)) / n


def _outputs(fit: dict[str, Any], prompt: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    u = rng.random(len(prompt))
    if "output_given_prompt" not in fit:
        return _table(fit["output_tokens"]).sample(u)
    joint = fit["output_given_prompt"]
    row = np.searchsorted(joint["prompt_edges"], prompt, side="right") - 1
    return Quantiles.of(joint["q"], joint["rows"]).sample(u, row)


def _table(knots: list[list[float]]) -> Quantiles:
    q, values = zip(*knots, strict=True)
    return Quantiles.of(q, values)


@cache
def _fit(name: str) -> dict[str, Any]:
    if name not in BUILTIN:
        raise WorkloadError(
            f"There is no built-in workload {name!r}.",
            code="unknown_workload",
            hint=f"Choose from {', '.join(BUILTIN)}.",
        )
    text = resources.files("workloads").joinpath("data", f"{name}.json").read_text(encoding="utf-8")
    fit: dict[str, Any] = json.loads(text)
    return fit
