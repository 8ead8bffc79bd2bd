"""The grammar of rules, and the direction of every metric."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.errors import MetricsError
from metrics.gate.rules import DEFAULT_RULES, GUARD, METRICS, STATS, parse_rule, parse_rules


@pytest.mark.parametrize(
    ("text", "key", "change", "limit"),
    [
        ("attainment drop < 2pp", "attainment", True, 0.02),
        ("ttft.p90 rise < 10%", "ttft.p90", True, 0.10),
        ("tpot.mean rise<0.5 %", "tpot.mean", True, 0.005),
        ("tokens_per_s drop < 5%", "tokens_per_s", True, 0.05),
        ("failed < 1%", "failed", False, 0.01),
        ("attainment > 90%", "attainment", False, 0.90),
        ("attainment >= 90%", "attainment", False, 0.90),
        ("ttft.p99 < 200ms", "ttft.p99", False, 0.2),
        ("e2e.max < 2m", "e2e.max", False, 120.0),
        ("goodput > 4/s", "goodput", False, 4.0),
        ("slo_throughput > 4", "slo_throughput", False, 4.0),
        ("tpot@8.p50 rise < 3%", "tpot@8.p50", True, 0.03),
    ],
)
def test_rules_are_read(text: str, key: str, change: bool, limit: float) -> None:
    """Metric, statistic, direction, limit; seconds and fractions inside."""
    rule = parse_rule(text)
    assert (key, change, False) == (rule.key, rule.change, rule.warn)
    assert limit == pytest.approx(rule.limit)


def test_a_warning_is_marked() -> None:
    """`warn` at the end."""
    assert parse_rule("ttft.p99 rise < 20% warn").warn


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("atainment drop < 2pp", "attainment"),
        ("ttft rise < 10%", "ttft.p90"),
        ("ttft.p95 rise < 10%", "ttft.p90"),
        ("attainment.p90 drop < 2pp", "write attainment"),
        ("tpot.p90 drop < 5%", "write tpot rise"),
        ("goodput rise < 5%", "write goodput drop"),
        ("attainment drop < 2%", "2pp"),
        ("ttft.p90 rise < 5pp", "5%"),
        ("ttft.p90 rise < 20ms", "20%"),
        ("ttft.p90 rise > 5%", "rise < LIMIT"),
        ("attainment < 90%", "attainment > LIMIT"),
        ("failed > 1%", "failed < LIMIT"),
        ("failed < 1", "%"),
        ("attainment > 120%", "up to 100"),
        ("ttft.p90 < 5%", "ms, s or m"),
        ("tokens_per_s drop < 100%", "100 %"),
        ("faster please", "as in"),
        ("", "as in"),
        ("ttft.p90 rise < -5%", "as in"),
        ("ttft.p90 rise < nan%", "as in"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(text: str, says: str) -> None:
    """Message and hint together name what would be right."""
    with pytest.raises(MetricsError) as error:
        parse_rule(text)
    assert "bad_rule" == error.value.code
    assert says in f"{error.value.message} {error.value.hint}"


@given(st.sampled_from(sorted(METRICS)), st.sampled_from(STATS), st.floats(0.1, 50), st.floats(0.1, 10))
def test_worse_is_worse_for_every_metric(name: str, stat: str, percent: float, base: float) -> None:
    """A change beyond the limit in the bad direction is above the margin, the same in the good one below it."""
    metric = METRICS[name]
    key = f"{name}.{stat}" if metric.kind == "time" else name
    unit = "pp" if metric.kind == "share" else "%"
    rule = parse_rule(f"{key} {'drop' if metric.more_is_better else 'rise'} < {percent:.3f}{unit}")
    sign = -1 if metric.more_is_better else 1
    by = rule.limit * 1.2

    def moved(direction: int) -> float:
        return base + direction * by if metric.kind == "share" else base * (1 + direction * by)

    if moved(-1) > 0:
        assert rule.worse_by(base, moved(sign)) > rule.margin > 0 > rule.worse_by(base, moved(-sign))
        shown = moved(sign) - base if metric.kind == "share" else moved(sign) / base - 1
        assert shown == pytest.approx(rule.shown(rule.worse_by(base, moved(sign))))


def test_an_answer_that_never_comes_is_the_worst() -> None:
    """Infinite and zero values are ordered, never an exception or NaN."""
    ttft, tokens = parse_rule("ttft.p90 rise < 10%"), parse_rule("tokens_per_s drop < 5%")
    assert (math.inf, -math.inf) == (ttft.worse_by(0.1, math.inf), ttft.worse_by(math.inf, 0.1))
    assert (math.inf, -math.inf, 0.0) == (tokens.worse_by(9, 0), tokens.worse_by(0, 9), tokens.worse_by(0, 0))


def test_failures_are_always_watched() -> None:
    """Latencies are of answers that came through, so a guard on failures joins rules that have none."""
    assert [False, True] == [rule.implied for rule in parse_rules(["ttft.p90 rise < 10%"])]
    assert GUARD == parse_rules(["ttft.p90 rise < 10%"])[1].text
    assert [False] == [rule.implied for rule in parse_rules(["failed < 1%"])]
    assert not any(rule.implied for rule in parse_rules(list(DEFAULT_RULES)))


def test_a_rule_given_twice_is_a_mistake() -> None:
    """Up to white space."""
    with pytest.raises(MetricsError, match="twice"):
        parse_rules(["failed < 1%", "failed  <  1%"])
