"""When a run is lost: the instant at which its target share is out of reach, whatever the rest of it does."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metrics.judge import SLACK_S, Verdict, judge_rows
from metrics.latency import is_ok
from metrics.records import Rows
from metrics.slo import SLO


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

    A late first token (or end) is known when the limit has passed without it, a slow answer when it has ended. What
    could not be measured is no certain miss: where it decides, the whole run says so.
    """
    ended = np.nan_to_num(rows["done_s"], nan=np.inf)
    known = np.where(is_ok(rows), np.inf, ended)
    for quantity, verdict in judge_rows(rows, slo.limits).by_limit.items():
        passed = ended if quantity == "tpot" else rows["scheduled_s"] + slo.limits[quantity] + SLACK_S
        known = np.where(verdict == Verdict.MISSED, np.minimum(known, passed), known)
    return np.asarray(known)
