"""How tight the targets could be: attainment when all limits are scaled by one factor (DistServe's SLO scale)."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.latency import is_ok, is_streamed, select
from metrics.records import RecordTable
from metrics.slo import QUANTITIES, SLACK_S, SLO, not_measurable

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
    """From the rows in `keep`; None without an SLO, rows, or token times to judge."""
    rows = select(table.rows, keep)
    if slo is None or not len(rows) or not_measurable(rows, slo).any():
        return None
    needed = np.sort(needed_scale(table, keep, slo))
    counts = np.searchsorted(needed, np.array(SCALES) + 1e-12, side="right")
    place = max(math.ceil(slo.share * len(needed) - 1e-9 * len(needed)), 1) - 1
    smallest = float(needed[place])
    return Tightness((counts / len(needed)).tolist(), smallest if math.isfinite(smallest) else None, slo.share)


def needed_scale(table: RecordTable, keep: Mask, slo: SLO) -> Floats:
    """The least factor on all limits at which each row is good; infinite for one that did not end well."""
    rows = select(table.rows, keep)
    needed = np.zeros(len(rows))
    for quantity, limit_s in slo.limits.items():
        value = np.maximum(QUANTITIES[quantity](rows) - SLACK_S, 0.0)
        # A single token has no TPOT to miss, as in `met_limit`.
        needed = np.maximum(needed, np.nan_to_num(value) / limit_s)
    in_one_piece = ~is_streamed(rows) & (rows["output_tokens"] > 0)
    answered = is_ok(rows) & (in_one_piece | np.isfinite(rows["first_token_s"]))
    return np.where(answered, needed, np.inf)
