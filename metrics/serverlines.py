"""What the server said of itself during a run, thinned for a figure: a line per pool and quantity."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.probes import METRICS, Comparison, Probes, compare
from metrics.rundir import Run

Floats = NDArray[np.float64]

MOST_POINTS = 120
GAUGES = ("waiting", "running", "kv_usage")  # in the order in which they are drawn


class PoolLine(msgspec.Struct, frozen=True):
    """One quantity of one pool over the run's clock; `preemptions` are counted from the first sample on."""

    pool: str
    quantity: str
    at_s: list[float]
    value: list[float]


class ServerView(msgspec.Struct, frozen=True):
    """The lines that show something, and the client's figures beside the server's."""

    lines: list[PoolLine]
    table: list[Comparison]


def server_view(run: Run, probes: Probes) -> ServerView | None:
    """From the samples of a run; None when no page told anything."""
    lines = [
        line
        for quantity in (*GAUGES, "preemptions")
        for source in range(len(probes.sources))
        if (line := _line(probes, source, quantity)) is not None
    ]
    # A pool that never preempted needs no line to say so.
    preempted = {line.quantity for line in lines if any(line.value)} | set(GAUGES)
    told = compare(run, probes)
    return ServerView([line for line in lines if line.quantity in preempted], told) if lines or told else None


def _line(probes: Probes, source: int, quantity: str) -> PoolLine | None:
    mine = probes.source == source
    at_s, value = probes.at_s[mine], probes.values[mine, METRICS.index(quantity)]
    known = np.isfinite(value)
    at_s, value = at_s[known], value[known]
    if len(value) < 2:
        return None
    if quantity == "preemptions":
        value = value - value[0]
    # The highest of each group: a queue that was there must not be thinned away.
    groups = np.array_split(np.arange(len(value)), min(MOST_POINTS, len(value)))
    return PoolLine(
        probes.sources[source],
        quantity,
        [round(float(at_s[group[0]]), 3) for group in groups],
        [float(value[group].max()) for group in groups],
    )
