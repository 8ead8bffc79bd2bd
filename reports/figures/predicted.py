"""Predicted against measured on one axis: the simulator's quantiles beside those of the live run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from reports import palette
from reports.figures.theme import (
    CARD,
    SOFT,
    Chart,
    Datum,
    beyond,
    data,
    finish,
    layered,
    seconds_axis,
    seconds_scale,
    series_colour,
    target_rule,
)
from reports.numbers import seconds

ROW_HEIGHT = 26


@dataclass(frozen=True)
class Both:
    """One quantile of one run, measured and predicted, in seconds."""

    run: str
    name: str
    measured_s: float
    predicted_s: float


def predicted(pairs: Sequence[Both], labels: Sequence[str], target_s: float | None, *, description: str) -> Chart:
    """A filled dot for measured, a hollow diamond for predicted, a line between them; one row per run and quantile."""
    values = [max(v, 1e-6) for pair in pairs for v in (pair.measured_s, pair.predicted_s)]
    values += [target_s] if target_s else []
    log = max(values) > 8 * min(values)
    domain = (min(values) / 1.3, max(values) * 1.35) if log else (0.0, max(values) * 1.14)
    rows: list[Datum] = [
        {
            "row": f"{pair.run} {pair.name}" if len(labels) > 1 else pair.name,
            "run": pair.run,
            "measured": max(pair.measured_s, 1e-6),
            "predicted": max(pair.predicted_s, 1e-6),
            "told": seconds(pair.measured_s),
            "foretold": seconds(pair.predicted_s),
            "error": f"{(pair.predicted_s / pair.measured_s - 1) * 100:+.0f} %" if pair.measured_s > 0 else "",
        }
        for pair in pairs
    ]
    base = alt.Chart(data(rows))
    y = alt.Y(
        "row:N",
        sort=[str(row["row"]) for row in rows],
        title=None,
        axis=alt.Axis(ticks=False, domain=False, labelLimit=190, labelColor=SOFT),
    )
    x = alt.X("measured:Q", scale=seconds_scale(domain, log=log), axis=seconds_axis(domain, log=log, title=None))
    colour, colours = series_colour(labels), [palette.series_colour(i) for i in range(len(labels))]
    tooltip = [
        alt.Tooltip("row:N", title="what"),
        alt.Tooltip("told:N", title="measured"),
        alt.Tooltip("foretold:N", title="predicted"),
        alt.Tooltip("error:N", title="predicted is off by"),
    ]
    between = base.mark_rule(strokeWidth=2, opacity=0.5, aria=False).encode(
        x=x, x2=alt.X2("predicted:Q"), y=y, color=colour
    )
    told = base.mark_point(size=80, filled=True, opacity=1, stroke=CARD, strokeWidth=1.2).encode(
        x=x, y=y, color=colour, tooltip=tooltip
    )
    foretold = base.mark_point(size=80, filled=True, fill=CARD, shape="diamond", opacity=1, strokeWidth=2).encode(
        x=alt.X("predicted:Q"),
        y=y,
        stroke=alt.Stroke("run:N", scale=alt.Scale(domain=list(labels), range=colours), legend=None),
        tooltip=tooltip,
    )
    layers: list[Chart] = [between, foretold, told]
    if target_s is not None:
        layers.append(target_rule("x", target_s, leftwards=beyond(max(target_s, domain[0] or 1e-9), domain, log=log)))
    return finish(layered(*layers), height=ROW_HEIGHT * len(rows) + 8, description=description)
