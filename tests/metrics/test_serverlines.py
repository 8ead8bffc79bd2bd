"""The server's samples as lines: every pool, nothing thinned away that was there."""

from __future__ import annotations

import numpy as np

from metrics.probes import METRICS, Probes
from metrics.serverlines import MOST_POINTS, server_view
from tests.reports import samples


def probes(waiting: list[float], preemptions: list[float]) -> Probes:
    """One pool, a sample a second."""
    values = np.full((len(waiting), len(METRICS)), np.nan)
    values[:, METRICS.index("waiting")] = waiting
    values[:, METRICS.index("preemptions")] = preemptions
    return Probes(np.arange(float(len(waiting))), np.zeros(len(waiting), dtype=np.int64), values, ["decode"])


def test_a_peak_survives_thinning() -> None:
    """One sample of 99 in 1,000 is still the top of the line."""
    waiting = [0.0] * 1000
    waiting[501] = 99.0
    found = server_view(samples.run(requests=20), probes(waiting, [7.0] * 1000))
    assert found is not None
    (line,) = found.lines
    assert ("decode", "waiting") == (line.pool, line.quantity)
    assert 99.0 == max(line.value)
    assert MOST_POINTS == len(line.at_s)


def test_preemptions_count_from_the_first_sample() -> None:
    """A server that was up before has some already; one that never preempts has no line for it."""
    found = server_view(samples.run(requests=20), probes([0.0] * 3, [7.0, 7.0, 9.0]))
    assert found is not None
    assert {"preemptions": [0.0, 0.0, 2.0]} == {x.quantity: x.value for x in found.lines if x.quantity != "waiting"}


def test_pages_that_tell_nothing_have_no_view() -> None:
    """No chart, no table."""
    nothing = Probes(np.zeros(2), np.zeros(2, dtype=np.int64), np.full((2, len(METRICS)), np.nan), ["x"])
    assert server_view(samples.run(requests=20), nothing) is None
