"""Where the winner changes: the limit on the time of a token, and the rate of the KV link."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from loadtest.deployment import Deployment
from loadtest.plan.contest import Contest
from loadtest.plan.demands import token_limit_s, with_token_limit
from loadtest.plan.probe import Probe
from metrics.objective import Objective
from metrics.plan import DISAGGREGATED, PlanRow

FEWEST_GBPS, MOST_GBPS = 0.1, 1e6
SPAN: Final = 2.0  # the flip is looked for from half to twice the limit
STEPS: Final = 7


def flip(contest: Contest, rows: list[PlanRow], slo: Objective) -> tuple[float | None, str]:
    """The limit on the time of a token at which one pool and two pools are level, all others kept; or why not."""
    limit_s = token_limit_s(slo)
    if limit_s is None:
        return None, "the SLO has no limit on the time of a token, in seconds"
    pairs, single = (finalists(contest, rows, two=two) for two in (True, False))
    if not pairs or not single:
        return None, "there is only one kind of design"

    def lead(limit_s: float) -> float:
        """1 where two pools lead, -1 where one does."""
        asked = with_token_limit(slo, limit_s)
        best = contest.race(single, asked)
        return 1.0 if contest.race(pairs, asked, best).probe in pairs else -1.0

    steps = [float(step) for step in limit_s * SPAN ** np.linspace(-1, 1, STEPS)]
    leads = [lead(step) for step in steps]
    for i in range(len(steps) - 1, 0, -1):
        if leads[i] < 0 < leads[i - 1]:
            return bisect(lead, steps[i - 1], steps[i]), ""
    who = "two pools lead" if leads[-1] > 0 else "one pool leads"
    return None, f"{who} from {steps[0] * 1e3:.0f} to {steps[-1] * 1e3:.0f} ms per token"


def finalists(contest: Contest, rows: list[PlanRow], *, two: bool) -> list[Probe]:
    """The best design of one kind under each demand."""
    texts = set()
    for row in rows:
        kind = [c for c in row.candidates if (c.arrangement == DISAGGREGATED) is two]
        texts |= {c.deployment for c in kind[:1] if c.goodput is not None}
    return [contest.probe(Deployment.parse(text)) for text in sorted(texts)]


def link_rate(contest: Contest, strict: PlanRow, slo: Objective) -> tuple[float | None, str]:
    """The KV link rate at which the best disaggregated design is level with the best single pool; or why not."""
    two = next((c for c in strict.candidates if c.arrangement == DISAGGREGATED), None)
    one = next((c for c in strict.candidates if c.arrangement != DISAGGREGATED), None)
    if two is None or one is None or one.goodput is None:
        return None, "there is only one kind of design"
    target = one.goodput.rate

    def short(gbps: float) -> float:
        """Above 0 while the link is too slow for the other's rate."""
        linked = Deployment.parse(f"{two.deployment},kv_link_gbps={gbps:.6g}")
        return -Probe(linked, contest.windows).shown(target, slo).spare

    if short(MOST_GBPS) > 0:
        return None, "disaggregation loses even with an infinite link"
    if two.worth < one.worth:
        return None, "two pools trail with the link as it is"
    if short(FEWEST_GBPS) <= 0:
        return None, f"disaggregation leads even at {FEWEST_GBPS:g} Gb/s"
    return bisect(short, FEWEST_GBPS, MOST_GBPS, 0.05), ""


def bisect(decreasing: Callable[[float], float], low: float, high: float, precision: float = 0.02) -> float:
    """Where a function falls through 0 between two arguments, found on a logarithmic scale."""
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if decreasing(middle) > 0 else (low, middle)
    return math.sqrt(low * high)
