"""How tight the targets could be: attainment, or goodput, when all limits are scaled by one factor."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from metrics.goodput import GoodputEstimate
from metrics.tightness import SCALES, Tightness
from reports.figures.theme import (
    CARD,
    PLAIN,
    Chart,
    Datum,
    data,
    finish,
    layered,
    series_colour,
    series_dash,
    target_rule,
    y_title,
)
from reports.numbers import digits, percent, target

VAGUE = 3.0  # an interval whose end is so many times its beginning is not drawn: the estimate is a guess
HEIGHT = 230
TIMES = "\N{MULTIPLICATION SIGN}"
TICKS = [0.125, 0.25, 0.5, 1, 2, 4]


def tightness(runs: Sequence[tuple[str, Tightness]], *, description: str) -> Chart:
    """Attainment against the scale of the limits, a line per run; the smallest scale that suffices is marked."""
    labels = [label for label, _ in runs]
    rows: list[Datum] = [
        {"run": label, "scale": scale, "share": share, "told": percent(share, found.target_share)}
        for label, found in runs
        for scale, share in zip(SCALES, found.share, strict=True)
    ]
    crossed: list[Datum] = [
        {"run": label, "scale": found.smallest, "share": found.target_share, "told": digits(found.smallest, 2) + TIMES}
        for label, found in runs
        if found.smallest is not None and SCALES[0] <= found.smallest <= SCALES[-1]
    ]
    x = alt.X(
        "scale:Q",
        scale=alt.Scale(type="log", base=2, domain=[SCALES[0], SCALES[-1]], nice=False),
        axis=alt.Axis(title="limits multiplied by", values=TICKS, format=PLAIN, labelExpr=f"datum.label + '{TIMES}'"),
    )
    y = alt.Y(
        "share:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1], **y_title("requests within the scaled limits")),
    )
    line = (
        alt.Chart(data(rows))
        .mark_line(strokeWidth=2.2, clip=True, interpolate="monotone")
        .encode(x=x, y=y, color=series_colour(labels), strokeDash=series_dash(labels))
    )
    share = runs[0][1].target_share
    return finish(
        layered(
            line,
            _hover(rows, [alt.Tooltip("scale:Q", title="limits times"), alt.Tooltip("told:N", title="within limits")]),
            target_rule("y", share, f"target {target(share)}"),
            target_rule("x", 1.0, "the targets"),
            _dots(crossed, labels),
        ),
        height=HEIGHT,
        description=description,
    )


def scaled_goodput(
    sweeps: Sequence[tuple[str, Sequence[float], Sequence[GoodputEstimate | None]]], unit: str, *, description: str
) -> Chart:
    """Goodput against the scale of the limits, a line per deployment; open ends are drawn as triangles."""
    labels = [label for label, _, _ in sweeps]
    rows: list[Datum] = [
        {
            "run": label,
            "scale": scale,
            "rate": found.rate,
            "low": found.low if told_apart(found) and found.low is not None else found.rate,
            "high": found.high if told_apart(found) and found.high is not None else found.rate,
            "shape": {"estimate": "circle", "at_least": "triangle-up", "below": "triangle-down"}[found.bound],
            "told": {"estimate": "" if told_apart(found) else "about ", "at_least": "at least ", "below": "below "}[
                found.bound
            ]
            + digits(found.rate),
        }
        for label, scales, estimates in sweeps
        for scale, found in zip(scales, estimates, strict=True)
        if found is not None
    ]
    base = alt.Chart(data(rows))
    x = alt.X(
        "scale:Q",
        scale=alt.Scale(type="log", base=2, nice=False, padding=14),
        axis=alt.Axis(title="limits multiplied by", values=[0.5, 0.75, 1, 1.5, 2], format=PLAIN),
    )
    # An interval may reach far beyond what was tried: it is cut off rather than allowed to flatten the lines.
    top = 1.25 * max((float(str(row["rate"])) for row in rows), default=1.0)
    y = alt.Y(
        "rate:Q",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(format=PLAIN, tickCount=5, **y_title(unit)),
    )
    colour = series_colour(labels)
    known = base.transform_filter("datum.shape == 'circle'")
    line = known.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=series_dash(labels))
    bars = known.mark_rule(strokeWidth=6, opacity=0.3, strokeCap="round", clip=True, aria=False).encode(
        x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
    )
    dots = base.mark_point(size=80, filled=True, opacity=1, stroke=CARD, strokeWidth=1.5).encode(
        x=x,
        y=y,
        color=colour,
        shape=alt.Shape("shape:N", scale=None),
        tooltip=[
            alt.Tooltip("run:N", title="deployment"),
            alt.Tooltip("scale:Q", title="limits times"),
            alt.Tooltip("told:N", title="goodput"),
        ],
    )
    return finish(layered(bars, line, dots), height=HEIGHT, description=description)


def told_apart(found: GoodputEstimate) -> bool:
    """Whether an interval says anything: no run was near a crossing whose ends are several times apart."""
    return found.low is None or found.high is None or (found.low > 0 and found.high < VAGUE * found.low)


def _hover(rows: Sequence[Datum], tooltip: list[alt.Tooltip]) -> alt.Chart:
    dots: alt.Chart = alt.Chart(data(rows)).mark_circle(size=70, opacity=0)
    told = [alt.Tooltip("run:N", title="run"), *tooltip]
    pointed: alt.Chart = dots.encode(x=alt.X("scale:Q"), y=alt.Y("share:Q"), tooltip=told)
    return pointed


def _dots(crossed: Sequence[Datum], labels: Sequence[str]) -> alt.LayerChart:
    base = alt.Chart(data(crossed)).encode(x=alt.X("scale:Q"), y=alt.Y("share:Q"))
    dots = base.mark_point(size=70, filled=True, opacity=1, stroke=CARD, strokeWidth=1.5).encode(
        color=series_colour(labels)
    )
    if len(crossed) != 1:
        return layered(dots)
    return layered(
        dots, base.mark_text(align="right", dx=-8, dy=-10, fontWeight="bold").encode(text=alt.Text("told:N"))
    )
