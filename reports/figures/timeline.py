"""The run over time, one quantity a chart, all on the same time axis."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.bins import Timeline
from reports.figures.theme import (
    PLAIN,
    SOFT,
    Chart,
    Datum,
    data,
    finish,
    layered,
    seconds_axis,
    seconds_scale,
    series_colour,
    series_dash,
    target_rule,
    y_title,
)
from reports.numbers import seconds

HEIGHT = 132
CLOCK = "seconds since the start"
AXIS_ROOM = 56  # the same for every chart of the stack, so that instants line up
LOG_FROM = 30
Lines = Sequence[tuple[str, Timeline]]


def arrivals(timelines: Lines, span_s: float, *, description: str) -> Chart:
    """Requests due per second (bars: the same schedule for all runs) and those that failed (ticks)."""
    first = timelines[0][1]
    rows: list[Datum] = [
        {"from": at, "to": at + first.width_s, "value": n / first.width_s}
        for at, n in zip(first.start_s, first.arrivals, strict=True)
        if n
    ]
    bars = (
        alt.Chart(data(rows))
        .mark_rect(color=SOFT, opacity=0.45, clip=True)
        .encode(
            x=_time(span_s),
            x2=alt.X2("to:Q"),
            y=alt.Y("zero:Q", scale=alt.Scale(zero=True), axis=_axis("arrivals per second")),
            y2=alt.Y2("value:Q"),
            tooltip=[
                alt.Tooltip("from:Q", title="at (s)", format=PLAIN),
                alt.Tooltip("value:Q", title="arrivals per second", format=".3~g"),
            ],
        )
        .transform_calculate(zero="0")
    )
    return finish(layered(bars, *_failures(timelines, span_s)), height=HEIGHT, description=description)


def in_flight(timelines: Lines, span_s: float, *, description: str) -> Chart:
    """Requests sent and not yet ended, mean over each bin."""
    return _curves(timelines, span_s, "in_flight", "requests in flight", ".3~g", description)


def token_rate(timelines: Lines, span_s: float, *, description: str) -> Chart:
    """Output tokens per second of all requests together."""
    return _curves(timelines, span_s, "output_tokens_per_s", "output tokens per second", ",.0f", description, CLOCK)


def first_tokens(timelines: Lines, span_s: float, target_s: float | None, *, description: str) -> Chart:
    """TTFT of the requests due in each bin: p50 to p90 as a band for one run, p90 for several."""
    labels = [label for label, _ in timelines]
    rows = [row for label, timeline in timelines for row in _ttft_rows(label, timeline)]
    values = [value for row in rows for value in (row["p50"], row["p90"]) if isinstance(value, float) and value > 0]
    log = bool(values) and max(values) > LOG_FROM * min(values)
    ends = [*values, target_s] if target_s else values
    domain = (min(ends) / 1.3, max(ends) * 1.3) if log else (0.0, max(ends, default=1.0) * 1.1)
    title = f"time to first token, {'p50 to p90' if len(labels) == 1 else 'p90'}"
    base = alt.Chart(data(rows))
    y = alt.Y(
        "p90:Q",
        scale=seconds_scale(domain, log=log),
        axis=seconds_axis(domain, log=log, minExtent=AXIS_ROOM, maxExtent=AXIS_ROOM, **y_title(title)),
    )
    tooltip = [
        alt.Tooltip("run:N", title="run"),
        alt.Tooltip("at:Q", title="due at (s)", format=PLAIN),
        alt.Tooltip("told50:N", title="p50"),
        alt.Tooltip("told90:N", title="p90"),
    ]
    layers: list[alt.Chart | alt.LayerChart] = []
    if len(labels) == 1:
        layers.append(
            base.mark_area(opacity=0.22, clip=True, color="var(--s1)", aria=False).encode(
                x=_time(span_s, "at:Q"), y=y, y2=alt.Y2("p50:Q")
            )
        )
    line = base.mark_line(strokeWidth=2, clip=True, point=alt.OverlayMarkDef(size=22, opacity=1)).encode(
        x=_time(span_s, "at:Q"), y=y, color=series_colour(labels), strokeDash=series_dash(labels), tooltip=tooltip
    )
    layers.append(line)
    if target_s is not None:
        layers.append(target_rule("y", target_s))
    return finish(layered(*layers), height=HEIGHT, description=description)


def _curves(
    timelines: Lines, span_s: float, field: str, title: str, number: str, description: str, clock: str | None = None
) -> Chart:
    labels = [label for label, _ in timelines]
    rows: list[Datum] = [
        {"run": label, "at": at + timeline.width_s / 2, "value": value}
        for label, timeline in timelines
        for at, value in zip(timeline.start_s, getattr(timeline, field), strict=True)
    ]
    line = (
        alt.Chart(data(rows))
        .mark_line(strokeWidth=2)
        .encode(
            x=_time(span_s, "at:Q", clock),
            y=alt.Y("value:Q", scale=alt.Scale(zero=True), axis=_axis(title)),
            color=series_colour(labels),
            strokeDash=series_dash(labels),
        )
    )
    hover = (
        alt.Chart(data(rows))
        .mark_circle(size=80, opacity=0)
        .encode(
            x=alt.X("at:Q"),
            y=alt.Y("value:Q"),
            tooltip=[
                alt.Tooltip("run:N", title="run"),
                alt.Tooltip("at:Q", title="at (s)", format=PLAIN),
                alt.Tooltip("value:Q", title=title, format=number),
            ],
        )
    )
    return finish(layered(line, hover), height=HEIGHT, description=description)


def _time(span_s: float, field: str = "from:Q", title: str | None = None) -> alt.X:
    return alt.X(
        field,
        scale=alt.Scale(domain=[0, span_s], nice=False),
        axis=alt.Axis(title=title, grid=False, format=PLAIN, tickCount=8),
    )


def _axis(title: str) -> alt.Axis:
    return alt.Axis(tickCount=4, format=PLAIN, minExtent=AXIS_ROOM, maxExtent=AXIS_ROOM, **y_title(title))


def _ttft_rows(label: str, timeline: Timeline) -> list[Datum]:
    return [
        {
            "run": label,
            "at": at + timeline.width_s / 2,
            "p50": p50,
            "p90": p90,
            "told50": seconds(p50),
            "told90": seconds(p90),
        }
        for at, p50, p90 in zip(timeline.start_s, timeline.ttft_p50_s, timeline.ttft_p90_s, strict=True)
        if p50 is not None
    ]


def _failures(timelines: Lines, span_s: float) -> list[alt.Chart]:
    rows: list[Datum] = [
        {"run": label, "from": at + timeline.width_s / 2, "failed": n}
        for label, timeline in timelines
        for at, n in zip(timeline.start_s, timeline.failed, strict=True)
        if n
    ]
    if not rows:
        return []
    ticks = alt.Chart(data(rows)).mark_point(
        shape="cross", angle=45, size=50, filled=True, color="var(--invalid)", opacity=1
    )
    return [
        ticks.encode(
            x=_time(span_s),
            y=alt.value(-7),
            tooltip=[
                alt.Tooltip("run:N", title="run"),
                alt.Tooltip("from:Q", title="due at (s)", format=PLAIN),
                alt.Tooltip("failed:Q", title="failed requests"),
            ],
        )
    ]
