"""Requests from a model: the built-in ones imitate the Azure traces without the data, `fit` makes others.

Sampling rule: u uniform, log(value) linear between the (quantile, value) knots, tokens rounded to whole numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads import arrivals
from workloads.errors import WorkloadError
from workloads.model import BUILTIN, Gaps, Model, OutputGivenPrompt, Profile, builtin
from workloads.quantiles import Quantiles
from workloads.shape import to_rate
from workloads.trace import Trace

__all__ = ["BUILTIN", "generate"]


def generate(
    workload: str | Model,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
    rate_per_s: float | None = None,
    rng: np.random.Generator,
) -> Trace:
    """A trace of a built-in workload or a model at exactly `rate_per_s` (default: that of the trace it imitates).

    `requests` and `duration_s` bound the length, the shorter one counts; without both it is the original's.
    """
    model = builtin(workload) if isinstance(workload, str) else workload
    rate = arrivals.checked_rate(model.mean_rate_per_s if rate_per_s is None else rate_per_s)
    count = _count(model.rows, requests, duration_s, rate)
    arrival_s = _arrivals(model.arrivals, count, rng)
    prompt = _tokens(Quantiles(model.prompt_tokens).sample(rng.random(count)))
    trace = Trace(
        name=model.name,
        arrival_ns=np.rint((arrival_s - arrival_s[:1]) * 1e9).astype(np.int64),
        prompt_tokens=prompt,
        output_tokens=_tokens(_outputs(model, prompt, rng)),
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


def _tokens(values: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.maximum(np.rint(values), 1).astype(np.int32)


def _arrivals(process: Profile | Gaps, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if isinstance(process, Profile):
        return arrivals.poisson_profile(count, np.array(process.rates_per_s), process.bin_s, rng)
    u = even(count - 1, process.memory, process.over, rng)
    return arrivals.from_gaps(Quantiles(process.gap_s).sample(u))


def even(n: int, memory: float, over: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Uniform numbers, one in each n-th of [0, 1), in an order that remembers.

    Half of the coding trace's hour lies in 0.5 % of its gaps: drawn one by one their sum, and with it the factor to
    the wanted rate, varies by 15 % between seeds and moves the 100 ms grid of all the others; evenly drawn, by 0.5 %.
    The order is that of normal numbers made of a level that lasts about `over` requests (share `memory` of the
    variance) and of noise: gaps keep their distribution to the last digit, and busy minutes follow busy minutes.
    """
    if n < 1:
        return np.zeros(0)
    noise = rng.standard_normal(n)
    order = noise if memory == 0 else np.sqrt(memory) * _level(n, over, rng) + np.sqrt(1 - memory) * noise
    rank = np.empty(n)
    rank[np.argsort(order, kind="stable")] = np.arange(n)
    return np.asarray((rank + rng.random(n)) / n)


def _level(n: int, over: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """A stationary first-order autoregression of unit variance."""
    from scipy.signal import lfilter

    keep = np.exp(-1 / over)
    shocks = rng.standard_normal(n) * np.sqrt(1 - keep * keep)
    shocks[0] = rng.standard_normal()
    return np.asarray(lfilter([1.0], [1.0, -keep], shocks))


def _outputs(model: Model, prompt: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.float64]:
    u = rng.random(len(prompt))
    if model.output_given_prompt is None:
        return Quantiles(model.output_tokens).sample(u)
    return _given(model.output_given_prompt, prompt, u)


def _given(joint: OutputGivenPrompt, prompt: NDArray[np.int32], u: NDArray[np.float64]) -> NDArray[np.float64]:
    band = np.clip(np.searchsorted(joint.edges, prompt, side="right") - 1, 0, len(joint.rows) - 1)
    output = np.empty(len(prompt))
    by_band = np.argsort(band, kind="stable")
    parts = np.split(by_band, np.cumsum(np.bincount(band, minlength=len(joint.rows)))[:-1])
    for knots, rows in zip(joint.rows, parts, strict=True):
        output[rows] = Quantiles(knots).sample(u[rows])
    return output
