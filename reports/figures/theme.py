"""What all charts share: fonts, lines, room for labels, and how seconds and shares are written on an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from reports import palette
from reports.numbers import compact, seconds

Datum = Mapping[str, float | int | str | None]
Chart = alt.Chart | alt.LayerChart

FONT = "-apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', Arial, sans-serif"
INK, SOFT, LINE, GRID, CARD, TARGET = (f"var(--{name})" for name in ("ink", "soft", "line", "grid", "card", "target"))

AXIS_LOOK = {
    "labelFont": FONT,
    "titleFont": FONT,
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "labelColor": SOFT,
    "titleColor": SOFT,
    "gridColor": GRID,
    "domainColor": LINE,
    "tickColor": LINE,
    "tickSize": 4,
    "labelPadding": 5,
    "titlePadding": 8,
    "labelFlush": False,
}
SECONDS_LABEL = (
    "datum.value == 0 ? '0' : abs(datum.value) < 0.9999 ? format(datum.value * 1000, '~r') + ' ms'"
    " : format(datum.value, '~r') + ' s'"
)
PLAIN = ",.6~g"  # numbers on an axis, never as 1e+1
TICK_STEPS = ((0.7, (1, 1.5, 2, 3, 4, 5, 7)), (2.2, (1, 2, 5)), (math.inf, (1,)))  # by decades spanned


def data(rows: Iterable[Datum]) -> alt.InlineData:
    """Rows of a chart; floats cut to what a screen can show."""
    # A tuple, because Altair copies lists deeply at every step of building a chart.
    values: Any = tuple({k: compact(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return alt.InlineData(values=values)


def finish(chart: Chart, *, height: int, description: str) -> Chart:
    """The common look: fills its container's width, transparent, quiet axes."""
    # Set on the chart itself: each of Altair's own methods for this copies all of it, which takes longer than the rest.
    dressed: Any = chart
    dressed.width, dressed.height = "container", height
    dressed.description, dressed.background = description, "transparent"
    dressed.config = {
        "view": {"stroke": None},
        "axis": AXIS_LOOK,
        "axisQuantitative": {"labelOverlap": "parity", "labelSeparation": 8},
        "text": {"font": FONT, "fontSize": 12, "color": INK},
        "mark": {"tooltip": None},
    }
    return chart


def layered(*parts: Chart) -> alt.LayerChart:
    """Charts on top of each other."""
    together = alt.layer(*parts)
    assert isinstance(together, alt.LayerChart)  # facets cannot be layered, and no part is one
    return together


def y_title(text: str) -> dict[str, Any]:
    """A vertical axis named by a line of text above it, not by letters on their side."""
    return {
        "title": text,
        "titleAngle": 0,
        "titleAlign": "left",
        "titleAnchor": "end",
        "titleBaseline": "bottom",
        "titleX": 0,
        "titleY": -24,
        "domain": False,
        "ticks": False,
    }


def seconds_axis(span: Sequence[float], /, *, log: bool, **more: Any) -> alt.Axis:
    """An axis of durations, ticks at round values; `more` says its title."""
    values = log_ticks(*span) if log else alt.Undefined
    return alt.Axis(
        labelExpr=SECONDS_LABEL,
        values=values,
        tickCount=6,
        labelOverlap="greedy" if log else "parity",  # every other label of even steps, so that they stay even
        labelSeparation=10,
        **more,
    )


def seconds_scale(domain: Sequence[float], *, log: bool) -> alt.Scale:
    """A scale of durations over a domain."""
    ends = [compact(domain[0]), compact(domain[1])]
    return alt.Scale(type="log", domain=ends, nice=False) if log else alt.Scale(domain=ends, nice=False)


def log_ticks(low: float, high: float) -> list[float]:
    """Fine steps over a short range, 1-2-5 over a middling one, decades over a long one."""
    steps = next(steps for decades, steps in TICK_STEPS if math.log10(high / low) <= decades)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def series_colour(labels: Sequence[str]) -> alt.Color:
    """Colour by run; the page's own key names the runs."""
    colours = [palette.series_colour(i) for i in range(len(labels))]
    return alt.Color("run:N", scale=alt.Scale(domain=list(labels), range=colours), legend=None)


def series_dash(labels: Sequence[str]) -> alt.StrokeDash:
    """Dash by run, so that colour is never alone."""
    dashes = [palette.series_dash(i) for i in range(len(labels))]
    return alt.StrokeDash("run:N", scale=alt.Scale(domain=list(labels), range=dashes), legend=None)


def target_rule(channel: str, value: float, label: str | None = None, *, leftwards: bool = False) -> alt.LayerChart:
    """A dashed line at a target with its name at the edge of the plot, to the left of it when `leftwards`."""
    upright = channel == "x"
    base = alt.Chart(data([{"target": float(value), "label": label or f"target {seconds(value, trim=True)}"}]))
    place: dict[str, Any] = {channel: alt.X("target:Q") if upright else alt.Y("target:Q")}
    rule = base.mark_rule(color=TARGET, strokeDash=[4, 3], strokeWidth=1.2, aria=False).encode(**place)
    at = {"y": alt.value(-5)} if upright else {"x": alt.value("width")}
    align: Any = "right" if leftwards or not upright else "left"
    named = base.encode(text=alt.Text("label:N"), **place, **at)
    return layered(rule, halo(named, align=align, baseline="bottom", dy=0 if upright else -4))


def beyond(value: float, span: Sequence[float], *, log: bool, part: float = 0.6) -> bool:
    """Whether a value lies in the right part of an axis, where a label should turn left."""
    low, high = (math.log(end) if log else end for end in span)
    return ((math.log(value) if log else value) - low) / (high - low) > part


def halo(chart: alt.Chart, **mark: Any) -> alt.LayerChart:
    """Text that stays readable on top of marks."""
    under = chart.mark_text(stroke=CARD, strokeWidth=4, strokeJoin="round", aria=False, **mark)
    return layered(under, chart.mark_text(aria=False, **mark))
