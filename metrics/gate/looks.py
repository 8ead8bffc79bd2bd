"""The verdict on each rule after 3, 5, 8 and 12 pairs of runs.

The unit is the pair. Each look spends an equal part of 5 % in either direction, so that looking several times is no
way to an answer. FAIL when the whole interval is worse than the margin, PASS when the whole interval is better,
INCONCLUSIVE otherwise. A rule that passed stays passed unless later pairs make it fail; a failure is final.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np

from metrics.gate.comparable import Pair
from metrics.gate.rules import Kind, Rule
from metrics.gate.sample import per_gpu
from metrics.intervals import Interval, holm, p_above_zero, share_interval, t_interval

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]
Unit = Literal["relative", "difference", "value"]

LOOKS: Final = (3, 5, 8, 12)
ALPHA: Final = 0.05
FEWEST_PAIRS: Final = 3


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    """A rule and its verdict.

    `effect`, `low`, `high` and `margin` share a unit: `relative` change (0.1 is a rise of 10 %), `difference` of
    shares, or the required `value` itself. The interval is that of the look that decided, after `pairs` pairs.
    `p_value` is one-sided, of "worse than the baseline"; `p_holm` the same adjusted for the number of rules.
    """

    rule: str
    metric: str
    kind: Kind
    unit: Unit
    verdict: Verdict
    warn: bool
    implied: bool
    baseline: float | None  # mean over the pairs used
    candidate: float | None
    effect: float | None
    low: float | None  # null: not bounded
    high: float | None
    margin: float
    more_is_better: bool
    pairs: int
    sigma: float | None  # standard deviation of one pair's effect, on the log scale for times and rates
    p_value: float | None
    p_holm: float | None = None
    interval: Literal["pairs", "noise_floor", "within_run", "none"] = "pairs"
    note: str = ""


def evaluate(rules: Sequence[Rule], pairs: Sequence[Pair], looks: Sequence[int]) -> list[RuleResult]:
    """Every rule after the pairs there are, looked at where the plan says."""
    results = [_over_looks(rule, pairs, looks) for rule in rules]
    adjusted = holm([result.p_value if rule.change else None for rule, result in zip(rules, results, strict=True)])
    return [msgspec.structs.replace(result, p_holm=p) for result, p in zip(results, adjusted, strict=True)]


def overall(results: Sequence[RuleResult]) -> Verdict:
    """The gate's verdict: the worst of the rules that may fail the build."""
    verdicts = {result.verdict for result in results if not result.warn}
    return next((verdict for verdict in ("INVALID", "FAIL", "INCONCLUSIVE") if verdict in verdicts), "PASS")


def decided(results: Sequence[RuleResult]) -> bool:
    """Whether more pairs would change nothing: something failed, or everything that counts passed."""
    return overall(results) != "INCONCLUSIVE"


def _over_looks(rule: Rule, pairs: Sequence[Pair], looks: Sequence[int]) -> RuleResult:
    alpha = ALPHA / len(looks)
    result: RuleResult | None = None
    for look in [look for look in looks if look <= len(pairs)]:
        now = _look(rule, pairs[:look], alpha)
        if now.verdict == "FAIL":
            return now
        if result is None or result.verdict != "PASS":
            result = now
    if result is not None:
        return result
    few = f"{len(pairs)} of {looks[0]} pairs" if pairs else "no pair was measured"
    return msgspec.structs.replace(_look(rule, pairs, alpha), verdict="INCONCLUSIVE", note=few)


def _look(rule: Rule, pairs: Sequence[Pair], alpha: float) -> RuleResult:
    measured = [(a, b) for a, b in pairs if rule.key in b.values and (not rule.change or rule.key in a.values)]
    both = [_values(rule, pair) for pair in measured]
    worse = [rule.worse_by(*values) for values in both]
    interval = t_interval(worse, alpha) if worse else Interval(-math.inf, math.nan, math.inf)
    if rule.kind == "share" and not rule.change:
        interval = _widened(rule, interval, measured, alpha)
    return result_of(
        rule,
        interval,
        baseline=_mean([a for a, _ in both]) if rule.change else None,
        candidate=_mean([b for _, b in both]),
        pairs=len(pairs),
        sigma=float(np.std(worse, ddof=1)) if len(worse) > 1 and np.isfinite(worse).all() else None,
        p_value=p_above_zero(worse) if rule.change else None,
        verdict=None if len(measured) == len(pairs) else "INCONCLUSIVE",
        note="" if len(measured) == len(pairs) else f"measured in {len(measured)} of {len(pairs)} pairs",
    )


def result_of(
    rule: Rule,
    interval: Interval,
    *,
    baseline: float | None,
    candidate: float | None,
    pairs: int,
    sigma: float | None = None,
    p_value: float | None = None,
    kind: Literal["pairs", "noise_floor", "within_run", "none"] = "pairs",
    verdict: Verdict | None = None,
    note: str = "",
) -> RuleResult:
    """The result of a rule whose effect lies in `interval` (on the axis where larger is worse)."""
    low, high = (_end(rule, end, interval.estimate) for end in (interval.low, interval.high))
    if rule.more_is_better:
        low, high = high, low
    return RuleResult(
        rule=rule.text,
        metric=rule.key,
        kind=rule.kind,
        unit="value" if not rule.change else "difference" if rule.kind == "share" else "relative",
        verdict=verdict or judge(interval, rule.margin),
        warn=rule.warn,
        implied=rule.implied,
        baseline=baseline,
        candidate=candidate,
        effect=finite(rule.shown(interval.estimate)),
        low=low,
        high=high,
        margin=rule.shown(rule.margin),
        more_is_better=rule.more_is_better,
        pairs=pairs,
        sigma=sigma,
        p_value=p_value,
        interval=kind,
        note=note,
    )


def judge(interval: Interval, margin: float) -> Verdict:
    """FAIL when all of it is worse than the margin, PASS when all of it is better, else INCONCLUSIVE."""
    slack = 1e-12 * max(1.0, abs(margin))
    if interval.low > margin + slack:
        return "FAIL"
    return "PASS" if interval.high < margin - slack or interval.high == interval.low == margin else "INCONCLUSIVE"


def finite(value: float) -> float | None:
    """The value, None when it is unbounded or unknown."""
    return value + 0.0 if math.isfinite(value) else None  # + 0.0: never a minus before nothing


def _end(rule: Rule, worse: float, estimate: float) -> float | None:
    """An end of an interval as people read it; None where the data do not bound it."""
    return None if math.isinf(worse) and not math.isinf(estimate) else finite(rule.shown(worse))


def _values(rule: Rule, pair: Pair) -> tuple[float, float]:
    baseline, candidate = pair
    a, b = baseline.values.get(rule.key, math.nan), candidate.values[rule.key]
    if rule.kind == "rate" and per_gpu(baseline, candidate):
        return a / float(baseline.gpus or 1), b / float(candidate.gpus or 1)
    return a, b


def _widened(rule: Rule, interval: Interval, pairs: Sequence[Pair], alpha: float) -> Interval:
    """Not narrower than the counts allow: no failure among 90 requests does not show a share below 1 %."""
    samples = [candidate for _, candidate in pairs]
    whole = sum(sample.requests for sample in samples)
    if not whole:
        return interval
    share = share_interval(interval.estimate * (-whole if rule.more_is_better else whole), whole, alpha)
    low, high = (-share.high, -share.low) if rule.more_is_better else (share.low, share.high)
    return Interval(min(low, interval.low), interval.estimate, max(high, interval.high))


def _mean(values: Sequence[float]) -> float | None:
    return finite(float(np.mean(values))) if values else None
