"""A gate as JUnit XML, Markdown, workflow commands and OpenMetrics."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
import xmlschema
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from reports.annotations import render_annotations
from reports.junit import render_junit
from reports.markdown import render_markdown
from reports.openmetrics import render_openmetrics
from tests.reports.gates import gate_report

VERDICTS = ["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]
NASTY = 'a<b>&"|`*_[x](y)\x00\x1b[31m\u2028\ud83d'.encode("utf-8", "replace").decode()


def kinds(text: str) -> list[str]:
    """What each test case of a JUnit document became."""
    cases = Xml.fromstring(text.encode()).iter("testcase")
    return [next((child.tag for child in case if child.tag != "properties"), "passed") for case in cases]


# --- JUnit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fail", "warn"])
@pytest.mark.parametrize("verdict", VERDICTS)
def test_junit_fits_its_schema(verdict: str, mode: str) -> None:
    """The schema of Jenkins' JUnit reader, whatever the verdict and whatever text is in it."""
    schema = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))
    for label in ("emulated:chunked", NASTY):
        schema.validate(render_junit(gate_report(verdict, mode, label)))


@pytest.mark.parametrize(
    ("verdict", "mode", "expected"),
    [
        ("PASS", "fail", ["passed", "passed", "skipped", "passed"]),
        ("FAIL", "fail", ["passed", "failure", "skipped", "passed"]),
        ("INCONCLUSIVE", "fail", ["passed", "failure", "skipped", "passed"]),
        ("INCONCLUSIVE", "warn", ["passed", "skipped", "skipped", "passed"]),
        ("INVALID", "fail", ["error"] * 4),
    ],
)
def test_junit_says_what_each_rule_became(verdict: str, mode: str, expected: list[str]) -> None:
    """A case per rule; what only warns is skipped, an invalid gate is an error in all of them."""
    text = render_junit(gate_report(verdict, mode))
    assert expected == kinds(text)
    suite = Xml.fromstring(text.encode())[0]
    counted = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    names = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    assert {"tests": 4, **{k: expected.count(v) for k, v in names.items()}} == counted


def test_junit_carries_the_numbers() -> None:
    """Baseline, candidate, effect and margin are properties of the case."""
    case = list(Xml.fromstring(render_junit(gate_report("FAIL")).encode()).iter("testcase"))[1]
    properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
    assert "0.1" == properties["margin"]
    assert 0.31 == pytest.approx(float(properties["effect"]), abs=0.005)
    assert "0.205" == properties["baseline"]


# --- Markdown ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", VERDICTS)
def test_markdown_has_a_row_per_rule(verdict: str) -> None:
    """Verdict in the heading, every rule in the table, the cost at the end."""
    text = render_markdown(gate_report(verdict))
    assert verdict in text.splitlines()[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert 4 == len(rows)
    assert {9} == {line.replace("\\|", "").count("|") for line in rows}
    assert "3.3 server-minutes (expected 3.0 to 6.0)" in text


def test_markdown_takes_no_markup_from_elsewhere() -> None:
    """A server's words and a deployment's name stay text."""
    assert "<were>" not in render_markdown(gate_report("INVALID")).replace("\\<were\\>", "")
    assert "\x1b" not in render_markdown(gate_report(label=NASTY))


def test_markdown_is_capped() -> None:
    """GitHub drops a summary above 1 MiB: ours ends before, in whole characters, and says so."""
    text = render_markdown(gate_report(), most_bytes=600)
    assert 600 >= len(text.encode())
    assert text.rstrip().endswith("gate.json)")


# --- workflow commands ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "mode", "expected"),
    [
        ("PASS", "fail", ["::warning"]),
        ("FAIL", "fail", ["::error", "::warning"]),
        ("INCONCLUSIVE", "fail", ["::error", "::warning"]),
        ("INCONCLUSIVE", "pass", ["::warning", "::warning"]),
        ("INVALID", "fail", ["::error"]),
    ],
)
def test_annotations_are_one_line_per_rule_that_did_not_pass(verdict: str, mode: str, expected: list[str]) -> None:
    """Errors for what stops the build, warnings for the rest; % is escaped as GitHub wants it."""
    lines = render_annotations(gate_report(verdict, mode)).splitlines()
    assert expected == [line.split()[0] for line in lines]
    assert all("%" not in line.replace("%25", "").replace("%3A", "").replace("%2C", "") for line in lines)


def test_annotations_of_a_kind_are_ten_at_most() -> None:
    """GitHub shows no more per step."""
    import msgspec

    found = gate_report("FAIL")
    many = msgspec.structs.replace(found, rules=found.rules * 9)
    lines = render_annotations(many).splitlines()
    assert [9, 9] == [sum(line.startswith(kind) for line in lines) for kind in ("::error", "::warning")]
    many = msgspec.structs.replace(found, rules=found.rules * 30)
    assert [10, 10] == [
        sum(line.startswith(kind) for line in render_annotations(many).splitlines())
        for kind in ("::error", "::warning")
    ]


# --- OpenMetrics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", VERDICTS)
def test_openmetrics_can_be_parsed(verdict: str) -> None:
    """By the Prometheus project's own strict parser; it ends with # EOF."""
    text = render_openmetrics(gate_report(verdict, label=NASTY))
    assert text.endswith("# EOF\n")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {"goodput_gate_value", "goodput_gate_effect", "goodput_gate_verdict"} <= families.keys()
    assert (
        float(VERDICTS.index(verdict) + (VERDICTS.index(verdict) > 1))
        == families["goodput_gate_verdict"].samples[0].value
    )


def test_openmetrics_have_both_sides() -> None:
    """A sample per metric and side."""
    found = {
        (s.labels["metric"], s.labels["side"]): s.value
        for family in text_string_to_metric_families(render_openmetrics(gate_report()))
        if family.name == "goodput_gate_value"
        for s in family.samples
    }
    assert 0.205 == pytest.approx(found["ttft.p90", "baseline"])
    assert ("failed", "candidate") in found
