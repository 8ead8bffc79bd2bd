"""Goodput of a design, quickly: the same windows for all designs, rates on one grid, every run used for every SLO.

Good enough to choose by (a few per cent); what is printed is searched for again, with an interval.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from loadtest.backends.simulator import simulate
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.search.reference import alone_s, model_unloaded, reference_deployment
from loadtest.search.saturation import saturation
from loadtest.search.virtual import counted_of
from loadtest.search.windows import Windows, without_edges
from metrics.goodput import LimitCount
from metrics.judge import Measured, judge, measure
from metrics.latency import counted, e2e_s, select
from metrics.objective import Family, Objective
from metrics.search import Saturation
from metrics.slo import QUANTITIES, SLO

STEP: Final = 1.05  # between neighbouring rates of the grid
LEAP: Final = 8  # steps at once while looking for the other side
REQUESTS, MOST_REQUESTS = 600, 8_000  # enough to choose by
DURATIONS: Final = 12  # of the median request under that load: a queue needs them to build up
TOO_SHORT: Final = 1.5  # a run that passes is made again when it was so many times shorter than that
WINDOW: Final = 0
SATURATING: Final = 2  # times the batch slots of all instances
SATURATING_BETWEEN: Final = (1_000, 6_000)


class Shown(NamedTuple):
    """What a run showed: the share that was good, and how far that is above (or below) what is asked.

    Of a family the share is that of the limit that is farthest from its own, and `spare` is in units of the misses
    that this limit allows.
    """

    share: float
    spare: float


class _Run(NamedTuple):
    """One simulation: what its requests show for any joint SLO, or the counts of one family."""

    requests: int
    median_s: float
    measured: Measured
    counts: list[LimitCount]


class Probe:
    """One design; simulations are kept, so asking for another SLO costs few more."""

    def __init__(self, deployment: Deployment, windows: Windows) -> None:
        self.deployment = deployment
        self._windows = windows
        self._runs: dict[tuple[float, Family | None], _Run] = {}
        trace = windows.trace(WINDOW, 1.0, REQUESTS)  # the length of a run must not depend on earlier runs
        self._alone_s = alone_s(model_unloaded(deployment), trace.prompt_tokens, trace.output_tokens)
        self._saturation: Saturation | None = None

    @property
    def gpus(self) -> int:
        """Of all pools."""
        return self.deployment.gpus or 1

    @property
    def saturation(self) -> Saturation:
        """What it delivers without an SLO."""
        if self._saturation is None:
            slots = sum(pool.instances * pool.limits.max_num_seqs for pool in resolve(self.deployment).pools)
            least, most = SATURATING_BETWEEN
            requests = min(max(SATURATING * slots, least), most)
            self._saturation = saturation(self.deployment, self._windows, requests)
        return self._saturation

    def shown(self, rate_per_s: float, slo: Objective) -> Shown:
        """What a run at any rate shows; one that passes lasts long enough to be believed."""
        key = rate_per_s, slo if isinstance(slo, Family) else None
        run = self._runs.get(key) or self._run(rate_per_s, slo, self._length(rate_per_s, self._alone_s))
        shown = _judged(run, slo)
        while shown.spare >= 0 and (needed := self._length(rate_per_s, run.median_s)) > TOO_SHORT * run.requests:
            run = self._run(rate_per_s, slo, needed)
            shown = _judged(run, slo)
        self._runs[key] = run
        return shown

    def beats(self, goodput_per_gpu: float, slo: Objective) -> bool:
        """Whether it may have more goodput than that, by one run at that rate."""
        rate = goodput_per_gpu * self.gpus
        return rate <= 0 or self._passes(math.floor(math.log(rate) / math.log(STEP)), slo)

    def goodput_per_gpu(self, slo: Objective, hint: float | None = None) -> float:
        """Requests per second and GPU at which the share crosses its target; 0 when hardly any rate passes."""
        start = hint * self.gpus if hint else 0.5 * self.saturation.requests_per_s
        low = round(math.log(start) / math.log(STEP))
        high, floor = low, low - 12 * LEAP
        if self._passes(low, slo):
            while self._passes(high + LEAP, slo):
                high += LEAP
            low, high = high, high + LEAP
        else:
            while not self._passes(low - LEAP, slo):
                low -= LEAP
                if low < floor:
                    return 0.0
            low, high = low - LEAP, low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._passes(middle, slo) else (low, middle)
        return self._between(low, slo) / self.gpus

    def _between(self, low: int, slo: Objective) -> float:
        """Where the line between a passing and a failing neighbour crosses."""
        above, below = self._spare(low, slo), self._spare(low + 1, slo)
        part = above / (above - below) if above > below else 0.5
        return float(STEP ** (low + part))

    def _passes(self, step: int, slo: Objective) -> bool:
        return self._spare(step, slo) >= 0

    def _spare(self, step: int, slo: Objective) -> float:
        """At a rate of the grid."""
        return self.shown(STEP**step, slo).spare

    def _length(self, rate_per_s: float, median_s: float) -> int:
        return min(max(REQUESTS, math.ceil(DURATIONS * median_s * rate_per_s)), MOST_REQUESTS)

    def _run(self, rate_per_s: float, slo: Objective, requests: int) -> _Run:
        """What all counted requests show for any limits; or a family's counts."""
        schedule = without_edges(self._windows.trace(WINDOW, rate_per_s, requests))
        family = slo if isinstance(slo, Family) else None
        table = simulate(self.deployment, schedule, events=family is not None and family.needs_gaps)
        rows = select(table.rows, counted(table.rows))
        counts = []
        if family is not None:
            alone = model_unloaded(reference_deployment(self.deployment)) if family.needs_reference else None
            counts = counted_of(table, family, alone).limits
        done = e2e_s(rows)
        median_s = float(np.nanmedian(done)) if np.isfinite(done).any() else 0.0
        return _Run(requests, median_s, measure(rows, QUANTITIES), counts)


def _judged(run: _Run, slo: Objective) -> Shown:
    if not isinstance(slo, SLO):
        return _worst(run.counts)
    share = float(judge(run.measured, slo.limits).good.mean())
    return Shown(share, share - slo.share)


def _worst(counts: list[LimitCount]) -> Shown:
    """The limit that is farthest from its share, measured in the misses it allows."""
    shares = [(c.good / c.total if c.total else 1.0, c.share) for c in counts]
    return min((Shown(got, (got - asked) / (1 - asked)) for got, asked in shares), key=lambda shown: shown.spare)
