"""Goodput as a gate's metric: a search per side and pair, both with the same arrivals at the same step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from loadtest.errors import TargetError
from loadtest.pairs import Replay
from loadtest.search import Counted, Found, Search
from loadtest.target import Target
from loadtest.workload import Workload
from metrics import rundir
from metrics.gate.sample import Sample
from metrics.goodput import GoodputEstimate, fit_goodput
from metrics.rundir import Run
from metrics.slo import SLO

ADAPTIVE_RUNS: Final = 6  # the quick search; pairs do the rest
BRACKETING_RUNS: Final = 3  # for the estimate of the cost only


@dataclass(frozen=True)
class GoodputSearch:
    """Search from `start_rate_per_s` on; run n of a search uses seed + n on both sides."""

    workload: Workload
    slo: SLO
    start_rate_per_s: float
    command: list[str] = field(default_factory=list)
    runs: int = ADAPTIVE_RUNS

    def expected_s(self) -> float:
        """Seconds of load in one search near its start rate."""
        count = self.workload.requests or 0
        run_s = self.workload.duration_s or count / self.start_rate_per_s
        return (self.runs + BRACKETING_RUNS) * run_s

    def __call__(self, target: Target, number: int, folder: Path) -> Sample:
        """One search; its value is the goodput, in requests per second."""
        samples: list[Sample] = []

        def measure(rate_per_s: float, attempt: int) -> Counted:
            sample = self._attempt(target, number, attempt, rate_per_s, folder)
            samples.append(sample)
            if sample.unsound or sample.good is None or sample.judged is None:
                raise _Unsound
            return Counted(sample.good, sample.judged)

        try:
            found = _pooled(Search(measure, self.slo.share).run(self.start_rate_per_s, self.runs), self.slo.share)
        except _Unsound:
            return samples[-1]
        return _sample(samples[0], found)

    def judge_stored(self, run: Run) -> Sample:
        """A single stored run has no goodput."""
        raise TargetError(f"{run.info.name} is a stored run: a goodput gate needs two servers", code="stored_search")

    def _attempt(self, target: Target, number: int, attempt: int, rate_per_s: float, folder: Path) -> Sample:
        # Seeds far apart: no two runs of a gate but the two of one pair share their arrivals.
        seed = self.workload.seed + 1000 * number + attempt
        workload = msgspec.structs.replace(self.workload, rate_per_s=rate_per_s, seed=seed)
        probe = Replay(workload, self.slo, self.command, warmup_share=0.2)
        return probe(target, 1, rundir.create(folder / f"run-{attempt:02d}"))


def _pooled(found: Found, share: float) -> GoodputEstimate:
    """The search's estimate; when its last runs all lay on one side, that of all runs, the bracket's too."""
    if found.goodput.bound == "estimate":
        return found.goodput
    runs = [(run.rate_per_s, run.good, run.total) for run in found.attempts if not run.aborted]
    return fit_goodput(runs, share)


class _Unsound(Exception):
    """A run of the search decides nothing; its sample says why."""


def _sample(first: Sample, found: GoodputEstimate) -> Sample:
    """What the search found; a bound in place of an estimate is no value to compare."""
    known = {"goodput": found.rate} if found.bound == "estimate" and math.isfinite(found.rate) else {}
    # The runs of a search have rates, and so recipes, of their own: only the trace's name says what was replayed.
    return msgspec.structs.replace(first, values=known, few=[], recipe="", trace="", findings=[])
