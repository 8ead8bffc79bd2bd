"""What each run of a search replays: other requests every time, at exactly the rate that is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from loadtest.workload import Workload, fresh_salt
from workloads import shape
from workloads.schedule import Schedule, plan
from workloads.synth import BUILTIN, generate
from workloads.trace import Trace

WARMUP_SHARE: Final = 0.2
COOLDOWN_SHARE: Final = 0.05


class Windows:
    """Run `number` of a built-in workload has a seed of its own, that of a file is a window of its own.

    Equal numbers give equal requests at every rate, so two deployments (or two values of a flag) can be given the same.
    Rows over `max_tokens` are left out.
    """

    def __init__(self, trace: str, *, seed: int = 0, max_tokens: int | None = None) -> None:
        self.trace_name, self.seed, self._max_tokens = trace, seed, max_tokens
        self._file: Trace | None = None if trace in BUILTIN else Workload(trace=trace).read(max_tokens)

    def trace(self, number: int, rate_per_s: float, requests: int) -> Trace:
        """Up to `requests` rows at exactly `rate_per_s` requests per second."""
        rng = np.random.default_rng([self.seed, number])
        if self._file is None:
            made = generate(self.trace_name, requests=requests, rate_per_s=rate_per_s, rng=rng)
            fitting = made if self._max_tokens is None else shape.fit_context(made, self._max_tokens)
            return made if fitting is made else shape.to_rate(fitting, rate_per_s)
        return shape.to_rate(_window(self._file, requests, rng), rate_per_s)

    def schedule(self, number: int, rate_per_s: float, requests: int, *, salt: str | None = None) -> Schedule:
        """The same as a schedule whose edges do not count; prompts are fresh unless salted."""
        trace = self.trace(number, rate_per_s, requests)
        return without_edges(trace, self.seed, fresh_salt() if salt is None else salt)


def without_edges(trace: Trace, seed: int = 0, salt: str = "") -> Schedule:
    """The schedule that replays `trace`, its first fifth and last twentieth (by arrival) not counted.

    The first find an empty server, the last would be alone with what is still running: both flatter it.
    """
    row = np.arange(len(trace))
    edges = (row < int(WARMUP_SHARE * len(trace))) | (row >= len(trace) - int(COOLDOWN_SHARE * len(trace)))
    return replace(plan(trace, seed=seed, salt=salt), warmup=edges)


def _window(trace: Trace, requests: int, rng: np.random.Generator) -> Trace:
    """A random run of consecutive rows; the whole trace when it has no more."""
    if len(trace) <= requests:
        return trace
    first = int(rng.integers(len(trace) - requests + 1))
    start_s = float(trace.arrival_ns[first]) / 1e9
    return shape.head(shape.window(trace, start_s), requests)


def at_once(trace: Trace) -> Trace:
    """All requests of a trace at its first instant."""
    return replace(trace, arrival_ns=np.zeros(len(trace), dtype=np.int64))
