"""One deployment at several rates: what binds as load grows, goodput against SLO scale, speed against throughput."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from metrics.errors import MetricsError
from metrics.goodput import GoodputEstimate, fit_goodput
from metrics.judge import Verdict, judge_rows
from metrics.latency import counted, is_ok, select, tpot_s
from metrics.names import short_names
from metrics.rates import duration_s, offered_per_s
from metrics.records import RecordTable
from metrics.rundir import Run
from metrics.search import Attempt, SearchRow
from metrics.slo import FAILURES, SLO, attain
from metrics.tightness import needed_scale

NEIGHBOURS = 0.05  # rates so close are the same rate in a picture
SCALES = (0.5, 0.6, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0)


class LoadPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run: how much was offered, how much was good, and what each limit alone would have let through.

    `user_tokens_per_s` is 1 / the median TPOT: what one user sees; `scaled_good` are good requests at each scale.
    """

    rate_per_s: float
    good: int
    total: int
    marginals: dict[str, float]
    failed_share: float
    output_tokens_per_s: float | None = None
    user_tokens_per_s: float | None = None
    scaled_good: list[int] = []

    @property
    def share(self) -> float:
        """Attainment at this rate."""
        return self.good / self.total


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one deployment, by rising rate; goodput by the fit over them, in requests per second."""

    label: str
    deployment: str
    gpus: int | None
    target_share: float
    points: list[LoadPoint]
    goodput: GoodputEstimate | None
    trend: list[LoadPoint] = []  # neighbouring rates pooled: single runs scatter
    scales: list[float] = []
    scaled_goodput: list[GoodputEstimate | None] = []


def load_point(run: Run, slo: SLO) -> LoadPoint | None:
    """One run as a point; None when its attainment cannot be known."""
    table, stop = run.table, run.info.stopped_at_s
    keep = counted(table.rows, stop)
    attained = attain(table, slo, stop)
    offered = offered_per_s(select(table.rows, keep))
    if attained.good is None or offered is None:
        return None
    judged = judge_rows(select(table.rows, keep), slo.limits)
    together, alone = speeds(table, stop)
    return LoadPoint(
        rate_per_s=offered,
        good=attained.good,
        total=attained.total,
        marginals={name: share for name, share in attained.marginals.items() if share is not None},
        failed_share=judged.count(Verdict.FAILED) / attained.total,
        output_tokens_per_s=together or None,
        user_tokens_per_s=alone or None,
        scaled_good=scaled_good(table, slo, stop),
    )


def speeds(table: RecordTable, stopped_at_s: float | None = None) -> tuple[float, float]:
    """Output tokens per second of all counted requests together, and of the median one; 0 where unknown."""
    rows = select(table.rows, counted(table.rows, stopped_at_s))
    lasted, tpot = duration_s(rows), tpot_s(rows)
    median = float(np.nanmedian(tpot)) if np.isfinite(tpot).any() else 0.0
    together = float(rows["output_tokens"][is_ok(rows)].sum()) / lasted if lasted else 0.0
    return together, 1 / median if median > 0 else 0.0


def scaled_good(table: RecordTable, slo: SLO, stopped_at_s: float | None = None) -> list[int]:
    """Good requests with all limits multiplied by each of `SCALES`."""
    needed = needed_scale(judge_rows(select(table.rows, counted(table.rows, stopped_at_s)), slo.limits), slo)
    return [int((needed <= scale + 1e-12).sum()) for scale in SCALES]


def sweep(label: str, runs: Sequence[Run], slo: SLO) -> Sweep:
    """The runs of one deployment as a sweep; MetricsError when none of them can be judged."""
    points = [point for run in runs if (point := load_point(run, slo)) is not None]
    if not points:
        raise MetricsError(f"no run of {label} can be judged by {slo}", code="not_measurable")
    goodput = _fit(points, [point.good for point in points], slo.share)
    return _sweep(label, runs[0].info.deployment, runs[0].info.gpus, slo.share, points, goodput)


def sweeps_of(runs: Sequence[Run], slo: SLO | None) -> list[Sweep]:
    """Runs grouped by deployment, those groups that were loaded at two rates or more; labels tell them apart."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.info.deployment or run.info.target_url, []).append(run)
    several = {name: found for name, found in groups.items() if len({run.info.rate_per_s for run in found}) > 1}
    made = []
    for label, found in zip(short_names(list(several)), several.values(), strict=True):
        points = [] if slo is None else [point for run in found if (point := load_point(run, slo)) is not None]
        if slo is not None and len(points) > 1:
            made.append(sweep(label, found, slo))
    return made


def sweep_of_search(row: SearchRow, share: float, label: str = "") -> Sweep | None:
    """A search's runs as a sweep, those cut short left out; None when none is left."""
    joint = [attempt for attempt in row.attempts if attempt.total and not attempt.aborted and len(attempt.limits) < 2]
    points = [_point_of(attempt) for attempt in joint]  # of a family each limit has units of its own
    return _sweep(label or row.label, row.deployment, row.gpus, share, points, row.goodput) if points else None


def _point_of(attempt: Attempt) -> LoadPoint:
    missed = dict(attempt.misses)
    failed = missed.pop(FAILURES, 0) / attempt.total
    return LoadPoint(
        rate_per_s=attempt.rate_per_s,
        good=attempt.good,
        total=attempt.total,
        # What failed met no limit, as in `attain`.
        marginals={name: 1 - failed - count / attempt.total for name, count in missed.items()},
        failed_share=failed,
        output_tokens_per_s=attempt.output_tokens_per_s or None,
        user_tokens_per_s=attempt.user_tokens_per_s or None,
        scaled_good=attempt.scaled_good,
    )


def _sweep(
    label: str,
    deployment: str,
    gpus: int | None,
    share: float,
    points: list[LoadPoint],
    goodput: GoodputEstimate | None,
) -> Sweep:
    points = sorted(points, key=lambda point: point.rate_per_s)
    scaled = [point for point in points if point.scaled_good]
    return Sweep(
        label=label,
        deployment=deployment,
        gpus=gpus,
        target_share=share,
        points=points,
        goodput=goodput,
        trend=_pooled(points),
        scales=list(SCALES) if scaled else [],
        scaled_goodput=[_fit(scaled, [p.scaled_good[i] for p in scaled], share) for i in range(len(SCALES))]
        if scaled
        else [],
    )


def _pooled(points: Sequence[LoadPoint]) -> list[LoadPoint]:
    """Points by rising rate, those within `NEIGHBOURS` of the first of a group as one; shares by requests."""
    groups: list[list[LoadPoint]] = []
    for point in points:
        if groups and point.rate_per_s <= groups[-1][0].rate_per_s * (1 + NEIGHBOURS):
            groups[-1].append(point)
        else:
            groups.append([point])
    return [_together(group) for group in groups]


def _together(group: Sequence[LoadPoint]) -> LoadPoint:
    total = sum(point.total for point in group)
    names = [name for name in group[0].marginals if all(name in point.marginals for point in group)]
    users = [point.user_tokens_per_s for point in group if point.user_tokens_per_s]
    tokens = [point.output_tokens_per_s for point in group if point.output_tokens_per_s]
    return LoadPoint(
        rate_per_s=sum(point.rate_per_s * point.total for point in group) / total,
        good=sum(point.good for point in group),
        total=total,
        marginals={name: sum(p.marginals[name] * p.total for p in group) / total for name in names},
        failed_share=sum(p.failed_share * p.total for p in group) / total,
        output_tokens_per_s=sum(tokens) / len(tokens) if tokens else None,
        user_tokens_per_s=sum(users) / len(users) if users else None,
    )


def _fit(points: Sequence[LoadPoint], good: Sequence[int], share: float) -> GoodputEstimate | None:
    if len({point.rate_per_s for point in points}) < 2:
        return None
    return fit_goodput([(p.rate_per_s, n, p.total) for p, n in zip(points, good, strict=True)], share)
