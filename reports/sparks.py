"""Small charts out of characters, a line each: how values are spread, and how they went over time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from metrics.bins import SHARES, SMALLEST_S, Curve

BLOCKS = " ▁▂▃▄▅▆▇█"
LOG_FROM = 6  # longest / shortest beyond which the axis is logarithmic


def spark(values: Sequence[float]) -> str:
    """A block per value, as high as its part of the largest; a value above nothing is never invisible."""
    top = max(values, default=0.0)
    if top <= 0:
        return BLOCKS[0] * len(values)
    return "".join(BLOCKS[max(math.ceil(value / top * (len(BLOCKS) - 1)), int(value > 0))] for value in values)


def resampled(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values, each the mean of its neighbours."""
    if len(values) <= width:
        return list(values)
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def histogram(curve: Curve, width: int) -> tuple[list[float], float, float]:
    """The share of values in each of `width` equal steps between the shortest and the longest; and those two."""
    low, high = max(curve.quantile_s[0], SMALLEST_S), max(curve.quantile_s[-1], SMALLEST_S * 1.01)
    log = high > LOG_FROM * low
    edges = [_between(low, high, i / width, log=log) for i in range(1, width)]
    below = [0.0, *(_share_below(curve, edge) for edge in edges), 1.0]
    return [b - a for a, b in pairwise(below)], low, high


def place(value: float, low: float, high: float, width: int) -> int | None:
    """The character at which a value stands on such an axis; None when it lies outside."""
    if not low <= value <= high or high <= low:
        return None
    log = high > LOG_FROM * low
    part = math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
    return min(int(part * width), width - 1)


def _between(low: float, high: float, part: float, *, log: bool) -> float:
    return low * (high / low) ** part if log else low + (high - low) * part


def _share_below(curve: Curve, value: float) -> float:
    """The cumulative share at a value, linear between the known quantiles."""
    known = curve.quantile_s
    i = bisect_left(known, value)
    if i == 0:
        return 0.0
    if i == len(known):
        return 1.0
    span = known[i] - known[i - 1]
    part = (value - known[i - 1]) / span if span > 0 else 1.0
    return SHARES[i - 1] + part * (SHARES[i] - SHARES[i - 1])
