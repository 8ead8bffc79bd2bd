"""Trace cases: a file, options of a replay, and the requests (or the error) that must come out of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.kinds import options_of
from workloads.combine import merge
from workloads.describe import describe
from workloads.errors import WorkloadError
from workloads.formats import FORMATS, read_trace
from workloads.formats.columns import Columns
from workloads.prompts import Prompts
from workloads.schedule import plan
from workloads.shape import clip_context, fit_context, head, speed, spread_ticks, to_rate, window
from workloads.trace import Trace


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Read the file by its content and by its stated format, apply the options, compare every expected key."""
    options = options_of(case)
    columns = Columns.parse(options.pop("columns")) if "columns" in options else None
    stated = {name: options.pop(name) for name in ("zero_tokens", "time_unit", "block_tokens") if name in options}
    read = partial(_read, [case_dir / name for name in case["files"]], columns=columns, **stated)
    unknown = expected.keys() - _CHECKS.keys() - {"error", "missing", "hint", "tolerance_s", "why", "alternative"}
    assert not unknown, f"keys this kind does not check: {sorted(unknown)}"
    if expected.get("error"):
        return _check_error(read, options, expected)
    _check(_shaped(read(), options), expected)
    if case.get("format") in FORMATS:
        _check(_shaped(read(format=case["format"]), options), expected)
    if alternative := expected.get("alternative"):
        given = {key: value for key, value in alternative.items() if key != "policy"}
        tolerance = {"tolerance_s": expected.get("tolerance_s", 1e-6)}
        clip = alternative["policy"] == "clip"
        trace = read() if clip else read(zero_tokens=alternative["policy"])
        _check(_shaped(trace, options, clip=clip), given | tolerance)
    return None


def _read(paths: list[Path], **options: Any) -> Trace:
    """One file, or several merged on absolute time."""
    return merge([read_trace(path, **options) for path in paths]) if len(paths) > 1 else read_trace(paths[0], **options)


def _check_error(read: Callable[[], Trace], options: dict[str, Any], expected: dict[str, Any]) -> None:
    with pytest.raises(WorkloadError) as caught:
        _shaped(read(), options)
    assert expected["error"] == caught.value.code
    for column in expected.get("missing", []):
        assert column in caught.value.message
    assert expected.get("hint", "") in caught.value.hint


def _shaped(trace: Trace, options: dict[str, Any], *, clip: bool = False) -> Trace:
    """Apply the options in the order of a replay: ticks, window, context, time scaling."""
    left = dict(options)
    if left.pop("spread_ticks", False):
        trace = spread_ticks(trace, np.random.default_rng(left.pop("seed", 0)))
    clip = left.pop("context_policy", "clip" if clip else "drop") == "clip"
    start, length = left.pop("window_start_s", None), left.pop("window_length_s", None)
    if start is not None or length is not None:
        trace = window(trace, start or 0.0, length)
    fit = clip_context if clip else fit_context
    steps = (("max_context_tokens", fit), ("requests", head), ("speed", speed), ("rate_per_s", to_rate))
    for name, transform in steps:
        if name in left:
            trace = transform(trace, left.pop(name))  # type: ignore[operator]
    assert not left, f"options this kind does not know: {sorted(left)}"
    return trace


def _check(trace: Trace, expected: dict[str, Any]) -> None:
    tolerance_s = expected.get("tolerance_s", 1e-6)
    for key, check in _CHECKS.items():
        if key in expected:
            check(trace, expected[key], tolerance_s)
    assert describe(trace).rows == len(plan(trace, seed=1, salt="00"))


def _check_arrivals(trace: Trace, expected: list[float], tolerance_s: float) -> None:
    assert len(expected) == len(trace)
    assert (trace.arrival_ns / 1e9).tolist() == pytest.approx(expected, abs=tolerance_s, rel=0)


def _check_rejected(trace: Trace, expected: list[dict[str, Any]], _: float) -> None:
    assert expected == [{"line": row.line, "reason": row.reason} for row in trace.rejected]


def _check_warnings(trace: Trace, expected: list[str], _: float) -> None:
    assert expected == [warning.split(":")[0] for warning in trace.warnings]


def _check_prefix_groups(trace: Trace, expected: list[list[int]], _: float) -> None:
    """Rows of one group share at least a block of their prompts, rows of different groups next to nothing."""
    schedule = plan(trace, seed=1, salt="00")
    prompts = Prompts.of(schedule)
    ids = [prompts.token_ids(row, int(schedule.prompt_tokens[row]), schedule.blocks(row)) for row in range(len(trace))]
    together = {pair for group in expected for pair in combinations(sorted(group), 2)}
    for a, b in combinations(range(len(trace)), 2):
        shared = next((i for i, (x, y) in enumerate(zip(ids[a], ids[b], strict=False)) if x != y), None)
        assert ((a, b) in together) == (shared is None or shared >= prompts.block_tokens), f"rows {a} and {b}: {shared}"


_CHECKS: dict[str, Callable[[Trace, Any, float], None]] = {
    "arrivals_s": _check_arrivals,
    "prompt_tokens": lambda trace, expected, _: _equal(expected, trace.prompt_tokens.tolist()),
    "output_tokens": lambda trace, expected, _: _equal(expected, trace.output_tokens.tolist()),
    "session": lambda trace, expected, _: _equal(expected, None if trace.session is None else trace.session.tolist()),
    "span_s": lambda trace, expected, tolerance_s: _equal(pytest.approx(expected, abs=tolerance_s), trace.span_s),
    "mean_rate_per_s": lambda trace, expected, _: _equal(pytest.approx(expected), trace.mean_rate_per_s),
    "count": lambda trace, expected, _: _equal(expected, len(trace)),
    "rejected": _check_rejected,
    "warnings": _check_warnings,
    "shared_prefix_groups": _check_prefix_groups,
    "reading": lambda trace, expected, _: _equal(expected, str(trace.reading)),
}


def _equal(expected: Any, got: Any) -> None:
    assert expected == got
