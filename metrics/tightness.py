"""How tight the targets could be: attainment when all limits are scaled by one factor (DistServe's SLO scale)."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.judge import SLACK_S, judge, measure
from metrics.latency import select
from metrics.records import RecordTable
from metrics.slo import SLO, judgeable

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SCALES = [round(2 ** (k / 8), 4) for k in range(-24, 17)]  # 1/8 to 4, eight steps an octave


class Tightness(msgspec.Struct, frozen=True):
    """Attainment at each of `SCALES`; `smallest` is the least factor at which the target share is still reached.

    `smallest` is None when no factor reaches it, because too many requests failed.
    """

    share: list[float]
    smallest: float | None
    target_share: float


def tightness(table: RecordTable, keep: Mask, slo: SLO | None) -> Tightness | None:
    """From the rows in `keep`; None without an SLO, or where the share of good rows cannot be known."""
    if slo is None or judgeable(select(table.rows, keep), slo) is None:
        return None
    needed = np.sort(needed_scale(table, keep, slo))
    counts = np.searchsorted(needed, np.array(SCALES) + 1e-12, side="right")
    place = max(math.ceil(slo.share * len(needed) - 1e-9 * len(needed)), 1) - 1
    smallest = float(needed[place])
    return Tightness((counts / len(needed)).tolist(), smallest if math.isfinite(smallest) else None, slo.share)


def needed_scale(table: RecordTable, keep: Mask, slo: SLO) -> Floats:
    """The least factor on all limits at which each row is good; infinite for one that no limits would make good.

    Rows that a stop left undecided are left out; one that it cut off too late counts as never good.
    """
    measured = measure(select(table.rows, keep), slo.limits)
    needed = np.zeros(len(measured.failed))
    for quantity, limit_s in slo.limits.items():
        value = np.maximum(measured.values[quantity] - SLACK_S, 0.0)
        needed = np.maximum(needed, np.where(np.isnan(value), np.inf, value) / limit_s)
    needed[measured.interrupted] = np.inf
    return np.asarray(needed[judge(measured, slo.limits).decided])
