"""Effects with their intervals on one axis, a line each: against zero, and against the margin a rule allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from reports.figures.theme import CARD, FONT, INK, SOFT, Chart, Datum, data, finish, layered

ROW_HEIGHT = 30
ROOM_PX = 340  # a narrower chart has no room for the numbers beside the intervals
COLOURS = {"better": "var(--valid)", "worse": "var(--invalid)", "open": "var(--soft)"}
SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+.6~g')"
SHAPES = {"better": "circle", "worse": "diamond", "open": "square"}


@dataclass(frozen=True)
class Effect:
    """A line: effect and interval in per cent or percentage points; `margin` where a rule allows so much."""

    name: str
    effect: float
    low: float | None
    high: float | None
    told: str
    standing: str
    margin: float | None = None


def forest(effects: Sequence[Effect], *, unit: str, description: str) -> Chart:
    """An axis in `unit` with a rule at zero; a line has an interval, a dot, its margin as a tick, its text at right."""
    reach = _reach(effects)
    rows = [_row(effect, reach) for effect in effects]
    base = alt.Chart(data(rows))
    y = alt.Y(
        "name:N",
        sort=[effect.name for effect in effects],
        title=None,
        axis=alt.Axis(labelFontSize=12, ticks=False, domain=False, labelLimit=230, labelColor=INK, grid=True),
    )
    scale = alt.Scale(domain=[-reach, reach * 1.55], nice=False)
    x = alt.X("effect:Q", scale=scale, axis=alt.Axis(title=unit, labelExpr=SIGNED, tickCount=7, values=_ticks(reach)))
    colour = alt.Color("colour:N", scale=None)
    zero = alt.Chart(data([{"at": 0.0}])).mark_rule(color=INK, strokeWidth=1.3, aria=False).encode(x=alt.X("at:Q"))
    interval = base.mark_rule(strokeWidth=6, strokeCap="round", opacity=0.38, clip=True).encode(
        x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y, color=colour
    )
    dots = base.mark_point(size=90, filled=True, opacity=1, stroke=CARD, strokeWidth=1.5, clip=True).encode(
        x=x,
        y=y,
        color=colour,
        shape=alt.Shape("shape:N", scale=None),
        tooltip=[alt.Tooltip("name:N", title="metric"), alt.Tooltip("told:N", title="effect")],
    )
    limits = base.transform_filter("isValid(datum.margin)").mark_tick(
        thickness=2.5, height=20, color="var(--target)", clip=True, aria=False, orient="vertical"
    )
    text = base.mark_text(align="right", font=FONT, fontSize=12, color=SOFT, aria=False, dx=-2).encode(
        x=alt.value("width"),
        y=y,
        text=alt.Text("told:N"),
        opacity=alt.condition(f"width >= {ROOM_PX}", alt.value(1), alt.value(0)),  # on a phone the table tells it
    )
    return finish(
        layered(zero, interval, limits.encode(x=alt.X("margin:Q"), y=y), dots, text),
        height=ROW_HEIGHT * len(rows) + 8,
        description=description,
    )


def _reach(effects: Sequence[Effect]) -> float:
    """Half the axis: all effects and margins, and intervals as far as they do not crush the rest."""
    marks = [abs(v) for e in effects for v in (e.effect, e.margin) if v is not None]
    ends = [abs(v) for e in effects for v in (e.low, e.high) if v is not None]
    most = max([*marks, 1e-9])
    return float(min(max([*ends, most]), 4 * most) * 1.06)


def _ticks(reach: float) -> list[float]:
    step = next(s * 10.0**d for d in range(-4, 7) for s in (1, 2, 5) if 2 * reach / (s * 10.0**d) <= 7)
    return [round(step * k, 9) for k in range(-int(reach / step), int(reach / step) + 1)]


def _row(effect: Effect, reach: float) -> Datum:
    return {
        "name": effect.name,
        "effect": effect.effect,
        "low": -reach if effect.low is None else max(effect.low, -reach),
        "high": reach if effect.high is None else min(effect.high, reach),
        "margin": effect.margin,
        "told": effect.told,
        "colour": COLOURS[effect.standing],
        "shape": SHAPES[effect.standing],
    }
