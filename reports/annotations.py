"""A gate as GitHub workflow commands: at most one `::error` or `::warning` per rule, ten of a kind at most."""

from __future__ import annotations

from metrics.gate.looks import RuleResult
from metrics.gate.report import GateReport
from reports import gate_words as words
from reports.escape import command_property, command_value

MOST_OF_A_KIND = 10  # GitHub shows no more per step


def render_annotations(report: GateReport) -> str:
    """Lines for the log of a step; empty for a gate that passed without a warning."""
    if report.verdict == "INVALID":
        lines = [_line("error", "goodput gate: INVALID", f"{r.code}: {r.message}") for r in report.invalid]
    else:
        lines = [line for result in report.rules if (line := _rule(report, result))]
    kept: list[str] = []
    for kind in ("::error", "::warning"):
        kept += [line for line in lines if line.startswith(kind)][:MOST_OF_A_KIND]
    return "".join(f"{line}\n" for line in kept)


def _rule(report: GateReport, result: RuleResult) -> str:
    if result.verdict == "PASS":
        return ""
    stops = not result.warn and (result.verdict == "FAIL" or (report.red and report.verdict == "INCONCLUSIVE"))
    told = f"{words.value(result, result.candidate)}, interval {words.interval(result)}, margin {words.margin(result)}"
    return _line("error" if stops else "warning", f"goodput gate: {result.verdict}", f"{result.rule}: {told}")


def _line(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={command_property(title)}::{command_value(message)}"
