"""Distributions in a few numbers, with a mark on the percentiles that too few samples stand behind."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

# A percentile means something once at least one sample is expected beyond it.
ENOUGH_SAMPLES = {"p50": 2, "p90": 10, "p99": 100}


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution: seconds (or what its key names); percentiles interpolate linearly between samples."""

    n: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    few: list[str] = []  # percentiles with too few samples behind them


def describe(values: ArrayLike) -> Stat | None:
    """Describe the finite values; None when there are none."""
    sample = defined(values)
    if not len(sample):
        return None
    p50, p90, p99 = (float(p) for p in np.percentile(sample, (50.0, 90.0, 99.0)))
    return Stat(
        n=len(sample),
        mean=float(sample.mean()),
        p50=p50,
        p90=p90,
        p99=p99,
        max=float(sample.max()),
        few=[name for name, enough in ENOUGH_SAMPLES.items() if len(sample) < enough],
    )


def defined(values: ArrayLike) -> NDArray[np.float64]:
    """The values that are not NaN."""
    array = np.asarray(values, dtype=np.float64)
    return array[~np.isnan(array)]


def sorted_quantiles(ordered: NDArray[np.float64], shares: Sequence[float]) -> list[float]:
    """Quantiles of sorted values, linear between neighbours; one sort is cheaper than numpy's search for many."""
    position = np.asarray(shares) * (len(ordered) - 1)
    lower = np.floor(position).astype(np.int64)
    upper = np.minimum(lower + 1, len(ordered) - 1)
    told: list[float] = (ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)).tolist()
    return told


def nearest_rank(values: ArrayLike, percent: float) -> float | None:
    """The smallest sample with at least `percent` % of all samples at or below it (ceil, never round)."""
    sample = np.sort(defined(values))
    if not len(sample):
        return None
    # 99 % of 100 samples is rank 99: without the slack 0.99 * 100 = 99.00000000000001 would give rank 100.
    rank = math.ceil(percent * len(sample) / 100.0 - 1e-9)
    return float(sample[max(rank, 1) - 1])
