"""A gate as JUnit XML: one test case per rule, its numbers as properties (schema: tests/reports/junit.xsd)."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from metrics.gate.defaults import LeftOut
from metrics.gate.looks import RuleResult
from metrics.gate.report import GateReport
from reports import gate_words as words
from reports.escape import xml


def render_junit(report: GateReport) -> str:
    """The document; FAIL is a failure, INVALID an error of every rule, INCONCLUSIVE what the gate makes of it."""
    suites = Xml.Element("testsuites", name="goodput gate")
    cases = [*(_case(report, result) for result in report.rules), *map(_left_out, report.left_out)]
    kinds = [case[-1].tag for case in cases]
    suite = Xml.SubElement(
        suites,
        "testsuite",
        name="goodput gate",
        tests=str(len(cases)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{report.cost.server_minutes * 60:.3f}",
    )
    if report.created_at:
        suite.set("timestamp", report.created_at.partition("+")[0])
    facts = {
        "verdict": report.verdict,
        "sentence": report.sentence,
        "baseline": report.baseline.deployment,
        "candidate": report.candidate.deployment,
        "pairs": str(len(report.pairs)),
        "slo": report.slo,
        "trace": report.trace,
    }
    _properties(suite, facts)
    suite.extend(cases)
    Xml.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(suites, encoding="unicode") + "\n"


def _case(report: GateReport, result: RuleResult) -> Xml.Element:
    case = Xml.Element("testcase", name=xml(result.rule), classname="goodput.gate", time="0")
    numbers = {
        "metric": result.metric,
        "verdict": result.verdict,
        "pairs": result.pairs,
        **{n: getattr(result, n) for n in ("baseline", "candidate", "effect", "low", "high", "margin")},
        **{n: getattr(result, n) for n in ("p_value", "p_holm")},
    }
    _properties(case, {name: _number(value) for name, value in numbers.items() if value is not None})
    told = _told(result)
    if report.verdict == "INVALID":
        message = "; ".join(f"{reason.code}: {reason.message}" for reason in report.invalid)
        Xml.SubElement(case, "error", type="INVALID", message=xml(message)).text = xml(message)
    elif result.warn and result.verdict != "PASS":
        Xml.SubElement(case, "skipped", message=xml(f"only a warning: {told}"))
    elif result.verdict == "FAIL":
        Xml.SubElement(case, "failure", type="FAIL", message=xml(told)).text = xml(told)
    elif result.verdict == "INCONCLUSIVE":
        stops = report.on_inconclusive == "fail" and report.verdict == "INCONCLUSIVE"
        if stops:
            Xml.SubElement(case, "failure", type="INCONCLUSIVE", message=xml(told)).text = xml(told)
        else:
            Xml.SubElement(case, "skipped", message=xml(told))
    return case


def _left_out(rule: LeftOut) -> Xml.Element:
    case = Xml.Element("testcase", name=xml(rule.rule), classname="goodput.gate", time="0")
    Xml.SubElement(case, "skipped", message=xml(f"left out: {rule.why}"))
    return case


def _told(result: RuleResult) -> str:
    effect = "" if result.unit == "value" else f"effect {words.effect(result)}, "
    return (
        f"{result.metric} {words.value(result, result.candidate)}: {effect}interval {words.interval(result)}, "
        f"margin {words.margin(result)} ({words.based_on(result)})"
    )


def _properties(parent: Xml.Element, values: dict[str, str]) -> None:
    properties = Xml.SubElement(parent, "properties")
    for name, value in values.items():
        Xml.SubElement(properties, "property", name=name, value=xml(value))


def _number(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
