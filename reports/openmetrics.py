"""A gate as OpenMetrics text, which GitLab shows beside a merge request (`artifacts: reports: metrics`)."""

from __future__ import annotations

from collections.abc import Iterable

from metrics.gate.report import GateReport

_SCORE = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3, "INVALID": 4}  # the exit codes


def render_openmetrics(report: GateReport) -> str:
    """Gauges per rule and for the whole gate; ends with `# EOF`."""
    lines: list[str] = []
    values = {
        _labels(metric=result.metric, side=side): value
        for result in report.rules
        for side in ("baseline", "candidate")
        if (value := getattr(result, side)) is not None
    }
    lines += _samples("value", "value of each rule's metric: seconds, shares or per second", values.items())
    for name in ("effect", "low", "high", "margin"):
        found = [(_labels(rule=r.rule, metric=r.metric), getattr(r, name)) for r in report.rules]
        known = [(labels, value) for labels, value in found if value is not None]
        lines += _samples(name, f"{name} of the change, or of the required value", known)
    verdicts = [(_labels(rule=r.rule), float(_SCORE[r.verdict])) for r in report.rules]
    lines += _samples("rule_verdict", "0 pass, 1 fail, 3 inconclusive", verdicts)
    lines += _samples("verdict", "0 pass, 1 fail, 3 inconclusive, 4 invalid", [("", float(_SCORE[report.verdict]))])
    lines += _samples("pairs", "pairs of runs behind the verdict", [("", float(len(report.pairs)))])
    lines += _samples("server_minutes", "minutes a server was held", [("", report.cost.server_minutes)])
    return "\n".join([*lines, "# EOF", ""])


def _samples(name: str, purpose: str, found: Iterable[tuple[str, float]]) -> list[str]:
    full = f"goodput_gate_{name}"
    lines = [f"{full}{labels} {value:.9g}" for labels, value in found]
    return [f"# TYPE {full} gauge", f"# HELP {full} {purpose}", *lines] if lines else []


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
