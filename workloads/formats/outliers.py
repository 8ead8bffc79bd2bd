"""Rows that stand years from all others: a clock that was not set, a field that nobody filled (1970, 2106).

One of them as the origin would put every other row decades later. A trace with long pauses is none of this: a row is
only left out when its gap is at least a year, ten times the span of the rest, and few rows are behind it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.formats.times import shown

REASON = "far_in_time"
APART = "far_apart"

YEAR_NS = 365 * 86_400 * 10**9
_SPANS = 10
_FEW = 0.1


class Bulk(NamedTuple):
    """The rows from `first` to before `last` stand together, the others years away; `alone`: these are left out."""

    first: int
    last: int
    alone: bool
    sentence: str


def bulk(ns: NDArray[np.int64], line: NDArray[np.int64]) -> Bulk | None:
    """What stands together in instants in order (and their lines); None when no gap of a year parts them."""
    gaps = np.diff(ns)
    cuts = np.flatnonzero(gaps >= YEAR_NS)
    if not len(cuts):
        return None
    edges = np.concatenate(([0], cuts + 1, [len(ns)]))
    widest = int(np.diff(edges).argmax())
    first, last = int(edges[widest]), int(edges[widest + 1])
    beside = [int(gaps[at]) for at in (first - 1, last - 1) if 0 <= at < len(gaps)]
    outside = len(ns) - (last - first)
    alone = outside <= _FEW * len(ns) and min(beside) >= _SPANS * int(ns[last - 1] - ns[first])
    other = 0 if first else last  # the outermost row
    if first and last < len(ns) and line[last] < line[0]:
        other = last
    what = f"line {line[other]} ({shown(int(ns[other]))})"
    who = f"{what} stands" if outside == 1 else f"{outside} rows, {what} among them, stand"
    years = min(beside) / YEAR_NS
    rest = f"the other {last - first} rows, {shown(int(ns[first]))} to {shown(int(ns[last - 1]))}"
    end = f"; {'it is' if outside == 1 else 'they are'} left out" if alone else ""
    return Bulk(first, last, alone, f"{who} {years:.3g} years from {rest}{end}")
