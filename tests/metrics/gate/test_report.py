"""The gate's document, its sentence, and its exit codes."""

from __future__ import annotations

import math

import msgspec
import pytest

from metrics.gate.exits import bisect_code, exit_code
from metrics.gate.report import GateReport, Plan, decide, gate_schema, record_of
from metrics.gate.rules import parse_rules
from metrics.gate.sample import Sample
from metrics.validity import Finding
from tests.metrics.gate.sides import identified, paired

RULES = parse_rules(["ttft.p90 rise < 10%"])


def report(ratios: list[float], on_inconclusive: str = "fail", **facts: object) -> GateReport:
    pairs = paired(
        {"ttft_p90": [1.0] * len(ratios), "failed": [0.0] * len(ratios)},
        {"ttft_p90": ratios, "failed": [0.0] * len(ratios)},
    )
    pairs = [(a, identified(b, **facts)) for a, b in pairs]
    plan = Plan(rules=RULES, looks=[3], on_inconclusive=on_inconclusive)  # type: ignore[arg-type]
    records = [record_of(pair, n, "AB", RULES) for n, pair in enumerate(pairs, 1)]
    return decide(plan, pairs, records)


@pytest.mark.parametrize(
    ("ratios", "mode", "verdict", "exit_", "bisect"),
    [
        ([1.0, 1.01, 0.99], "fail", "PASS", 0, 0),
        ([1.3, 1.31, 1.29], "fail", "FAIL", 1, 1),
        ([1.0, 1.2, 1.1], "fail", "INCONCLUSIVE", 3, 125),
        ([1.0, 1.2, 1.1], "warn", "INCONCLUSIVE", 0, 125),
        ([1.0, 1.2, 1.1], "pass", "INCONCLUSIVE", 0, 125),
    ],
)
def test_exit_codes(ratios: list[float], mode: str, verdict: str, exit_: int, bisect: int) -> None:
    """0, 1, 3; what an open gate means is the user's choice; bisect skips it."""
    found = report(ratios, mode)
    assert (verdict, exit_, bisect) == (found.verdict, exit_code(found), bisect_code(found))


def test_invalid_comes_before_any_verdict() -> None:
    """Exit 4, 125 for bisect, also when a rule would fail and even when the build may stay open."""
    bad = [Finding(code="worker_lost", level="invalid", message="Requests were lost.")]
    found = report([1.3, 1.31, 1.29], "pass", findings=bad)
    assert ("INVALID", 4, 125) == (found.verdict, exit_code(found), bisect_code(found))
    assert "Requests were lost." in found.sentence


def test_no_pair_is_invalid() -> None:
    """Nothing was measured: never a pass."""
    found = decide(Plan(rules=RULES, looks=[3]), [], [])
    assert ("INVALID", "no_runs") == (found.verdict, found.invalid[0].code)


def test_the_sentence_names_the_rule() -> None:
    """What failed, or what is open."""
    assert "ttft.p90 rise < 10%" in report([1.3, 1.31, 1.29]).sentence
    assert "ttft.p90 rise < 10%" in report([1.0, 1.2, 1.1]).sentence


def test_an_open_gate_says_what_would_decide() -> None:
    """How many pairs, or how wide a margin."""
    (advice,) = report([1.0, 1.2, 1.1]).advice
    assert "pairs" in advice
    assert "margin" in advice


def test_warnings_are_said_once_a_side() -> None:
    """A finding of every run is one line."""
    found = report([1.0, 1.01, 0.99], findings=[Finding(code="failures", level="warning", message="3 failed.")])
    assert ["candidate: 3 failed."] == found.warnings


def test_the_document_is_strict_json_and_fits_its_schema() -> None:
    """Infinities are null; what is written can be read back."""
    found = report([math.inf] * 3)
    text = msgspec.json.encode(found)
    assert b"Infinity" not in text
    assert b"NaN" not in text
    assert found == msgspec.json.decode(text, type=GateReport)
    assert "goodput.gate/1" == found.schema
    assert {"verdict", "rules", "cost"} <= gate_schema()["$defs"]["GateReport"]["properties"].keys()


def test_the_guard_is_left_out_where_failures_are_not_counted() -> None:
    """A search's value is its goodput alone."""
    rules = parse_rules(["goodput drop < 5%"])
    side = [Sample(values={"goodput": 4.0})] * 3
    found = decide(Plan(rules=rules, looks=[3]), list(zip(side, side, strict=True)), [])
    assert (["goodput"], "PASS") == ([r.metric for r in found.rules], found.verdict)
