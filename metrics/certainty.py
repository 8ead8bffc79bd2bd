"""How sure the attainment of one run is, from inside the run: what changes between runs is not in it."""

from __future__ import annotations

import msgspec
import numpy as np

from metrics.intervals import correlation_time, share_interval
from metrics.judge import Judgement

GROUPS = 20_000  # neighbours are averaged to at most so many before their correlation is looked at
EACH_WAY = 0.025


class Certainty(msgspec.Struct, frozen=True):
    """95 % interval of attainment from inside the run: neighbours share a queue, so they count as `effective` ones."""

    low: float
    high: float
    effective: float


def certainty(judged: Judgement) -> Certainty:
    """Wilson's interval with the effective number of requests, over those that are decided."""
    good = judged.good[judged.decided].astype(np.float64)
    share = float(good.mean())
    # Means of groups: of a million requests the correlation over thousands of neighbours is all that matters.
    groups = good[: len(good) - len(good) % (size := -(-len(good) // GROUPS))].reshape(-1, size).mean(axis=1)
    spread = float(groups.var()) * correlation_time(groups) / len(groups)
    effective = min(share * (1 - share) / spread, len(good)) if spread > 0 else len(good)
    found = share_interval(share * effective, effective, EACH_WAY)
    return Certainty(found.low, found.high, float(effective))
