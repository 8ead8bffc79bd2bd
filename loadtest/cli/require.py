"""`goodput run --require`: what one run must reach for the command to succeed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.cli.output import say
from loadtest.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metrics.gate.looks import RuleResult
    from metrics.gate.rules import Rule
    from metrics.rundir import Run
    from metrics.slo import SLO
    from metrics.summary import Summary

REQUIREMENTS = "requirements.json"


def parse(texts: Sequence[str], slo: SLO | None) -> list[Rule]:
    """The requirements as rules, before anything is sent; MetricsError when one cannot be judged by a run."""
    if not texts:
        return []
    from metrics.gate.requirement import parse_requirements

    return parse_requirements(texts, slo)


def judge(
    finished: Run, summary: Summary, slo: SLO | None, texts: Sequence[str], directory: Path
) -> Sequence[RuleResult]:
    """Judge a sound run by each requirement, and keep the results in requirements.json."""
    rules = parse(texts, slo)
    if not rules:
        return []
    from loadtest.cli import output
    from metrics.gate.requirement import require
    from metrics.gate.sample import sample_of

    results = require(finished, sample_of(summary), slo, rules)
    output.write_json(directory / REQUIREMENTS, results)
    return results


def told(results: Sequence[RuleResult]) -> int:
    """Print them: 0 when all are reached, 1 when one is missed, 3 when the run is too short to tell.

    The table goes to stderr, so that stdout stays the run's.
    """
    if not results:
        return ExitCode.OK
    import sys

    from metrics.gate.looks import overall
    from reports.text import console
    from reports.text_gate import render_requirements

    render_requirements(results, console(sys.stderr))
    verdict = overall(results)
    for result in results:
        if result.verdict != "PASS" and not result.warn:
            what = "is missed" if result.verdict == "FAIL" else "cannot be decided by this run: make it longer"
            say(f"goodput: {result.rule} {what}", err=True)
    return {"FAIL": ExitCode.FAILED, "INCONCLUSIVE": ExitCode.INCONCLUSIVE}.get(verdict, ExitCode.OK)
