"""What a gate tells its caller: 0 pass, 1 fail, 3 inconclusive, 4 invalid; for `git bisect run` 0, 1 or 125."""

from __future__ import annotations

from typing import Final

from metrics.gate.report import GateReport

_CODES: Final = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3, "INVALID": 4}
SKIP: Final = 125


def exit_code(report: GateReport) -> int:
    """The exit status; an inconclusive gate that shall only warn (or pass) is 0."""
    return _CODES[report.verdict] if report.red else 0


def bisect_code(report: GateReport) -> int:
    """0 good, 1 bad, 125 when this commit cannot be judged."""
    return {"PASS": 0, "FAIL": 1}.get(report.verdict, SKIP)
