"""Runs of an emulated deployment on the virtual clock."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from loadtest.backends.simulator import run_simulation
from loadtest.deployment import Deployment
from loadtest.search.reference import Unloaded, alone_s, model_unloaded, reference_deployment
from loadtest.search.windows import Windows, without_edges
from metrics.hopeless import allowed_misses, hopeless_at_s
from metrics.latency import counted, e2e_s, select
from metrics.objective import Family, Objective, judge
from metrics.records import RecordTable, Rows
from metrics.search import Counted
from metrics.slo import SLO, UNMEASURABLE
from metrics.sweep import scaled_good, speeds
from workloads.schedule import Schedule
from workloads.synth import generate

MIN_REQUESTS, MAX_REQUESTS = 500, 20_000
MIN_MEDIAN_DURATIONS: Final = 20
PHASES: Final = ("queue_s", "prefill_s", "transfer_s")


class VirtualRuns:
    """Runs of a deployment on the virtual clock, replaying a workload at any rate.

    A run has at least 500 requests and lasts 20 median requests, so that it outlives the empty start; its edges
    (`without_edges`) do not count.
    """

    def __init__(
        self,
        deployment: Deployment,
        workload: str | Windows,
        slo: Objective,
        *,
        seed: int = 0,
        least_requests: int = MIN_REQUESTS,
    ) -> None:
        self.deployment, self.objective, self._least = deployment, slo, least_requests
        limit = int(deployment["max_model_len"])
        self._windows = Windows(workload, seed=seed, max_tokens=limit) if isinstance(workload, str) else workload
        self._gaps = isinstance(slo, Family) and slo.needs_gaps
        slowdowns = isinstance(slo, Family) and slo.needs_reference
        self._unloaded = model_unloaded(reference_deployment(deployment)) if slowdowns else None
        trace = self._windows.trace(0, 1.0, MIN_REQUESTS)
        self._median_s = alone_s(model_unloaded(deployment), trace.prompt_tokens, trace.output_tokens)
        self._extrapolated = 0.0

    def __call__(self, rate_per_s: float, number: int) -> Counted:
        """A whole run."""
        return self._counted(self.table(rate_per_s, number))

    def bracketing(self, rate_per_s: float, number: int) -> Counted:
        """A run that would have been ended as soon as it was lost: the verdict is that of the whole run."""
        table = self.table(rate_per_s, number)
        if not isinstance(self.objective, SLO):
            return self._counted(table)
        return cut_short(table, self.objective, self._counted(table))

    def recall(self, counted: Counted) -> None:
        """Take over what an earlier run taught, when a search is resumed."""
        self._median_s = counted.median_e2e_s or self._median_s

    def table(self, rate_per_s: float, number: int) -> RecordTable:
        """The rows of run `number` at a rate."""
        trace = self._windows.trace(number, rate_per_s, run_length(rate_per_s, self._median_s, self._least))
        simulation = run_simulation(self.deployment, without_edges(trace, self._windows.seed), events=self._gaps)
        self._extrapolated = simulation.stats.extrapolated_share
        return simulation.table

    def _counted(self, table: RecordTable) -> Counted:
        """Of the table just made."""
        found = counted_of(table, self.objective, self._unloaded)
        self._median_s = found.median_e2e_s
        return msgspec.structs.replace(found, extrapolated=self._extrapolated)


def run_length(rate_per_s: float, median_s: float, least: int = MIN_REQUESTS) -> int:
    """Requests of a run: at least `least`, and 20 median request durations long."""
    return min(max(least, math.ceil(MIN_MEDIAN_DURATIONS * median_s * rate_per_s)), max(MAX_REQUESTS, least))


def counted_of(
    table: RecordTable, objective: Objective, unloaded: Unloaded | None = None, stopped_at_s: float | None = None
) -> Counted:
    """A run's counts against the objective, with what the search needs to know of it."""
    reference = None if unloaded is None else unloaded.reference(table.rows)
    judged = judge(table, objective, reference, stopped_at_s)
    worst, rows = judged.worst, table.rows
    durations = e2e_s(rows)
    together, alone = speeds(table, stopped_at_s)
    return Counted(
        good=worst.good,
        total=worst.total,
        requests=len(rows),
        seconds=_lasted_s(rows),
        median_e2e_s=float(np.nanmedian(durations)) if np.isfinite(durations).any() else 0.0,
        misses=judged.misses,
        limits=judged.limits,
        unsound=[UNMEASURABLE] if judged.hinges_on_unmeasurable else [],
        phases_p90_s=_phases(select(rows, counted(rows, stopped_at_s))),
        output_tokens_per_s=together,
        user_tokens_per_s=alone,
        scaled_good=scaled_good(table, objective, stopped_at_s) if isinstance(objective, SLO) else [],
    )


def cut_short(table: RecordTable, slo: SLO, whole: Counted) -> Counted:
    """What a run would have cost had it been ended when its share was out of reach; the whole run when it never was."""
    lost_s = hopeless_at_s(select(table.rows, counted(table.rows)), slo)
    if lost_s is None:
        return whole
    return msgspec.structs.replace(
        whole,
        good=whole.total - allowed_misses(whole.total, slo.share) - 1,
        requests=int((table.rows["scheduled_s"] <= lost_s).sum()),
        seconds=lost_s,
        aborted=True,
        limits=[],
    )


def _lasted_s(rows: Rows) -> float:
    ends = rows["done_s"][np.isfinite(rows["done_s"])]
    return float(max(ends.max(initial=0.0), rows["scheduled_s"].max(initial=0.0)))


def _phases(rows: Rows) -> dict[str, float]:
    """The 90th percentile of each phase the server tells of."""
    found = {}
    for name in PHASES:
        values = rows[name][np.isfinite(rows[name])]
        if len(values):
            found[name] = float(np.percentile(values, 90))
    return found


def virtual_schedule(workload: str, *, requests: int, rate_per_s: float, rng: np.random.Generator) -> Schedule:
    """A schedule of a built-in workload whose edges do not count."""
    return without_edges(generate(workload, requests=requests, rate_per_s=rate_per_s, rng=rng))
