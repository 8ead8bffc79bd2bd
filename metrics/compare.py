"""Compare sets of runs of one workload: effect and interval per metric, by run and by request, and what differed.

The first side is the one the others are compared with. Run i of a side pairs with run i of the first, so both must
have replayed the same schedule; another trace is refused, never averaged away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
import numpy as np

from metrics import latency
from metrics.definitions import Definition, by_definition
from metrics.errors import MetricsError
from metrics.gate.comparable import Reason, reasons
from metrics.gate.looks import finite
from metrics.gate.rules import METRICS, STATS, Kind, Rule
from metrics.gate.sample import Sample, per_gpu, sample_of
from metrics.intervals import Interval, block_interval, t_interval
from metrics.latency import counted, is_ok
from metrics.records import Rows
from metrics.rundir import Run
from metrics.slo import SLO
from metrics.standing import verdict
from metrics.summary import Summary, summarise

SCHEMA: Final = "goodput.comparison/1"
CERTAINTY: Final = 0.025  # each way: 95 % intervals
DEFAULT_METRICS: Final = (
    "attainment",
    "failed",
    "ttft.p50",
    "ttft.p90",
    "ttft.p99",
    "tpot.p50",
    "tpot.p90",
    "tpot.p99",
    "itl.p99",
    "itl.max",
    "e2e.p90",
    "completed_per_s",
    "tokens_per_s",
    "slo_throughput",
)
# What is new in every run, or comes out of one: no part of its set-up.
NOT_SET_UP: Final = (
    *("out", "salt", "target", "usd", "wh", "idle_share", "transferred_bytes", "preemptions"),
    *("prefix_cache_hits", "extrapolated_share", "pipeline_bubble_s"),
)
BY_REQUEST: Final = {"ttft": latency.ttft_s, "tpot": latency.tpot_s, "e2e": latency.e2e_s}

Standing = Literal["better", "worse", "cannot_tell"]


@dataclass(frozen=True, eq=False)
class RunSet:
    """One side: a label and its runs in the order in which they pair."""

    label: str
    runs: Sequence[Run]
    slo: SLO | None

    @cached_property
    def summaries(self) -> list[Summary]:
        """The summary of each run."""
        return [summarise(run, self.slo) for run in self.runs]

    @cached_property
    def samples(self) -> list[Sample]:
        """Each run as a gate sees it."""
        return [sample_of(summary) for summary in self.summaries]


class ComparedSide(msgspec.Struct, frozen=True, kw_only=True):
    """A side's means over its runs."""

    label: str
    deployment: str
    gpus: int | None
    runs: int
    verdict: str  # the worst validity verdict of its runs
    values: dict[str, float | None]
    definitions: list[Definition] = []  # its first run as other tools would count it


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one side against the first side.

    `effect`, `low`, `high`: relative change for times and rates, difference for shares. `paired_by` run: the interval
    is over runs; request: the median change of the same request, its interval from inside the runs there are
    (`within_run`) or over runs.
    """

    label: str
    metric: str
    kind: Kind
    paired_by: Literal["run", "request"]
    effect: float | None
    low: float | None
    high: float | None
    pairs: int
    interval: Literal["pairs", "within_run", "none"]
    standing: Standing
    slower_share: float | None = None  # of requests, when paired by request


class Difference(msgspec.Struct, frozen=True):
    """Something in the set-up that was not the same; one value per side."""

    what: str
    values: list[str]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison (`comparison.json`)."""

    schema: str = SCHEMA
    sentence: str
    sides: list[ComparedSide]
    contrasts: list[Contrast]
    differences: list[Difference]
    per_gpu: bool  # rates of all sides are per GPU, since the sides have different numbers of GPUs
    invalid: list[Reason]
    trace: str
    slo: str
    rate_per_s: float | None = None  # offered to the first side, in its first run


def compare(sides: Sequence[RunSet], metrics: Sequence[str] = ()) -> Comparison:
    """Compare every side with the first; `invalid` says why the figures decide nothing, if they do not."""
    if len(sides) < 2 or any(not side.runs for side in sides):
        raise MetricsError("a comparison needs two sides with at least one run each", code="too_few_sides")
    rules = [_axis(key) for key in metrics or _measured(sides)]
    first = sides[0]
    divide = any(per_gpu(first.samples[0], side.samples[0]) for side in sides[1:])
    found: dict[tuple[str, str], Reason] = {}
    contrasts: list[Contrast] = []
    for side in sides[1:]:
        pairs = list(zip(first.samples, side.samples, strict=False))
        for reason in reasons(pairs, []):
            found.setdefault((reason.code, reason.message), reason)
        contrasts += [c for rule in rules if (c := _by_run(side.label, rule, pairs, divide)) is not None]
        contrasts += [c for name in BY_REQUEST if (c := _by_request(first, side, name)) is not None]
    invalid = list(found.values())
    return Comparison(
        sentence=_sentence(sides, contrasts, invalid, divide),
        sides=[_side(side, rules, divide) for side in sides],
        contrasts=contrasts,
        differences=differences(sides),
        per_gpu=divide,
        invalid=invalid,
        trace=first.runs[0].info.trace_name,
        slo="" if first.slo is None else str(first.slo),
        rate_per_s=first.summaries[0].rates.offered_per_s,
    )


def differences(sides: Sequence[RunSet]) -> list[Difference]:
    """Everything in the recorded set-up of the first runs that is not the same on all sides."""
    told = [_setup(side.runs[0]) for side in sides]
    keys = list(dict.fromkeys(key for setup in told for key in setup))
    table = [(key, [setup.get(key, "") for setup in told]) for key in keys]
    return [Difference(key, values) for key, values in table if len(set(values)) > 1]


def comparison_schema() -> dict[str, Any]:
    """The JSON schema of comparison.json."""
    return msgspec.json.schema(Comparison)


def check_metrics(keys: Sequence[str]) -> None:
    """MetricsError for a metric that there is not; before anything is measured."""
    for key in keys:
        _axis(key)


def _axis(key: str) -> Rule:
    """A rule without a limit: it knows the direction and the scale of the metric `key`."""
    name, _, stat = key.partition(".")
    metric = METRICS.get(name)
    if metric is None or (metric.kind == "time") != (stat in STATS):
        known = ", ".join(f"{n}.{{{','.join(STATS)}}}" if m.kind == "time" else n for n, m in METRICS.items())
        raise MetricsError(f"there is no metric {key!r}", hint=f"known are {known}", code="bad_metric")
    return Rule(text=key, key=key, kind=metric.kind, change=True, more_is_better=metric.more_is_better, limit=0.0)


def _measured(sides: Sequence[RunSet]) -> list[str]:
    return [key for key in DEFAULT_METRICS if all(key in sample.values for side in sides for sample in side.samples)]


def _value(sample: Sample, rule: Rule, divide: bool) -> float | None:
    value = sample.values.get(rule.key)
    return value / sample.gpus if divide and rule.kind == "rate" and value is not None and sample.gpus else value


def _by_run(label: str, rule: Rule, pairs: Sequence[tuple[Sample, Sample]], divide: bool) -> Contrast | None:
    both = [(_value(a, rule, divide), _value(b, rule, divide)) for a, b in pairs]
    worse = [rule.worse_by(a, b) for a, b in both if a is not None and b is not None]
    if not worse:
        return None
    interval = t_interval(worse, CERTAINTY)
    return _contrast(label, rule, interval, "run", len(worse), "pairs" if len(worse) > 1 else "none")


def _by_request(first: RunSet, side: RunSet, name: str) -> Contrast | None:
    """The same requests on both sides: the median log ratio of their times."""
    each = [_log_ratios(a, b, name) for a, b in zip(first.runs, side.runs, strict=False)]
    each = [ratios for ratios in each if len(ratios)]
    if not each:
        return None
    rule = _axis(f"{name}.p50")
    slower = float(np.mean(np.concatenate(each) > 0))
    if len(each) == 1:
        rng = np.random.default_rng(first.runs[0].info.seed)
        interval = block_interval(each[0], lambda values: float(np.median(values)), rng, CERTAINTY)
        return _contrast(side.label, rule, interval, "request", 1, "within_run", name, slower)
    interval = t_interval([float(np.median(ratios)) for ratios in each], CERTAINTY)
    return _contrast(side.label, rule, interval, "request", len(each), "pairs", name, slower)


def _log_ratios(first: Run, other: Run, name: str) -> Any:
    """ln(other / first) of each request that came through on both sides, in schedule order."""
    ours, theirs = _ok_rows(first), _ok_rows(other)
    _, at, of = np.intersect1d(ours["request_id"], theirs["request_id"], return_indices=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(BY_REQUEST[name](theirs[of]) / BY_REQUEST[name](ours[at]))
    return ratios[np.isfinite(ratios)]


def _ok_rows(run: Run) -> Rows:
    rows = run.table.rows
    mine: Rows = rows[counted(rows, run.info.stopped_at_s) & is_ok(rows)]
    return mine


def _contrast(
    label: str,
    rule: Rule,
    interval: Interval,
    paired_by: Literal["run", "request"],
    pairs: int,
    kind: Literal["pairs", "within_run", "none"],
    metric: str = "",
    slower: float | None = None,
) -> Contrast:
    ends = sorted((rule.shown(interval.low), rule.shown(interval.high)))
    if rule.kind == "share":  # a t interval of two runs knows no bounds, the difference of two shares does
        ends = [min(max(end, -1.0), 1.0) for end in ends]
    standing: Standing = "worse" if interval.low > 0 else "better" if interval.high < 0 else "cannot_tell"
    return Contrast(
        label=label,
        metric=metric or rule.key,
        kind=rule.kind,
        paired_by=paired_by,
        effect=finite(rule.shown(interval.estimate)),
        low=finite(ends[0]) if kind != "none" else None,
        high=finite(ends[1]) if kind != "none" else None,
        pairs=pairs,
        interval=kind,
        standing=standing,
        slower_share=slower,
    )


def _side(side: RunSet, rules: Sequence[Rule], divide: bool) -> ComparedSide:
    verdicts = [summary.validity.verdict for summary in side.summaries]
    values: dict[str, float | None] = {}
    for rule in rules:
        known = [v for sample in side.samples if (v := _value(sample, rule, divide)) is not None]
        values[rule.key] = finite(math.fsum(known) / len(known)) if known else None
    info = side.runs[0].info
    return ComparedSide(
        label=side.label,
        deployment=info.deployment or info.target_url,
        gpus=info.gpus,
        runs=len(side.runs),
        verdict=max(verdicts, key=("valid", "warning", "invalid").index),
        values=values,
        definitions=by_definition(side.runs[0]),
    )


def _setup(run: Run) -> dict[str, str]:
    """What was asked for and found, flat; the salt is left out, for it is new in every run."""
    info = run.info
    plain = {name: str(getattr(info, name)) for name in ("deployment", "gpus", "model", "endpoint", "workers", "slo")}
    for name in ("config", "versions", "host", "server", "tags"):
        table = getattr(info, name)
        values = {key: getattr(value, "value", value) for key, value in table.items()}
        plain |= {f"{name}.{key}": str(value) for key, value in values.items() if key not in NOT_SET_UP}
    plain["warmup_s"] = f"{info.warmup_s:g}"
    plain["rejected"] = ", ".join(f"{count} {reason}" for reason, count in sorted(info.rejected.items()))
    return plain


def _sentence(sides: Sequence[RunSet], contrasts: Sequence[Contrast], invalid: Sequence[Reason], divide: bool) -> str:
    if invalid:
        return f"The comparison is not valid: {invalid[0].message}"
    told = [verdict(side.label, contrasts, runs=len(side.runs), per_gpu=divide) for side in sides[1:]]
    return f"Against {sides[0].label}: {'; '.join(told)}."
