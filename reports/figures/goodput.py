"""Goodput per GPU of each deployment with its interval: the decision as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.decision import DecisionRow
from metrics.goodput import GoodputEstimate
from reports.figures.theme import CARD, FONT, PLAIN, Chart, Datum, data, finish, layered, series_colour
from reports.figures.tightness import told_apart
from reports.numbers import digits

ROW_HEIGHT = 52
HEADROOM = 1.18  # room for the label to the right of the longest interval


def goodput(rows: Sequence[DecisionRow], order: Sequence[str], *, description: str) -> Chart:
    """A dot and an interval per deployment, an arrow where the search hit an end; coloured in the page's `order`."""
    known = [(row, row.goodput_per_gpu) for row in rows if row.goodput_per_gpu is not None]
    # An interval that says nothing is cut off rather than allowed to flatten all others.
    top = (
        max((rate.high or rate.rate if told_apart(rate) else 1.5 * rate.rate for _, rate in known), default=1.0) or 1.0
    )
    base = alt.Chart(data([_datum(row, rate, top) for row, rate in known]))
    labels = [row.label for row, _ in known]
    y = alt.Y(
        "run:N",
        sort=labels,
        title=None,
        axis=alt.Axis(labelFontSize=13, ticks=False, domain=False, labelLimit=260, labelPadding=10),
    )
    x = alt.X(
        "rate:Q",
        title="requests per second per GPU",
        scale=alt.Scale(domain=[0, top * HEADROOM], nice=False),
        axis=alt.Axis(tickCount=6, format=PLAIN),
    )
    colour = series_colour(order)
    tooltip = [
        alt.Tooltip("run:N", title="deployment"),
        alt.Tooltip("told:N", title="goodput per GPU"),
        alt.Tooltip("interval:N", title="95 % interval"),
    ]
    stem = base.mark_rule(strokeWidth=2, opacity=0.35, aria=False).encode(
        x=alt.X("zero:Q"), x2=alt.X2("rate:Q"), y=y, color=colour
    )
    interval = base.mark_rule(strokeWidth=7, strokeCap="round", opacity=0.4).encode(
        x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y, color=colour, tooltip=tooltip
    )
    dot = base.mark_point(size=130, filled=True, stroke=CARD, strokeWidth=2, opacity=1).encode(
        x=x, y=y, color=colour, shape=alt.Shape("shape:N", scale=None), tooltip=tooltip
    )
    text = base.mark_text(align="left", dx=12, font=FONT, fontSize=13, fontWeight="bold", aria=False).encode(
        x=alt.X("high:Q"), y=y, text=alt.Text("told:N")
    )
    return finish(layered(stem, interval, dot, text), height=ROW_HEIGHT * len(known) + 8, description=description)


def _datum(row: DecisionRow, rate: GoodputEstimate, top: float) -> Datum:
    prefix = {"estimate": "", "at_least": "at least ", "below": "below "}[rate.bound]
    low = rate.rate if rate.low is None else rate.low
    high = rate.rate if rate.high is None else rate.high
    return {
        "run": row.label,
        "zero": 0.0,
        "rate": rate.rate,
        "low": 0.0 if rate.bound == "below" else low,
        "high": min(top * 1.05, high) if rate.bound != "at_least" else top,
        "told": prefix + digits(rate.rate),
        "interval": f"{digits(low)} to {digits(high)}",
        "shape": {"estimate": "circle", "at_least": "triangle-right", "below": "triangle-left"}[rate.bound],
    }
