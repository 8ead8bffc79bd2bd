"""What an arriving prompt does to the requests already being served."""

from __future__ import annotations

import altair as alt

from metrics.tokengaps import Interference
from reports.figures.theme import (
    INK,
    PLAIN,
    SOFT,
    Chart,
    Datum,
    data,
    finish,
    halo,
    layered,
    seconds_axis,
    seconds_scale,
    y_title,
)
from reports.numbers import seconds

HEIGHT = 240
LOG_FROM = 12
STATS = (("median", "p50_s"), ("p99", "p99_s"), ("longest", "max_s"))


def interference(found: Interference, gaps_s: tuple[float, float], *, description: str) -> Chart:
    """Median, p99 and longest token gap against the time since another request's long prompt was sent.

    `gaps_s` is the smallest median and the longest gap of all runs of the page: the same axis for all.
    """
    rows: list[Datum] = [
        {"at": at, "stat": name, "gap": gap, "told": seconds(gap), "n": n}
        for name, field in STATS
        for at, gap, n in zip(found.offset_s, getattr(found, field), found.n, strict=True)
        if gap is not None
    ]
    low, high = gaps_s
    log = 0 < low < high / LOG_FROM
    domain = (low / 1.4, high * 1.3) if log else (0.0, high * 1.12)
    base = alt.Chart(data(rows)).encode(
        x=alt.X(
            "at:Q",
            scale=alt.Scale(domain=[-1, 2], nice=False),
            axis=alt.Axis(title="seconds since another request was sent", grid=False, format=PLAIN, tickCount=7),
        ),
        y=alt.Y(
            "gap:Q", scale=seconds_scale(domain, log=log), axis=seconds_axis(domain, log=log, **y_title("token gap"))
        ),
    )
    tooltip = [
        alt.Tooltip("stat:N", title="gap"),
        alt.Tooltip("told:N", title="length"),
        alt.Tooltip("at:Q", title="seconds since arrival", format="+.2f"),
        alt.Tooltip("n:Q", title="gaps in this bin", format=","),
    ]
    longest = base.transform_filter("datum.stat == 'longest'").mark_point(
        size=26, filled=True, opacity=0.55, color="var(--late)", clip=True
    )
    p99 = base.transform_filter("datum.stat == 'p99'").mark_line(
        strokeWidth=2, color="var(--slow)", strokeDash=[6, 3], clip=True
    )
    median = base.transform_filter("datum.stat == 'median'").mark_line(
        strokeWidth=2.4, color="var(--accent)", clip=True
    )
    return finish(
        layered(_arrival(), longest.encode(tooltip=tooltip), p99, median), height=HEIGHT, description=description
    )


def _arrival() -> alt.LayerChart:
    base = alt.Chart(data([{"at": 0.0, "label": "prompt sent"}])).encode(x=alt.X("at:Q"))
    rule = base.mark_rule(color=INK, strokeWidth=1.2, aria=False)
    return layered(
        rule,
        halo(
            base.encode(text=alt.Text("label:N"), y=alt.value(2)),
            align="left",
            dx=5,
            baseline="top",
            fontWeight="normal",
            color=SOFT,
        ),
    )
