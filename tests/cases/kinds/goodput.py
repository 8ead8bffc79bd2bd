"""Goodput cases: the points of a sweep, and the rate, bound and bracket read off them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metrics.goodput import SweepGoodput, SweepPoint, sweep_goodput
from tests.cases.kinds._records import COMMENTS, same


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """One sweep, or several of which expected.json speaks by file name."""
    options = case.get("options", {})
    sweeps = {Path(name).stem: json.loads((case_dir / name).read_text()) for name in case["files"]}
    if len(sweeps) == 1 and not expected.keys() & sweeps.keys():
        expected = {next(iter(sweeps)): expected}
    for name, wanted in expected.items():
        if name not in COMMENTS:
            _check(sweeps[name], options, wanted)


def _check(sweep: dict[str, Any], options: dict[str, Any], expected: dict[str, Any]) -> None:
    points = [_point(point) for point in sweep["points"]]
    goodput = sweep_goodput(points, options.get("target_attainment", 0.9))
    figures = _figures(goodput, _gpus(sweep, options))
    for key, value in expected.items():
        if key not in COMMENTS:
            assert key in figures, f"this kind does not know the figure {key!r}"
            got = value if key == "warning" and value in goodput.warnings else figures[key]
            assert same(value, got), f"{key}: expected {value!r}, got {got!r}"


def _point(point: dict[str, Any]) -> SweepPoint:
    if "good" in point:
        return SweepPoint(point["rate"], point["good"] / point["total"] if point["total"] else None, point["total"])
    return SweepPoint(point["rate"], point.get("attainment"), point.get("total", point.get("requests", 1)))


def _figures(goodput: SweepGoodput, gpus: int | None) -> dict[str, Any]:
    rate = goodput.rate
    return {
        "goodput_rate": rate,
        "bound": goodput.bound,
        "bracket": None if goodput.bracket is None else list(goodput.bracket),
        "below_rate": goodput.below_rate,
        "warning": goodput.warnings[0] if goodput.warnings else None,
        "warnings": goodput.warnings,
        "retest": goodput.retest,
        "gpus": gpus,
        "goodput_per_gpu": None if rate is None or not gpus else rate / gpus,
    }


def _gpus(sweep: dict[str, Any], options: dict[str, Any]) -> int | None:
    """All GPUs of all pools."""
    pools = sweep.get("deployment", options.get("deployment"))
    if pools is None:
        return sweep.get("gpus", options.get("gpus"))
    if isinstance(pools, dict) and "gpus" in pools:
        return int(pools["gpus"])
    each = list(pools.values()) if isinstance(pools, dict) else pools
    return sum(int(pool.get("instances", 1)) * _gpus_per_instance(pool) for pool in each)


def _gpus_per_instance(pool: dict[str, Any]) -> int:
    if "gpus_per_instance" in pool:
        return int(pool["gpus_per_instance"])
    return int(pool.get("tp", 1)) * int(pool.get("pp", 1))
