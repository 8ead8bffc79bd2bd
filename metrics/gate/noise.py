"""The noise floor: how far two runs of one and the same build lie apart, and which margins that can carry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from metrics.gate.comparable import Pair
from metrics.gate.looks import ALPHA, LOOKS, RuleResult, finite, result_of
from metrics.gate.rules import Rule
from metrics.gate.sample import Sample
from metrics.intervals import Interval, t_quantile
from metrics.runinfo import Scalar

SCHEMA: Final = "goodput.noise/1"
POWER: Final = 0.8
NEEDED_MARGIN: Final = 2.0  # times sigma: below, one A/A comparison in three is red at 0.7 and most are at 1
MOST_PAIRS: Final = 200


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """One metric: `sigma` is that of a pair's effect around 0 (log ratio, or difference of shares)."""

    metric: str
    sigma: float
    detectable: dict[str, float]  # smallest change found with 80 % power, by number of pairs


class NoiseFloor(msgspec.Struct, frozen=True, kw_only=True):
    """A/A pairs of one build, and what they were measured with."""

    schema: str = SCHEMA
    pairs: int
    noise: list[Noise]
    deployment: str = ""
    trace: str = ""
    recipe: str = ""
    slo: str = ""
    host: dict[str, Scalar] = {}
    server_minutes: float = 0.0
    created_at: str = ""

    def sigma(self, key: str) -> float | None:
        """Of the metric with this key; None when it was not measured."""
        return next((noise.sigma for noise in self.noise if noise.metric == key), None)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A margin that the noise cannot carry, and what would do."""

    rule: str
    margin: float  # as written: a fraction
    sigma: float
    margin_needed: float
    pairs_needed: int | None  # for 80 % of equal builds to pass; None when more than 200 would not do
    longer_runs: float  # or runs this many times as long


def noise_floor(pairs: Sequence[Pair], rules: Sequence[Rule], **about: object) -> NoiseFloor:
    """Sigma of each rule's metric over A/A pairs: around 0, which is what an A/A effect is."""
    noise = []
    for rule in rules:
        effects = [
            rule.worse_by(a.values[rule.key], b.values[rule.key])
            for a, b in pairs
            if rule.key in a.values and rule.key in b.values
        ]
        if rule.change and effects and np.isfinite(effects).all():
            sigma = float(np.sqrt(np.mean(np.square(effects))))
            found = {str(look): detectable(sigma, look, ALPHA / len(LOOKS)) for look in LOOKS}
            noise.append(Noise(metric=rule.key, sigma=sigma, detectable=found))
    first = pairs[0][0] if pairs else Sample()
    floor = NoiseFloor(
        pairs=len(pairs),
        noise=noise,
        deployment=first.deployment,
        trace=first.trace,
        recipe=first.recipe,
        slo=first.slo,
        host=first.host,
    )
    return msgspec.structs.replace(floor, **about)


def detectable(sigma: float, pairs: int, alpha: float, power: float = POWER) -> float:
    """Smallest effect that `pairs` pairs find with this power: (t[1-alpha,k-1] + t[power,k-1]) sigma / sqrt(k)."""
    reach = t_quantile(alpha, pairs - 1) + t_quantile(1.0 - power, pairs - 1)
    return reach * sigma / math.sqrt(pairs)


def refusals(rules: Sequence[Rule], floor: NoiseFloor) -> list[Refusal]:
    """The margins below 2 sigma: a build that changed nothing would too often be red."""
    found = []
    for rule in rules:
        sigma = floor.sigma(rule.key)
        if rule.change and not rule.warn and not rule.implied and sigma and rule.margin < NEEDED_MARGIN * sigma:
            found.append(
                Refusal(
                    rule=rule.text,
                    margin=rule.limit,
                    sigma=sigma,
                    margin_needed=abs(rule.shown(NEEDED_MARGIN * sigma)),
                    pairs_needed=pairs_needed(rule.margin, sigma),
                    longer_runs=(NEEDED_MARGIN * sigma / rule.margin) ** 2,
                )
            )
    return found


def pairs_needed(margin: float, sigma: float, alpha: float = ALPHA) -> int | None:
    """Pairs in one look after which a build without a change passes with 80 % power; None above 200."""
    fitting = (pairs for pairs in range(3, MOST_PAIRS + 1) if detectable(sigma, pairs, alpha) <= margin)
    return next(fitting, None)


def matches(floor: NoiseFloor, sample: Sample) -> bool:
    """Whether the floor was measured with this schedule, SLO and machine; what neither knows counts for nothing."""
    told = ((floor.recipe, sample.recipe), (floor.slo, sample.slo))
    same = all(not one or not other or one == other for one, other in told)
    return same and all(sample.host[key] == value for key, value in floor.host.items() if key in sample.host)


def evaluate_one_pair(rules: Sequence[Rule], pair: Pair, floor: NoiseFloor | None) -> list[RuleResult]:
    """Quick mode: one run per side against the stored spread, interval = effect +- t[0.95, K] sigma_pair."""
    usable = floor if floor is not None and matches(floor, pair[0]) else None
    why = "no noise floor is stored" if floor is None else "the stored noise floor is of another set-up"
    return [_one_pair(rule, pair, usable, why) for rule in rules]


def _one_pair(rule: Rule, pair: Pair, floor: NoiseFloor | None, why: str) -> RuleResult:
    a, b = (sample.values.get(rule.key) for sample in pair)
    if b is None or (rule.change and a is None):
        nothing = Interval(-math.inf, math.nan, math.inf)
        return result_of(rule, nothing, baseline=a, candidate=b, pairs=1, kind="none", note="not measured")
    effect = rule.worse_by(math.nan if a is None else a, b)
    sigma = floor.sigma(rule.key) if floor is not None and rule.change else None
    known = sigma is not None and floor is not None
    reach = t_quantile(ALPHA, floor.pairs) * sigma if floor is not None and sigma is not None else math.inf
    return result_of(
        rule,
        Interval(effect - reach, effect, effect + reach),
        baseline=finite(a) if rule.change and a is not None else None,
        candidate=finite(b),
        pairs=1,
        sigma=sigma,
        kind="noise_floor" if known else "none",
        note="" if known else why if rule.change else "one run says nothing about the next one",
    )
