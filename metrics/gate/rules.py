"""What a gate demands, as text: `ttft.p90 rise < 10%`, `attainment drop < 2pp`, `failed < 1%`.

    rule     := METRIC [ "." STAT ] [ direction ] comparison NUMBER [ UNIT ] [ "warn" ]
    direction:= "rise" | "drop"          a change from baseline to candidate, judged over pairs of runs
                (none)                   a requirement on the candidate alone
    METRIC   := a name below; on a ladder with its point: tpot@8, ttft@2048
    UNIT     := %  of a time or a rate when it changes, of a share when it is required
                pp for a change of a share · ms s m for a required time · /s (or nothing) for a required rate

The direction in which a metric gets worse is the metric's, never the user's: `tpot.p90 drop < 5%` is refused.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import Final, Literal, NamedTuple

import msgspec

from metrics.errors import MetricsError

Kind = Literal["time", "rate", "share"]
STATS: Final = ("mean", "p50", "p90", "p99", "max")


class Metric(NamedTuple):
    """What a rule may speak of: its kind, and whether more of it is better."""

    kind: Kind
    more_is_better: bool


METRICS: Final[dict[str, Metric]] = {
    "ttft": Metric("time", False),
    "ttft_from_sent": Metric("time", False),
    "tpot": Metric("time", False),
    "itl": Metric("time", False),
    "second_token_gap": Metric("time", False),
    "e2e": Metric("time", False),
    "attainment": Metric("share", True),
    "failed": Metric("share", False),
    "goodput": Metric("rate", True),
    "slo_throughput": Metric("rate", True),
    "completed_per_s": Metric("rate", True),
    "tokens_per_s": Metric("rate", True),
}

DEFAULT_RULES: Final = (
    "attainment drop < 2pp",
    "ttft.p90 rise < 10%",
    "tpot.p90 rise < 5%",
    "tokens_per_s drop < 5%",
    "failed rise < 1pp",
)
GUARD: Final = "failed rise < 1pp"  # latencies are of answers that came through: failing slow ones must not look fast

_RULE = re.compile(
    r"(?P<metric>[a-z_]\w*)(?:@(?P<point>\d+))?(?:\.(?P<stat>\w+))?"
    r"\s*(?P<direction>[a-z]+)?\s*(?P<sign>[<>])=?\s*(?P<number>\d+(?:\.\d*)?|\.\d+)"
    r"\s*(?P<unit>%|pp|ms|s|m|/s)?(?:\s+(?P<warn>warn))?"
)
_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule as parsed; `limit` is a fraction (of change, or of requests), seconds, or a rate per second."""

    text: str
    key: str  # metric, point and statistic, as in a run's values: ttft.p90, tpot@8.p50, failed
    kind: Kind
    change: bool  # judged against the baseline; False: a requirement on the candidate alone
    more_is_better: bool
    limit: float
    warn: bool = False  # printed, never fails the build
    implied: bool = False  # added by the gate, not asked for
    default: bool = False  # of a gate that was given no rules

    @property
    def margin(self) -> float:
        """The limit on the axis on which larger is worse: a log ratio, a difference of shares, or the value."""
        if not self.change:
            return -self.limit if self.more_is_better else self.limit
        if self.kind == "share":
            return self.limit
        return -math.log1p(-self.limit) if self.more_is_better else math.log1p(self.limit)

    def worse_by(self, baseline: float, candidate: float) -> float:
        """How much worse the candidate is, on the axis of `margin`; infinite when a side has no finite time."""
        if not self.change:
            return -candidate if self.more_is_better else candidate
        good, bad = (candidate, baseline) if self.more_is_better else (baseline, candidate)
        return bad - good if self.kind == "share" else _log_ratio(bad, good)

    def shown(self, worse: float) -> float:
        """`worse` as people read it: a signed relative change, a signed difference of shares, or the value."""
        signed = -worse if self.more_is_better else worse
        if not self.change or self.kind == "share":
            return signed
        return math.expm1(signed) if signed < 700 else math.inf


def _log_ratio(above: float, below: float) -> float:
    if above == below:
        return 0.0
    if below <= 0 or math.isinf(above):
        return math.inf
    if above <= 0 or math.isinf(below):
        return -math.inf
    return math.log(above / below)


def parse_rules(texts: list[str] | tuple[str, ...]) -> list[Rule]:
    """The rules in order, and the guard against failures that flatter latencies when no rule speaks of failures."""
    rules = [parse_rule(text) for text in texts]
    doubled = [rule.text for place, rule in enumerate(rules) if rule.text in [r.text for r in rules[:place]]]
    if doubled:
        raise _bad(f"the rule {doubled[0]!r} is given twice")
    if any(rule.key == "failed" and not rule.warn for rule in rules):
        return rules
    return [*rules, msgspec.structs.replace(parse_rule(GUARD), implied=True)]


def parse_rule(text: str) -> Rule:
    """Read one rule; MetricsError `bad_rule` says what is wrong with it and what would be right."""
    match = _RULE.fullmatch(" ".join(text.split()))
    if match is None:
        raise _bad(f"{text!r} is not a rule", "as in 'ttft.p90 rise < 10%', 'attainment drop < 2pp' or 'failed < 1%'")
    name, direction, unit = match["metric"], match["direction"], match["unit"] or ""
    metric = METRICS.get(name)
    if metric is None:
        raise _bad(f"there is no metric {name!r} (rule {text!r})", _nearest(name))
    _check_direction(text, name, metric, direction, match["sign"])
    return Rule(
        text=" ".join(text.split()),
        key=_key(text, name, metric, match["point"], match["stat"]),
        kind=metric.kind,
        change=direction is not None,
        more_is_better=metric.more_is_better,
        limit=_limit(text, metric, direction is not None, float(match["number"]), unit),
        warn=match["warn"] is not None,
    )


def _key(text: str, name: str, metric: Metric, point: str | None, stat: str | None) -> str:
    if metric.kind != "time":
        if stat or point:
            raise _bad(f"{name} is one number per run and has no statistic (rule {text!r})", f"write {name}")
        return name
    if stat not in STATS:
        raise _bad(f"{name} needs a statistic (rule {text!r})", f"one of {', '.join(f'{name}.{s}' for s in STATS)}")
    return f"{name}{f'@{point}' if point else ''}.{stat}"


def _check_direction(text: str, name: str, metric: Metric, direction: str | None, sign: str) -> None:
    worse = "drop" if metric.more_is_better else "rise"
    if direction is None:
        wanted = ">" if metric.more_is_better else "<"
        if sign != wanted:
            raise _bad(f"{name} is better when {'higher' if metric.more_is_better else 'lower'} (rule {text!r})",
                       f"a requirement on it reads {name} {wanted} LIMIT")  # fmt: skip
    elif direction != worse or sign != "<":
        raise _bad(f"{name} gets worse when it {worse}s (rule {text!r})", f"write {name} {worse} < LIMIT")


def _limit(text: str, metric: Metric, change: bool, number: float, unit: str) -> float:
    if change:
        wanted = "pp" if metric.kind == "share" else "%"
        if unit != wanted:
            told = "percentage points (pp)" if wanted == "pp" else "per cent (%)"
            raise _bad(f"a change of this metric is written in {told} (rule {text!r})", f"as in < {number:g}{wanted}")
        if metric.more_is_better and metric.kind == "rate" and number >= 100:
            raise _bad(f"nothing drops by {number:g} % (rule {text!r})")
        return number / 100.0
    if metric.kind == "time" and unit in _SECONDS:
        return number * _SECONDS[unit]
    if metric.kind == "share" and unit == "%" and number <= 100:
        return number / 100.0
    if metric.kind == "rate" and unit in ("", "/s"):
        return number
    wanted = {"time": "ms, s or m", "share": "% (up to 100)", "rate": "/s"}[metric.kind]
    raise _bad(
        f"the limit of a requirement on this metric is written in {wanted} (rule {text!r})",
        "a change from the baseline has drop or rise before the sign, as in 'ttft.p90 rise < 10%'",
    )


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, METRICS, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(METRICS)}"


def _bad(message: str, hint: str = "") -> MetricsError:
    return MetricsError(message, code="bad_rule", hint=hint)
