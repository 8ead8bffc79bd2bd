"""Counts between edges: arrivals over time, or lengths on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from reports.figures.theme import PLAIN, Chart, Datum, data, finish, layered, y_title

HEIGHT = 170


def histogram(edges: Sequence[float], counts: Sequence[int], *, unit: str, log: bool, description: str) -> Chart:
    """A bar for each bin from one edge to the next."""
    rows: list[Datum] = [
        {"from": low, "to": high, "count": count, "zero": 0}
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
        if count
    ]
    domain = [edges[0], edges[-1]]
    scale = alt.Scale(type="log", domain=domain, nice=False) if log else alt.Scale(domain=domain, nice=False)
    bars = (
        alt.Chart(data(rows))
        .mark_rect(color="var(--s1)", opacity=0.8, clip=True)
        .encode(
            x=alt.X("from:Q", scale=scale, axis=alt.Axis(title=unit, format=PLAIN, grid=False, tickCount=8)),
            x2="to:Q",
            y=alt.Y("zero:Q", scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=4, format=PLAIN, **y_title("rows"))),
            y2="count:Q",
        )
    )
    return finish(layered(bars), height=HEIGHT, description=description)
