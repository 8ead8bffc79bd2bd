"""How a latency is distributed: the share of values at or below each duration, a line per run."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.bins import SHARES, SMALLEST_S, Curve
from reports.figures.theme import (
    CARD,
    Chart,
    Datum,
    beyond,
    data,
    finish,
    halo,
    layered,
    seconds_axis,
    seconds_scale,
    series_colour,
    series_dash,
    target_rule,
    y_title,
)
from reports.numbers import percent, seconds

HEIGHT = 220
LOG_FROM = 10  # p99 / p50 beyond which a linear axis would show nothing but the tail
FOOT = 0.12  # a share below which there is no room for a label under its dot
LOG_FROM_END = 20  # the same for the axis' end / the smallest median


def distribution(curves: Sequence[tuple[str, Curve]], target_s: float | None, *, description: str) -> Chart:
    """Cumulative share against duration; where the curve meets the target is marked and counted."""
    labels = [label for label, _ in curves]
    log, domain = _axis(curves, target_s)
    lines = (
        alt.Chart(data(_points(curves, domain[0])))
        .mark_line(strokeWidth=2, clip=True)
        .encode(
            x=alt.X("value:Q", scale=seconds_scale(domain, log=log), axis=seconds_axis(domain, log=log, title=None)),
            y=alt.Y(
                "share:Q",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 0.9, 1], **y_title("share at or below")),
            ),
            order=alt.Order("share:Q"),
            color=series_colour(labels),
            strokeDash=series_dash(labels),
        )
    )
    dots = (
        alt.Chart(data(_points(curves, domain[0])))
        .mark_circle(size=70, opacity=0)
        .encode(
            x=alt.X("value:Q"),
            y=alt.Y("share:Q"),
            tooltip=[
                alt.Tooltip("run:N", title="run"),
                alt.Tooltip("told:N", title="at most"),
                alt.Tooltip("share:Q", title="share", format=".1%"),
            ],
        )
    )
    layers: list[alt.Chart | alt.LayerChart] = [lines, dots]
    if target_s is not None:
        layers += [
            target_rule("x", target_s, leftwards=beyond(target_s, domain, log=log)),
            *_crossings(curves, target_s, labels),
        ]
    return finish(layered(*layers), height=HEIGHT, description=description)


def _axis(curves: Sequence[tuple[str, Curve]], target_s: float | None) -> tuple[bool, tuple[float, float]]:
    p50, p99 = SHARES.index(0.5), SHARES.index(0.99)
    targets = [] if target_s is None else [target_s]
    high = max([*(curve.quantile_s[-1] for _, curve in curves), *targets, SMALLEST_S])
    low = max(SMALLEST_S, min([*(curve.quantile_s[1] for _, curve in curves), *targets]))
    medians = [max(curve.quantile_s[p50], SMALLEST_S) for _, curve in curves]
    tail = any(c.quantile_s[p99] > LOG_FROM * median for (_, c), median in zip(curves, medians, strict=True))
    log = high > low and (tail or high > LOG_FROM_END * min(medians))
    return log, (low / 1.2, high * 1.1) if log else (0.0, high * 1.06)


def _points(curves: Sequence[tuple[str, Curve]], floor: float) -> list[Datum]:
    return [
        {"run": label, "share": share, "value": max(value, floor), "told": seconds(value)}
        for label, curve in curves
        for share, value in zip(SHARES, curve.quantile_s, strict=True)
    ]


def _crossings(
    curves: Sequence[tuple[str, Curve]], target_s: float, labels: list[str]
) -> list[alt.Chart | alt.LayerChart]:
    met: list[Datum] = [
        {"run": label, "x": target_s, "y": curve.within_target, "told": percent(curve.within_target)}
        for label, curve in curves
        if curve.within_target is not None
    ]
    base = alt.Chart(data(met)).encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    marks: list[alt.Chart | alt.LayerChart] = [
        base.mark_point(size=60, filled=True, opacity=1, stroke=CARD, strokeWidth=1.5).encode(
            color=series_colour(labels)
        )
    ]
    if len(met) == 1:
        # Below the dot is room except at the foot, where the axis has its numbers.
        dy = 11 if float(met[0]["y"] or 0.0) > FOOT else -11
        marks.append(halo(base.encode(text=alt.Text("told:N")), align="left", dx=8, dy=dy, fontWeight="bold"))
    return marks
