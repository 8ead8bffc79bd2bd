"""Users who wait for each answer before they ask again: the most of them whose attainment holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from loadtest.backends.cluster import Cluster
from loadtest.deployment import Deployment
from loadtest.search.procedure import Budget
from loadtest.search.windows import Windows
from metrics.goodput import SweepGoodput, SweepPoint, sweep_goodput
from metrics.objective import judge
from metrics.records import Outcome, RecordTable, StampSource, empty_rows
from metrics.search import Attempt, Counted
from metrics.slo import SLO

MOST_USERS: Final = 4096

MeasureUsers = Callable[[int, int], Counted]
OnUsers = Callable[[Attempt, float], None]


def most_users(
    measure: MeasureUsers, share: float, start: int, on_attempt: OnUsers | None = None, budget: Budget | None = None
) -> tuple[SweepGoodput, list[Attempt]]:
    """Double (or halve) until both a passing and a failing number are known, then halve the gap between them.

    `measure(users, number)` makes a run; the answer is the highest passing number below the first failing one.
    """
    attempts: list[Attempt] = []

    def passes(users: int) -> bool:
        counted = measure(users, len(attempts))
        attempt = Attempt(**msgspec.structs.asdict(counted), rate_per_s=float(users), purpose="fit")
        attempts.append(attempt)
        if on_attempt is not None:
            on_attempt(attempt, float(users))
        return all(limit.met for limit in attempt.counts(share))

    low, high, users = 0, MOST_USERS + 1, max(start, 1)
    while low + 1 < high and (budget or Budget()).allows(attempts):
        if passes(users):
            low = users
        else:
            high = users
        users = _next(low, high)
    points = [SweepPoint(a.rate_per_s, a.good / a.total if a.total else None, a.total) for a in attempts]
    return sweep_goodput(points, share), attempts


def _next(low: int, high: int) -> int:
    """The number to try when `low` passed (0: none did) and `high` failed (above the most: none did)."""
    if high > MOST_USERS:
        return min(2 * low, MOST_USERS)
    return (low + high) // 2


class VirtualUsers:
    """Closed loops on the virtual clock; latencies count from the moment a user asks."""

    def __init__(self, deployment: Deployment, windows: Windows, slo: SLO, requests: int) -> None:
        self._deployment, self._windows, self._slo, self._requests = deployment, windows, slo, requests

    def __call__(self, users: int, number: int) -> Counted:
        """A run of so many users; each asks at least five times."""
        trace = self._windows.trace(number, 1.0, max(self._requests, 5 * users))
        cluster = Cluster(self._deployment, every_token=True)
        table = closed_loop(cluster, trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), users)
        judged = judge(table, self._slo)
        worst = judged.worst
        lasted = float(np.nanmax(table.rows["done_s"]))
        return Counted(
            good=worst.good,
            total=worst.total,
            requests=len(table.rows),
            seconds=lasted,
            misses=judged.misses,
            limits=judged.limits,
            extrapolated=cluster.stats().extrapolated_share,
        )


def closed_loop(cluster: Cluster, prompts: list[int], outputs: list[int], users: int) -> RecordTable:
    """`users` requests at a time, a new one the moment one ends; the first fifth to ask is warm-up."""
    count = len(prompts)
    rows = empty_rows(count)
    rows["prompt_tokens"], rows["max_tokens"], rows["output_tokens"] = prompts, outputs, outputs
    rows["request_id"] = np.arange(count)
    rows["session"], rows["stamp_source"] = -1, StampSource.SIMULATED
    rows["warmup"] = np.arange(count) < 0.2 * count
    asked = 0

    def ask(now: float) -> None:
        nonlocal asked
        cluster.submit(asked, prompts[asked], outputs[asked], now)
        rows["scheduled_s"][asked] = rows["sent_s"][asked] = now
        asked += 1

    for _ in range(min(users, count)):
        ask(0.0)
    while (due := cluster.next_deadline()) is not None:
        for token in cluster.advance(due):
            if token.index == 0:
                rows["first_token_s"][token.request_id] = token.time
            if token.finished:
                rows["last_token_s"][token.request_id] = rows["done_s"][token.request_id] = token.time
                rows["outcome"][token.request_id] = Outcome.OK
                if asked < count:
                    ask(token.time)
    return RecordTable(rows, None, [])


def first_guess(median_e2e_s: float, rate_per_s: float) -> int:
    """How many users a rate stands for (Little's law)."""
    return max(1, math.ceil(median_e2e_s * rate_per_s))
