"""Requirements on one run alone (`goodput run --require`), judged with the interval from inside that run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metrics import latency
from metrics.errors import MetricsError
from metrics.gate.looks import RuleResult, result_of
from metrics.gate.rules import Rule, parse_rule
from metrics.gate.sample import Sample
from metrics.intervals import Floats, Interval, block_interval, effective_sample_size, share_interval
from metrics.judge import judge_rows
from metrics.latency import counted, select
from metrics.records import Rows
from metrics.rundir import Run
from metrics.slo import QUANTITIES, SLO, attain
from metrics.stats import defined

_PER_ROW = {**QUANTITIES, "ttft_from_sent": latency.ttft_from_sent_s}
_PERCENT = {"p50": 50.0, "p90": 90.0, "p99": 99.0}


def parse_requirements(texts: Sequence[str], slo: SLO | None) -> list[Rule]:
    """Absolute rules; MetricsError for a change (there is no baseline) or for attainment without an SLO."""
    rules = [parse_rule(text) for text in texts]
    for rule in rules:
        if rule.change or "@" in rule.key or rule.key == "goodput":
            raise MetricsError(
                f"one run cannot decide {rule.text!r}",
                hint="require a value of the run, as in 'attainment > 90%'; goodput gate judges changes",
                code="bad_rule",
            )
        if rule.key in ("attainment", "slo_throughput") and slo is None:
            raise MetricsError(f"{rule.text!r} needs an SLO", hint="give --slo", code="bad_rule")
    return rules


def require(run: Run, sample: Sample, slo: SLO | None, rules: Sequence[Rule]) -> list[RuleResult]:
    """Judge one run; its interval speaks of this run's traffic only and is labelled `within_run`.

    A rate and an extreme have no such interval: the value itself decides.
    """
    return [_required(run, sample, slo, rule) for rule in rules]


def _required(run: Run, sample: Sample, slo: SLO | None, rule: Rule) -> RuleResult:
    value = sample.values.get(rule.key)
    if value is None:
        nothing = Interval(-math.inf, math.nan, math.inf)
        return result_of(rule, nothing, baseline=None, candidate=None, pairs=1, kind="none", note="not measured")
    interval = _within_run(run, slo, rule) if math.isfinite(value) else None
    known = interval or Interval(value, value, value)
    worse = Interval(-known.high, -known.estimate, -known.low) if rule.more_is_better else known
    return result_of(
        rule, worse, baseline=None, candidate=value, pairs=1, kind="none" if interval is None else "within_run"
    )


def _within_run(run: Run, slo: SLO | None, rule: Rule) -> Interval | None:
    rows = select(run.table.rows, counted(run.table.rows, run.info.stopped_at_s))
    if rule.key == "attainment" and slo is not None:
        return _attainment(run, rows, slo)
    if rule.key == "failed":
        return _share(latency.failed_by_server(rows))
    name, _, statistic = rule.key.partition(".")
    if name not in _PER_ROW or statistic == "max":
        return None
    # The run's own seed: the same run always gets the same verdict.
    rng = np.random.default_rng(run.info.seed)
    return block_interval(defined(_PER_ROW[name](rows)), lambda values: _statistic(values, statistic), rng)


def _attainment(run: Run, rows: Rows, slo: SLO) -> Interval:
    """As wide as it may have been with all undecided requests good, or none, where they are more than a few."""
    judged = judge_rows(rows, slo.limits)
    found, bounds = _share(judged.good[judged.decided]), attain(run.table, slo, run.info.stopped_at_s).bounds
    low, high = bounds or (1.0, 0.0)
    return Interval(min(found.low, low), found.estimate, max(found.high, high))


def _share(mask: latency.Mask) -> Interval:
    """Wilson's interval of what the requests are worth together: those of one run share queues."""
    worth = effective_sample_size(mask) / max(len(mask), 1)
    return share_interval(int(mask.sum()) * worth, len(mask) * worth)


def _statistic(values: Floats, name: str) -> float:
    return float(values.mean() if name == "mean" else np.percentile(values, _PERCENT[name]))
