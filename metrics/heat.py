"""A latency heat map: how many answers took how long to their first token, over the run."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_ANSWERS = 300  # fewer are seen better in the curves
LEAST_BINS = 24  # of time: a shorter run has no "over time"
MOST_COLUMNS = 40
PER_DECADE = 6
SMALLEST_S = 1e-5


class Heat(msgspec.Struct, frozen=True):
    """Cells of `width_s` x 1 / `per_decade` of a decade; `row` 0 begins at one second, and only full cells are kept."""

    width_s: float
    per_decade: int
    column: list[int]
    row: list[int]
    count: list[int]


def heat(due_s: Floats, ttft_s: Floats, bin_s: float, bins: int) -> Heat | None:
    """From when each request was due and its TTFT; None for a short run. Columns are whole bins of the timeline."""
    known = np.isfinite(ttft_s) & np.isfinite(due_s)
    if int(known.sum()) < LEAST_ANSWERS or bins < LEAST_BINS:
        return None
    width_s = bin_s * -(-bins // MOST_COLUMNS)
    column = ((due_s[known] + 1e-9) / width_s).astype(np.int64)
    row = np.floor(np.log10(np.maximum(ttft_s[known], SMALLEST_S)) * PER_DECADE).astype(np.int64)
    low = int(row.min())
    height = int(row.max()) - low + 1
    counted = np.bincount(column * height + row - low)
    cells = np.flatnonzero(counted)
    return Heat(
        width_s, PER_DECADE, (cells // height).tolist(), (cells % height + low).tolist(), counted[cells].tolist()
    )
