"""A gate's numbers in words: values, effects, intervals and margins in the units people use."""

from __future__ import annotations

from metrics.gate.looks import RuleResult
from metrics.gate.report import GateReport
from metrics.names import shared_options, short_names
from reports.numbers import NOTHING, change, digits, joined, percent, plural, rate, seconds

WORDS = {"PASS": "pass", "FAIL": "fail", "INCONCLUSIVE": "undecided", "INVALID": "invalid"}
SIGNS = {"PASS": "✓", "FAIL": "✗", "INCONCLUSIVE": "?", "INVALID": "✗"}


def value(result: RuleResult, number: float | None) -> str:
    """A value of the rule's metric."""
    if number is None:
        return NOTHING
    if result.kind == "time":
        return seconds(number)
    return percent(number) if result.kind == "share" else rate(number)


def effect(result: RuleResult) -> str:
    """The change, signed; nothing for a requirement, which has none."""
    return NOTHING if result.unit == "value" else signed(result, result.effect)


def interval(result: RuleResult) -> str:
    """`+1.2 to +4.8 %`; an open end is said, never printed as infinity."""
    low, high = result.low, result.high
    if result.interval == "none" and low == high and low is not None:
        return NOTHING
    if low is None and high is None:
        return "not known"
    show = value if result.unit == "value" else signed
    if low is None or high is None:
        return f"above {show(result, low)}" if high is None else f"below {show(result, high)}"
    return joined(show(result, low), show(result, high))


def margin(result: RuleResult) -> str:
    """What is allowed, as a sign and a number."""
    if result.unit == "value":
        return f"{'>' if result.more_is_better else '<'} {value(result, result.margin)}"
    return signed(result, result.margin, trim=True)


def signed(result: RuleResult, number: float | None, trim: bool = False) -> str:
    """A change with its sign: per cent of a time or rate, percentage points of a share."""
    return change(number, "pp" if result.unit == "difference" else "%", trim)


def based_on(result: RuleResult) -> str:
    """What the interval rests on."""
    told = {
        "pairs": plural(result.pairs, "pair"),
        "noise_floor": "1 pair, stored noise",
        "within_run": "within one run",
        "none": "one value",
    }
    return told[result.interval]


def cost(report: GateReport) -> str:
    """Server-minutes: what it took, and what was expected."""
    took = f"{digits(report.cost.server_minutes, 2)} server-minutes"
    if not report.cost.server_minutes and report.pairs:
        return "no server time: simulated, or stored runs"
    least, most = report.cost.expected_least, report.cost.expected_most
    if not least or most is None:
        return took
    expected = digits(least, 2) if least == most else f"{digits(least, 2)} to {digits(most, 2)}"
    return f"{took} (expected {expected})"


def sides(report: GateReport) -> str:
    """`baseline A, candidate B`, by what tells them apart, and what they share."""
    both = [report.baseline.label or NOTHING, report.candidate.label or NOTHING]
    baseline, candidate = short_names(both)
    shared = shared_options(both)
    return f"baseline {baseline}, candidate {candidate}{f'; both with {shared}' if shared else ''}"


def decisive(report: GateReport) -> str:
    """The numbers behind the verdict: of the rules that failed or are open, else of the one nearest to its margin."""
    known = [r for r in report.rules if r.effect is not None and not r.warn]
    told = [r for r in known if r.verdict == report.verdict] if report.verdict in ("FAIL", "INCONCLUSIVE") else []
    if not told and report.verdict == "PASS":
        told = sorted(known, key=lambda r: (r.effect or 0.0) / r.margin if r.margin else -1.0)[-1:]
    lead = "Nearest to its margin: " if report.verdict == "PASS" else ""
    each = [f"{r.metric} {effect(r)} ({interval(r)}), allowed {margin(r)}" for r in told]
    return lead + "; ".join(each)


def outcome(report: GateReport) -> str:
    """What an inconclusive gate means for the build, when that is not to stop it."""
    if report.verdict == "INCONCLUSIVE" and not report.red:
        return " It does not stop the build (on_inconclusive)."
    return ""
