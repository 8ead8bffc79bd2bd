"""Each chart's specification, held still by a golden file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from metrics.bins import SHARES, Curve, Targets
from metrics.heat import Heat
from metrics.plan import Step
from metrics.serverlines import PoolLine
from reports.figures import (
    distributions,
    goodput,
    interference,
    lengths,
    outcomes,
    phases,
    quadrants,
    rates,
    tightness,
    timeline,
    worst,
)
from reports.figures.bills import bills
from reports.figures.forest import Effect, forest
from reports.figures.gains import gains
from reports.figures.heat import heat
from reports.figures.predicted import Both, predicted
from reports.figures.server import server_line
from reports.figures.theme import Chart, beyond, log_ticks
from tests.reports import samples

TARGETS = Targets(0.5, 0.05, None, 0.9)


def charts() -> dict[str, Chart]:
    """One chart of every kind, from the sample runs."""
    runs = [(name, samples.view(name, requests=60).bins) for name in samples.STALLS]
    chunked = dict(runs)["chunked"]
    decision = samples.demo_page(requests=20).decision
    extent = quadrants.common_extent([bins for _, bins in runs])
    lines = [(label, bins.timeline) for label, bins in runs if bins.timeline]
    ttft = [(label, bins.curves.ttft_s) for label, bins in runs if bins.curves.ttft_s]
    judged = [(label, bins.quadrants) for label, bins in runs if bins.quadrants]
    assert decision is not None
    assert extent is not None
    assert chunked.density is not None
    assert chunked.interference is not None
    assert chunked.worst_gap is not None
    assert chunked.phases is not None
    assert chunked.tightness is not None
    assert chunked.lengths is not None
    apart = samples.view("disaggregated", requests=60, spans=True).bins.phases
    assert apart is not None
    assert apart.hand_off is not None
    sweeps = samples.sweeps()
    effects = [
        Effect("ttft.p90", 12.0, 4.0, 20.0, "+12 %", "worse", margin=10.0),
        Effect("tpot.p90", -3.0, None, 1.0, "-3 %", "open"),
    ]
    pairs = [Both("chunked", "p50", 0.12, 0.11), Both("chunked", "p99", 0.4, 0.5)]
    by, unit = rates.divisor(sweeps)
    scaled = [
        (s.label, s.scales, [e.per_gpu(n) if e else None for e in s.scaled_goodput])
        for s, n in zip(sweeps, by, strict=True)
    ]
    return {
        "phase_levels": phases.levels(chunked.phases.names, chunked.phases.first, 1.0, description="d"),
        "phase_waterfalls": phases.waterfalls(apart.names, apart.waterfalls, 9.0, description="d"),
        "hand_off": phases.hand_off(apart.hand_off, 0.1, description="d"),
        "tightness": tightness.tightness([("chunked", chunked.tightness)], description="d"),
        "scaled_goodput": tightness.scaled_goodput(scaled, unit, description="d"),
        "lengths": lengths.lengths(chunked.lengths, 0.9, description="d"),
        "attainment": rates.attainment(sweeps, description="d"),
        "binding": rates.binding(sweeps[0], ["ttft", "tpot"], description="d"),
        "interactivity": rates.interactivity(sweeps, description="d"),
        "forest": forest(effects, unit="per cent", description="d"),
        "predicted": predicted(pairs, ["chunked"], 0.5, description="d"),
        "bills": bills([("a", 0.8, 0.9), ("b", 0.7, None)], description="d"),
        "gains": gains([Step(name="plain", deployment="d", goodput_per_gpu=1.0, gain=1.0)], description="d"),
        "goodput": goodput.goodput(decision.rows, list(samples.STALLS), description="d"),
        "outcomes": outcomes.outcomes(judged, 0.9, description="d"),
        "quadrants": quadrants.quadrants(chunked.density, chunked.quadrants, TARGETS, extent, description="d"),
        "distribution": distributions.distribution(ttft, 0.5, description="d"),
        "arrivals": timeline.arrivals(lines, 20.0, description="d"),
        "in_flight": timeline.in_flight(lines, 20.0, description="d"),
        "first_tokens": timeline.first_tokens(lines[:1], 20.0, 0.5, description="d"),
        "token_rate": timeline.token_rate(lines, 20.0, description="d"),
        "interference": interference.interference(chunked.interference, (0.02, 0.2), description="d"),
        "heat": heat(Heat(10.0, 8, [0, 1, 1], [-8, -8, 0], [5, 1, 2]), 20.0, 0.5, description="d"),
        "server": server_line(
            [PoolLine("a", "waiting", [0.0, 1.0], [0.0, 7.0]), PoolLine("b", "waiting", [], [])],
            ["a", "b"],
            20.0,
            description="d",
        ),
        "worst_gap": worst.worst_gap(chunked.worst_gap, description="d"),
    }


@pytest.fixture(scope="module")
def specs() -> dict[str, dict[str, Any]]:
    """The specifications, checked against Vega-Lite's schema on the way."""
    return {name: chart.to_dict(validate=True) for name, chart in charts().items()}


def test_specifications_are_as_they_were(specs: dict[str, dict[str, Any]], golden: Callable[[str, str], None]) -> None:
    """A change of any chart is a change of a file a person reads."""
    for name, spec in specs.items():
        golden(f"{name}.json", json.dumps(spec, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def test_charts_name_colours_of_the_theme_only(specs: dict[str, dict[str, Any]]) -> None:
    """A colour written out would be wrong in the other theme."""
    assert [] == [name for name, spec in specs.items() if "#" in json.dumps(spec)]


def test_charts_are_few_hundred_marks(specs: dict[str, dict[str, Any]]) -> None:
    """Aggregated before drawing: no chart carries a row per request."""
    rows = {name: sum(len(values) for values in spec["datasets"].values()) for name, spec in specs.items()}
    assert {} == {name: count for name, count in rows.items() if count > 1300}


def test_every_chart_is_described(specs: dict[str, dict[str, Any]]) -> None:
    """A chart says what it shows to those who cannot see it, and fills the width it is given."""
    assert {("d", "container")} == {(spec["description"], spec["width"]) for spec in specs.values()}


def test_a_tail_turns_the_axis_logarithmic() -> None:
    """From p99 / p50 above ten a linear axis would show nothing but the tail."""
    short = Curve(100, [0.1 + 0.1 * share for share in SHARES])
    long = Curve(100, [0.01 * 2000**share for share in SHARES])
    kinds = []
    for curve in (short, long):
        layer = distributions.distribution([("a", curve)], None, description="d").to_dict()["layer"][0]
        kinds.append(layer["encoding"]["x"]["scale"].get("type", "linear"))
    assert ["linear", "log"] == kinds


def test_an_axis_of_equal_values_can_be_drawn() -> None:
    """A run of one request has a distribution of one value."""
    spec = distributions.distribution([("a", Curve(1, [0.2] * len(SHARES)))], None, description="d").to_dict()
    low, high = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < high


def test_log_ticks_get_finer_on_short_axes() -> None:
    """Decades over a long range, 1-2-5 over a middling one, more over a short one."""
    assert [0.01, 0.1, 1.0, 10.0] == log_ticks(0.009, 11)
    assert [0.1, 0.2, 0.5, 1.0] == log_ticks(0.09, 1.1)
    assert [0.02, 0.03, 0.04, 0.05] == log_ticks(0.018, 0.055)


def test_labels_turn_left_near_the_right_end() -> None:
    """Position is judged on the axis' own scale."""
    assert beyond(5, (0, 6), log=False)
    assert not beyond(1, (0.1, 100), log=True)
