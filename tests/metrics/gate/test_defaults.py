"""Default rules: those that a workload can measure."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from metrics.gate.defaults import default_rules, judged_rules
from metrics.gate.report import Plan, decide
from metrics.gate.rules import DEFAULT_RULES, parse_rule
from metrics.gate.sample import Sample

TPOT = "tpot.p90 rise < 5%"
WITHOUT_TPOT = [rule for rule in DEFAULT_RULES if rule != TPOT]


@pytest.mark.parametrize(
    ("ones", "longer", "why"),
    [
        (0, 3, ""),  # all of the few
        (200, 10, ""),
        (200, 0, "none of 200 requests asks for two tokens or more"),
        (200, 9, "only 9 of 209 requests ask for two tokens or more"),
        (3, 3, "only 3 of 6 requests ask for two tokens or more"),
    ],
)
def test_time_per_output_token_needs_a_second_token(ones: int, longer: int, why: str) -> None:
    """At least ten requests of a run must ask for one, or all of fewer."""
    rules, left_out = default_rules(np.array([1] * ones + [50] * longer), slo=True)
    assert [(TPOT, why)] * bool(why) == [(rule.rule, rule.why) for rule in left_out]
    assert (WITHOUT_TPOT if why else list(DEFAULT_RULES)) == [rule.text for rule in rules]


def test_attainment_needs_an_slo() -> None:
    """Which is said, not passed over."""
    rules, left_out = default_rules(None, slo=False)
    assert "attainment drop < 2pp" not in [rule.text for rule in rules]
    assert ["attainment drop < 2pp"] == [rule.rule for rule in left_out]
    assert all(rule.default for rule in rules)


def sample(**values: float) -> Sample:
    return Sample(values={key.replace("_p90", ".p90"): value for key, value in values.items()})


def judged(rule: str, *pairs: tuple[Sample, Sample], default: bool = True) -> tuple[str, list[str]]:
    rules = [msgspec.structs.replace(parse_rule(text), default=default) for text in (rule, "failed rise < 1pp")]
    report = decide(Plan(rules=rules, looks=[3]), pairs, [])
    return report.verdict, [found.rule for found in report.left_out]


BOTH = sample(ttft_p90=1.0, failed=0.0)
BLIND = sample(failed=0.0)


@pytest.mark.parametrize("rule", [TPOT, "ttft.p90 rise < 10%"])
def test_a_default_that_no_run_could_measure_is_left_out(rule: str) -> None:
    """A guard model that stops after one token, answers in one piece: the evidence decides what the plan could not
    know."""
    assert ("PASS", [rule]) == judged(rule, *[(BLIND, BLIND)] * 3)


@pytest.mark.parametrize("pair", [(BOTH, BLIND), (BLIND, BOTH)])
def test_a_default_measured_on_one_side_is_not(pair: tuple[Sample, Sample]) -> None:
    """A candidate that no longer streams must not pass."""
    assert ("INVALID", []) == judged("ttft.p90 rise < 10%", *[pair] * 3)


def test_a_rule_of_the_users_is_never_left_out() -> None:
    """It cannot be judged, and that is said."""
    assert ("INVALID", []) == judged(TPOT, *[(BOTH, BOTH)] * 3, default=False)


def test_no_pair_leaves_nothing_out() -> None:
    """Without evidence there is no evidence against a rule."""
    rules = [msgspec.structs.replace(parse_rule(TPOT), default=True)]
    assert (rules, []) == judged_rules(rules, [])
