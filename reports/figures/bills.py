"""Cost or energy per good request: a bar a deployment, split into what any request costs and what misses add."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from reports.figures.theme import CARD, FONT, INK, PLAIN, Chart, Datum, data, finish, layered
from reports.numbers import digits

ROW_HEIGHT = 38
HEADROOM = 1.16  # room for the number at the end of the longest bar
PARTS = {"each": ("per request", "var(--s1)"), "misses": ("what misses add to a good one", "var(--slow)")}

Prices = Sequence[tuple[str, float | None, float | None]]


def bills(rows: Prices, *, description: str) -> Chart:
    """(label, per request, per good request) as a bar from zero to the latter, split at the former."""
    parts: list[Datum] = []
    ends: list[Datum] = []
    for label, each, good in rows:
        if each is None:
            continue
        end = each if good is None else good
        for part, begin, stop in (("each", 0.0, each), ("misses", each, end)):
            if stop > begin:
                name, colour = PARTS[part]
                told = f"{digits(stop - begin)}"
                parts.append({"run": label, "from": begin, "to": stop, "what": name, "colour": colour, "told": told})
        ends.append({"run": label, "to": end, "told": digits(end)})
    top = max((float(str(row["to"])) for row in ends), default=1.0)
    y = alt.Y(
        "run:N",
        sort=[label for label, _, _ in rows],
        title=None,
        axis=alt.Axis(labelFontSize=13, ticks=False, domain=False, labelLimit=180),
        scale=alt.Scale(paddingInner=0.35, paddingOuter=0.15),
    )
    x = alt.X(
        "from:Q",
        scale=alt.Scale(domain=[0, top * HEADROOM], nice=False),
        axis=alt.Axis(title=None, format=PLAIN, tickCount=5),
    )
    bars = (
        alt.Chart(data(parts))
        .mark_bar(stroke=CARD, strokeWidth=1, cornerRadius=2)
        .encode(
            x=x,
            x2=alt.X2("to:Q"),
            y=y,
            color=alt.Color("colour:N", scale=None),
            tooltip=[
                alt.Tooltip("run:N", title="deployment"),
                alt.Tooltip("what:N", title="what"),
                alt.Tooltip("told:N", title="value"),
            ],
        )
    )
    text = (
        alt.Chart(data(ends))
        .mark_text(align="left", dx=6, font=FONT, fontSize=12.5, fontWeight="bold", color=INK, aria=False)
        .encode(x=alt.X("to:Q"), y=y, text=alt.Text("told:N"))
    )
    return finish(layered(bars, text), height=ROW_HEIGHT * len(rows) + 8, description=description)
