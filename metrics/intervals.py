"""How sure a figure is: intervals over runs, over blocks of one run, and of shares; pure functions.

Runs are the unit of evidence. Requests of one run share queues and a server that wanders, so their effective number
is a hundredth of their count: an interval from inside one run says nothing about the next run and is labelled
`within_run` wherever it is shown (docs/gate.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

BLOCKS: Final = 20
RESAMPLES: Final = 400
FEW_VALUES: Final = 8  # below, a correlation says nothing


class Interval(msgspec.Struct, frozen=True):
    """An estimate between two bounds; a bound that the data do not give is infinite (null in JSON)."""

    low: float
    estimate: float
    high: float


def t_quantile(alpha: float, degrees: float) -> float:
    """Student's t that is exceeded with probability `alpha`."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 1.0 - alpha))


def t_interval(values: ArrayLike, alpha: float) -> Interval:
    """Mean with a one-sided `alpha` each way, by Student's t; open on both sides below two values.

    An infinite value (a side on which every request failed) has no variance: the interval is that value when all
    share it, else it is open towards it and starts at the least of the others.
    """
    sample = np.asarray(values, dtype=np.float64)
    if not np.isfinite(sample).all():
        return Interval(float(sample.min()), float(np.median(sample)), float(sample.max()))
    mean = float(sample.mean()) if len(sample) else math.nan
    if len(sample) < 2:
        return Interval(-math.inf, mean, math.inf)
    reach = t_quantile(alpha, len(sample) - 1) * float(sample.std(ddof=1)) / math.sqrt(len(sample))
    return Interval(mean - reach, mean, mean + reach)


def p_above_zero(values: ArrayLike) -> float | None:
    """One-sided p-value of "the mean is above 0" against "it is not"; None below two values."""
    from scipy.special import stdtr

    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < 2:
        return None
    if not np.isfinite(sample).all():
        return 0.0 if (sample == math.inf).all() else None
    spread = float(sample.std(ddof=1))
    if spread == 0:
        return 0.0 if sample[0] > 0 else 1.0
    return float(stdtr(len(sample) - 1, -float(sample.mean()) / (spread / math.sqrt(len(sample)))))


def holm(p_values: list[float | None]) -> list[float | None]:
    """Holm's step-down adjustment for several tests; None stays None and counts for nothing."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, place) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * p))
        adjusted[place] = least
    return adjusted


def correlation_time(values: ArrayLike) -> float:
    """How many consecutive samples carry the information of one: 1 + 2 x the sum of autocorrelations.

    Summed over pairs of lags while a pair is positive (Geyer's initial positive sequence); 1 when independent.
    """
    sample = np.asarray(values, dtype=np.float64)
    n = len(sample)
    centred = sample - sample.mean() if n else sample
    if n < FEW_VALUES or not centred.any():
        return 1.0
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[:n]
    correlation = covariance / covariance[0]
    pairs = correlation[: n - n % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    kept = pairs[: negative[0]] if len(negative) else pairs
    return max(1.0, float(2.0 * kept.sum() - 1.0))


def effective_sample_size(values: ArrayLike) -> float:
    """How many independent samples would know the mean as well as these do."""
    sample = np.asarray(values)
    return len(sample) / correlation_time(sample)


def block_length(values: ArrayLike) -> int:
    """Samples per block: the larger of n / 20 and twice the correlation time, at most half of them."""
    sample = np.asarray(values)
    return max(1, min(len(sample) // 2, math.ceil(max(len(sample) / BLOCKS, 2.0 * correlation_time(sample)))))


def block_interval(
    values: ArrayLike,
    statistic: Callable[[Floats], float],
    rng: np.random.Generator,
    alpha: float = 0.05,
    resamples: int = RESAMPLES,
) -> Interval:
    """Within-run interval of a statistic of a series in time order: circular block bootstrap, `alpha` each way."""
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) < 2:
        return Interval(-math.inf, statistic(sample) if len(sample) else math.nan, math.inf)
    length = block_length(sample)
    doubled = np.concatenate([sample, sample[:length]])
    starts = rng.integers(len(sample), size=(resamples, math.ceil(len(sample) / length)))
    offsets = np.arange(length)
    drawn = [statistic(doubled[(row[:, None] + offsets).ravel()[: len(sample)]]) for row in starts]
    low, high = np.quantile(drawn, (alpha, 1.0 - alpha))
    return Interval(float(low), statistic(sample), float(high))


def share_interval(part: float, whole: float, alpha: float = 0.05) -> Interval:
    """Wilson's interval of a share, `alpha` each way; counts may be effective ones, not whole."""
    from scipy.special import ndtri

    if whole <= 0:
        return Interval(0.0, math.nan, 1.0)
    z2 = float(ndtri(1.0 - alpha)) ** 2
    share = part / whole
    centre = (share + z2 / (2 * whole)) / (1 + z2 / whole)
    reach = math.sqrt(z2 * (share * (1 - share) / whole + z2 / (4 * whole**2))) / (1 + z2 / whole)
    # Exact at the ends, where rounding would leave 0.9999999.
    return Interval(
        0.0 if part <= 0 else max(0.0, centre - reach), share, 1.0 if part >= whole else min(1.0, centre + reach)
    )
