"""The latency heat map: time across, time to first token up, the stronger the colour the more answers."""

from __future__ import annotations

import math

import altair as alt

from metrics.heat import Heat
from reports.figures.theme import Chart, Datum, data, finish, layered, seconds_axis, seconds_scale, target_rule, y_title
from reports.figures.timeline import AXIS_ROOM, CLOCK
from reports.numbers import seconds

HEIGHT = 190
PALEST = 0.16
TITLE = "time to first token, every answer"


def heat(found: Heat, span_s: float, target_s: float | None, *, description: str) -> Chart:
    """A cell per instant and latency; the target is a line."""
    # A cell is three whole numbers; the chart works out its corners, because there are many cells.
    rows: list[Datum] = [
        {"column": column, "row": row, "count": count}
        for column, row, count in zip(found.column, found.row, found.count, strict=True)
    ]
    width, step, most = found.width_s, found.per_decade, max(found.count)
    ends = [10 ** (k / found.per_decade) for k in (min(found.row), max(found.row) + 1)]
    ends += [target_s] if target_s else []
    domain = (min(ends) / 1.05, max(ends) * 1.15)
    cells = (
        alt.Chart(data(rows))
        .mark_rect(color="var(--s1)", stroke=None, clip=True, aria=False)
        .encode(
            x=alt.X(
                "from:Q",
                scale=alt.Scale(domain=[0, span_s], nice=False),
                axis=alt.Axis(title=CLOCK, grid=False, format=",.6~g", tickCount=8),
            ),
            x2=alt.X2("to:Q"),
            y=alt.Y(
                "low:Q",
                scale=seconds_scale(domain, log=True),
                axis=seconds_axis(
                    domain,
                    log=True,
                    minExtent=AXIS_ROOM,
                    maxExtent=AXIS_ROOM,
                    **y_title("time to first token, every answer"),
                ),
            ),
            y2=alt.Y2("high:Q"),
            fillOpacity=alt.FillOpacity("depth:Q", scale=None),
            tooltip=[
                alt.Tooltip("count:Q", title="answers", format=","),
                alt.Tooltip("from:Q", title="due from (s)", format=",.6~g"),
                alt.Tooltip("low:Q", title="first token after (s)", format=".3~g"),
            ],
        )
        .transform_calculate(
            **{
                "from": f"datum.column * {width:g}",
                "to": f"min((datum.column + 1) * {width:g}, {span_s:g})",
                "low": f"pow(10, datum.row / {step})",
                "high": f"pow(10, (datum.row + 1) / {step})",
                "depth": f"{PALEST} + {1 - PALEST:g} * log(datum.count + 1) / {math.log(most + 1):.5g}",
            }
        )
    )
    rule = [] if target_s is None else [target_rule("y", target_s, f"target {seconds(target_s, trim=True)}")]
    return finish(layered(cells, *rule), height=HEIGHT, description=description)
