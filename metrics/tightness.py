"""How tight the targets could be: attainment when all limits are scaled by one factor (DistServe's SLO scale)."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.judge import SLACK_S, Judgement
from metrics.slo import SLO

Floats = NDArray[np.float64]

SCALES = [round(2 ** (k / 8), 4) for k in range(-24, 17)]  # 1/8 to 4, eight steps an octave


class Tightness(msgspec.Struct, frozen=True):
    """Attainment at each of `SCALES`; `smallest` is the least factor at which the target share is still reached.

    `smallest` is None when no factor reaches it, because too many requests failed.
    """

    share: list[float]
    smallest: float | None
    target_share: float


def tightness(judged: Judgement, slo: SLO) -> Tightness:
    """From the decided ones of judged rows."""
    needed = np.sort(needed_scale(judged, slo))
    counts = np.searchsorted(needed, np.array(SCALES) + 1e-12, side="right")
    place = max(math.ceil(slo.share * len(needed) - 1e-9 * len(needed)), 1) - 1
    smallest = float(needed[place])
    return Tightness((counts / len(needed)).tolist(), smallest if math.isfinite(smallest) else None, slo.share)


def needed_scale(judged: Judgement, slo: SLO) -> Floats:
    """The least factor on all limits at which each decided row is good; infinite for one that no limits make good.

    A request that a stop cut off too late counts as never good.
    """
    measured = judged.measured
    needed = np.zeros(len(measured.failed))
    for quantity, limit_s in slo.limits.items():
        value = np.maximum(measured.values[quantity] - SLACK_S, 0.0)
        needed = np.maximum(needed, np.where(np.isnan(value), np.inf, value) / limit_s)
    needed[measured.interrupted] = np.inf
    return needed[judged.decided]
