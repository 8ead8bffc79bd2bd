"""Cost or energy per request and per good request: two dots a deployment, and the waste between them."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from reports.figures.theme import CARD, PLAIN, Chart, Datum, data, finish, layered
from reports.numbers import digits

ROW_HEIGHT = 44


def bills(rows: Sequence[tuple[str, float | None, float | None]], *, description: str) -> Chart:
    """(label, per request, per good request) as a dumbbell."""
    points: list[Datum] = [
        {"run": label, "what": what, "value": value, "told": digits(value), "colour": colour, "dy": dy}
        for label, each, good in rows
        for what, value, colour, dy in (
            ("per request", each, "var(--s1)", 1),
            ("per good request", good, "var(--good)", -1),
        )
        if value is not None
    ]
    spans: list[Datum] = [{"run": r, "from": a, "to": b} for r, a, b in rows if a is not None and b is not None]
    y = alt.Y(
        "run:N",
        sort=[label for label, _, _ in rows],
        title=None,
        axis=alt.Axis(labelFontSize=13, ticks=False, domain=False, labelLimit=180),
    )
    x = alt.X("value:Q", scale=alt.Scale(zero=True, padding=18), axis=alt.Axis(title=None, format=PLAIN, tickCount=5))
    base = alt.Chart(data(points))
    waste = (
        alt.Chart(data(spans))
        .mark_rule(strokeWidth=6, opacity=0.25, color="var(--slow)", aria=False)
        .encode(x=alt.X("from:Q"), x2=alt.X2("to:Q"), y=y)
    )
    dots = base.mark_point(size=110, filled=True, opacity=1, stroke=CARD, strokeWidth=1.5).encode(
        x=x,
        y=y,
        color=alt.Color("colour:N", scale=None),
        tooltip=[
            alt.Tooltip("run:N", title="deployment"),
            alt.Tooltip("what:N", title="what"),
            alt.Tooltip("told:N", title="value"),
        ],
    )
    above = base.transform_filter("datum.dy > 0").mark_text(dy=-13, aria=False)
    below = base.transform_filter("datum.dy < 0").mark_text(dy=16, fontWeight="bold", aria=False)
    texts = [text.encode(x=x, y=y, text=alt.Text("told:N")) for text in (above, below)]
    return finish(layered(waste, dots, *texts), height=ROW_HEIGHT * len(rows) + 8, description=description)
