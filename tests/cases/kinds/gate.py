"""Gate cases: the runs of two sides as figures, and the verdict (and failing metrics) the rules must give.

A side is {trace_sha, slo, runs: [figures]}; run i of the baseline pairs with run i of the candidate, `pairs` is one
look. `ttft_p99_ms` is `ttft.p99`, `goodput_rate` is `goodput`, `failed` becomes the share of failed + completed.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from loadtest.errors import ExitCode
from metrics.gate.comparable import Pair
from metrics.gate.exits import exit_code
from metrics.gate.report import GateReport, Plan, decide
from metrics.gate.rules import DEFAULT_RULES, METRICS, STATS, parse_rules
from metrics.gate.sample import Sample
from metrics.validity import Finding
from tests.cases.kinds._records import COMMENTS

WORDS = {
    "different_traces": "not_comparable",
    "different_slos": "not_comparable",
    "different_machines": "not_comparable",
    "different_clocks": "not_comparable",
    "metric_missing": "missing_metric",
}
NAMES = {"goodput_rate": "goodput", "output_tokens_per_s": "tokens_per_s", "failed_share": "failed"}
COUNTS = ("failed", "completed", "good", "total", "requests", "gpus")


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Judge the pairs by the case's rules, and compare verdict, failing metrics and exit code."""
    options = case.get("options", {})
    sides = [json.loads((case_dir / f"{name}.json").read_text()) for name in ("baseline", "candidate")]
    samples = [[_sample(side, figures) for figures in side["runs"]] for side in sides]
    pairs: list[Pair] = list(zip(*samples, strict=False))[: options.get("pairs")]
    rules = parse_rules(list(options.get("rules") or _rules(samples)))
    open_means = options.get("on_inconclusive", "fail")
    report = decide(Plan(rules=rules, looks=[max(len(pairs), 2)], on_inconclusive=open_means), pairs, [])
    for key, value in expected.items():
        if key not in COMMENTS:
            got = _figure(key, report, sides)
            wanted = sorted(value) if isinstance(value, list) else value
            assert wanted == got, f"{key}: expected {wanted!r}, got {got!r} ({report.sentence})"


def _rules(samples: list[list[Sample]]) -> list[str]:
    """The default rules on what both sides measured."""
    known = {key for side in samples for sample in side for key in sample.values}
    return [text for text in DEFAULT_RULES if text.split()[0] in known]


def _figure(key: str, report: GateReport, sides: list[dict[str, Any]]) -> Any:
    match key:
        case "verdict":
            return (
                WORDS.get(report.invalid[0].code, report.verdict.lower()) if report.invalid else report.verdict.lower()
            )
        case "exit_code_nonzero":
            return exit_code(report) != ExitCode.OK
        case "exit_code":
            return exit_code(report)
        case "failing" | "passing" | "inconclusive":
            verdict = {"failing": "FAIL", "passing": "PASS", "inconclusive": "INCONCLUSIVE"}[key]
            found = {result.metric for result in report.rules if result.verdict == verdict and not result.warn}
            return sorted(_case_name(metric, sides) for metric in found)
        case "reason" | "reasons":
            codes = [reason.code for reason in report.invalid]
            return codes[0] if key == "reason" else sorted(codes)
        case "missing":
            return sorted({reason.message.split()[0] for reason in report.invalid if reason.code == "metric_missing"})
    raise AssertionError(f"this kind does not know the figure {key!r}")


def _case_name(metric: str, sides: list[dict[str, Any]]) -> str:
    """The case's own name of a metric."""
    names = {name for side in sides for figures in side["runs"] for name in figures}
    return next((name for name in sorted(names) if _metric(name) == metric), metric)


def _metric(name: str) -> str | None:
    """`ttft_p99_ms` -> `ttft.p99`; None for what is no metric."""
    if name in NAMES or name in METRICS:
        return NAMES.get(name, name)
    match = re.fullmatch(r"([a-z0-9_]+?)_(mean|p50|p90|p99|max)(?:_(?:ms|s))?", name)
    return f"{match[1]}.{match[2]}" if match and match[1] in METRICS else None


def _sample(side: dict[str, Any], figures: dict[str, Any]) -> Sample:
    failed, completed = figures.get("failed"), figures.get("completed")
    total = figures.get("total", (failed or 0) + completed if completed is not None else None)
    values = {
        metric: value / (1e3 if name.endswith("_ms") else 1.0)
        for name, value in figures.items()
        if value is not None and (metric := _metric(name)) is not None and metric != "failed"
    }
    if failed is not None and total:
        values["failed"] = failed / total if failed >= 1 or isinstance(failed, int) else failed
        if failed == total:  # what never came is infinitely late, and nothing of it was good
            times = {f"{name}.{stat}": math.inf for name, m in METRICS.items() if m.kind == "time" for stat in STATS}
            values = {**times, "attainment": 0.0, "goodput": 0.0, "tokens_per_s": 0.0, **values}
    return Sample(
        values=values,
        requests=int(total or 0),
        failed=int(failed or 0),
        gpus=figures.get("gpus", side.get("gpus")),
        trace=str(figures.get("trace_sha", side.get("trace_sha", ""))),
        slo=json.dumps(figures.get("slo", side.get("slo")), sort_keys=True),
        host=figures.get("host", side.get("host", {})),
        findings=_findings({**side, **figures}),
    )


def _findings(figures: dict[str, Any]) -> list[Finding]:
    """What a case says against a run's soundness."""
    invalid = figures.get("invalid") or (
        [] if figures.get("run_valid", figures.get("trustworthy", True)) else ["unsound"]
    )
    codes = [invalid] if isinstance(invalid, str) else list(invalid)
    return [Finding(code=code, level="invalid", message=code) for code in codes]
