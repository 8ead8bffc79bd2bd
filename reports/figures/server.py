"""The server's own metrics over the run, one quantity a chart, a line per pool, on the time axis of the client's."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.serverlines import PoolLine
from reports.figures.theme import PLAIN, Chart, Datum, data, finish, layered, series_colour, series_dash, y_title
from reports.figures.timeline import AXIS_ROOM, HEIGHT
from reports.numbers import digits, percent

TITLES = {
    "waiting": "requests waiting in the server",
    "running": "requests running in the server",
    "kv_usage": "KV cache in use",
    "preemptions": "preemptions so far",
}


def server_line(lines: Sequence[PoolLine], labels: Sequence[str], span_s: float, *, description: str) -> Chart:
    """One quantity; `labels` names the lines and is the order of all charts of the page."""
    share = lines[0].quantity == "kv_usage"
    rows: list[Datum] = [
        {"run": label, "at": at, "value": value, "told": percent(value) if share else digits(value, trim=True)}
        for label, line in zip(labels, lines, strict=True)
        for at, value in zip(line.at_s, line.value, strict=True)
    ]
    base = alt.Chart(data(rows))
    x = alt.X(
        "at:Q",
        scale=alt.Scale(domain=[0, span_s], nice=False),
        axis=alt.Axis(title=None, grid=False, format=PLAIN, tickCount=8),
    )
    axis = alt.Axis(
        tickCount=4,
        format="%" if share else PLAIN,
        minExtent=AXIS_ROOM,
        maxExtent=AXIS_ROOM,
        **y_title(TITLES[lines[0].quantity]),
    )
    y = alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]) if share else alt.Scale(zero=True), axis=axis)
    line = base.mark_line(strokeWidth=2, interpolate="step-after", clip=True).encode(
        x=x, y=y, color=series_colour(labels), strokeDash=series_dash(labels)
    )
    hover = base.mark_circle(size=80, opacity=0).encode(
        x=alt.X("at:Q"),
        y=alt.Y("value:Q"),
        tooltip=[
            alt.Tooltip("run:N", title="pool"),
            alt.Tooltip("at:Q", title="at (s)", format=PLAIN),
            alt.Tooltip("told:N", title=TITLES[lines[0].quantity]),
        ],
    )
    return finish(layered(line, hover), height=HEIGHT, description=description)
