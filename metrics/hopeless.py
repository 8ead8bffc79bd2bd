"""When a run is lost: the instant at which its target share is out of reach, whatever the rest of it does."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metrics.latency import e2e_s, is_ok
from metrics.records import Rows
from metrics.slo import SLACK_S, SLO, met_limit


def allowed_misses(total: int, share: float) -> int:
    """The most misses with which `share` of `total` requests can still be good."""
    return math.floor((1.0 - share) * total + 1e-9 * total)


def hopeless_at_s(rows: Rows, slo: SLO) -> float | None:
    """The first instant at which more requests have missed than the SLO's share allows; None when never.

    `rows` are all that count. Exact: nothing that happens later can make up for a miss, so a run stopped then has
    the verdict of the whole run, and a run that ends well is never stopped.
    """
    known = np.sort(missed_at_s(rows, slo))
    first_too_many = allowed_misses(len(rows), slo.share)
    if first_too_many >= len(known):
        return None
    instant = float(known[first_too_many])
    return instant if math.isfinite(instant) else None


def missed_at_s(rows: Rows, slo: SLO) -> NDArray[np.float64]:
    """When it is certain that each row is not good; infinite for one that is.

    A late first token (or end) is known when the limit has passed without it, a slow answer when it has ended.
    """
    known = np.where(is_ok(rows), np.inf, np.nan_to_num(rows["done_s"], nan=np.inf))
    for quantity, limit_s in slo.limits.items():
        missed = is_ok(rows) & ~met_limit(rows, slo, quantity)
        passed = rows["scheduled_s"] + limit_s + SLACK_S
        at = np.where(np.isnan(e2e_s(rows)), np.inf, rows["done_s"]) if quantity == "tpot" else passed
        known = np.where(missed, np.minimum(known, at), known)
    return np.asarray(known)
