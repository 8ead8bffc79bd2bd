"""A gate, or runs, as OpenMetrics text, which GitLab shows beside a merge request (`artifacts: reports: metrics`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metrics.gate.report import GateReport
from metrics.summary import Summary
from reports.escape import metric_label

_SCORE = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3, "INVALID": 4}  # the exit codes
_VERDICT = {"valid": 0, "warning": 1, "invalid": 2}


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


def render_runs(runs: Sequence[tuple[str, Summary]]) -> str:
    """Gauges of labelled runs: latencies in seconds by quantile, shares, rates per second; ends with `# EOF`."""
    lines: list[str] = []
    for key in ("ttft_s", "ttft_from_sent_s", "tpot_s", "itl_s", "second_token_gap_s", "e2e_s"):
        stats = [(label, getattr(summary, key)) for label, summary in runs]
        quantiles = {"0.5": "p50", "0.9": "p90", "0.99": "p99", "1": "max"}
        found = [
            (_labels(run=label, quantile=quantile), getattr(stat, field))
            for label, stat in stats
            if stat is not None
            for quantile, field in quantiles.items()
        ]
        name = f"{key.removesuffix('_s')}_seconds"
        lines += _samples(name, f"{key.removesuffix('_s')} of answered requests", found, "run")
    for key in ("offered_per_s", "completed_per_s", "slo_throughput_per_s", "output_tokens_per_s", "peak_tokens_per_s"):
        rates = [(_labels(run=label), value) for label, s in runs if (value := getattr(s.rates, key)) is not None]
        lines += _samples(key, key.replace("_", " ").replace(" per s", " per second"), rates, "run")
    shares = [
        (_labels(run=label), s.attainment.share)
        for label, s in runs
        if s.attainment is not None and s.attainment.share is not None
    ]
    lines += _samples("attainment", "good requests of all planned ones", shares, "run")
    outcomes = [
        (_labels(run=label, outcome=outcome), float(number))
        for label, s in runs
        for outcome, number in sorted(s.requests.by_outcome.items())
    ]
    lines += _samples("requests", "planned requests by outcome", outcomes, "run")
    valid = [(_labels(run=label), float(_VERDICT[s.validity.verdict])) for label, s in runs]
    lines += _samples("validity", "0 valid, 1 warning, 2 invalid", valid, "run")
    return "\n".join([*lines, "# EOF", ""])


def _samples(name: str, purpose: str, found: Iterable[tuple[str, float]], of: str = "gate") -> list[str]:
    full = f"goodput_{of}_{name}"
    lines = [f"{full}{labels} {value:.9g}" for labels, value in found]
    return [f"# TYPE {full} gauge", f"# HELP {full} {purpose}", *lines] if lines else []


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{metric_label(value)}"' for name, value in labels.items()) + "}"
