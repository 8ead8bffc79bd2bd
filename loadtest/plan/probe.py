"""Goodput of a design, quickly: the same windows for all designs, rates on one grid, every run used for every SLO.

Good enough to choose by (a few per cent); what is printed is searched for again, with an interval.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadtest.backends.simulator import simulate
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.search.reference import model_unloaded
from loadtest.search.saturation import saturation
from loadtest.search.virtual import run_length
from loadtest.search.windows import Windows, without_edges
from metrics.latency import counted, is_ok, select, tpot_s, ttft_s
from metrics.search import Saturation
from metrics.slo import SLACK_S, SLO

Floats = NDArray[np.float64]

STEP: Final = 1.05  # between neighbouring rates of the grid
LEAP: Final = 8  # steps at once while looking for the other side
REQUESTS, MOST_REQUESTS = 600, 1_200  # enough to choose by
WINDOW: Final = 0
SATURATING: Final = 2  # times the batch slots of all instances
SATURATING_BETWEEN: Final = (1_000, 6_000)


class Probe:
    """One design; simulations are kept, so asking for another SLO costs few more."""

    def __init__(self, deployment: Deployment, windows: Windows) -> None:
        self.deployment = deployment
        self._windows = windows
        self._seen: dict[int, Floats] = {}
        self._alone_s = _median_alone_s(deployment, windows)
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

    def share(self, rate_per_s: float, slo: SLO) -> float:
        """Attainment at any rate."""
        return _share(self._measure(rate_per_s), slo)

    def beats(self, goodput_per_gpu: float, slo: SLO) -> bool:
        """Whether it may have more goodput than that, by one run at that rate."""
        rate = goodput_per_gpu * self.gpus
        return rate <= 0 or self._passes(math.floor(math.log(rate) / math.log(STEP)), slo)

    def goodput_per_gpu(self, slo: SLO, hint: float | None = None) -> float:
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

    def _between(self, low: int, slo: SLO) -> float:
        """Where the line between a passing and a failing neighbour crosses."""
        above, below = _share(self._at(low), slo), _share(self._at(low + 1), slo)
        part = (above - slo.share) / (above - below) if above > below else 0.5
        return float(STEP ** (low + part))

    def _passes(self, step: int, slo: SLO) -> bool:
        return _share(self._at(step), slo) >= slo.share

    def _at(self, step: int) -> Floats:
        if step not in self._seen:
            self._seen[step] = self._measure(STEP**step)
        return self._seen[step]

    def _measure(self, rate_per_s: float) -> Floats:
        """TTFT and TPOT of all counted requests; infinite for a failed one."""
        requests = min(run_length(rate_per_s, self._alone_s, REQUESTS), MOST_REQUESTS)
        schedule = without_edges(self._windows.trace(WINDOW, rate_per_s, requests))
        rows = simulate(self.deployment, schedule, events=False).rows
        rows = select(rows, counted(rows))
        times = np.stack([ttft_s(rows), np.nan_to_num(tpot_s(rows), nan=0.0)])
        times[:, ~is_ok(rows)] = np.inf
        return times


def _median_alone_s(deployment: Deployment, windows: Windows) -> float:
    """How long the median request takes on an idle machine: the length of a run must not depend on earlier runs."""
    trace = windows.trace(WINDOW, 1.0, REQUESTS)
    prompt, output = (np.array([np.median(tokens)]) for tokens in (trace.prompt_tokens, trace.output_tokens))
    unloaded = model_unloaded(deployment)
    return float((unloaded.ttft_s(prompt) + unloaded.tpot_s(prompt + output / 2) * output)[0])


def _share(times: Floats, slo: SLO) -> float:
    ttft = np.inf if slo.ttft_s is None else slo.ttft_s + SLACK_S
    tpot = np.inf if slo.tpot_s is None else slo.tpot_s + SLACK_S
    good = (times[0] <= ttft) & (times[1] <= tpot) & np.isfinite(times[0])
    return float(good.mean())
