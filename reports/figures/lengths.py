"""Attainment by workload: which prompts and answers are served well, and which are not."""

from __future__ import annotations

from itertools import pairwise

import altair as alt

from metrics.lengths import FEW, LengthGrid
from reports.figures.theme import FONT, Chart, Datum, data, finish, layered, y_title
from reports.numbers import count, percent

ROW_HEIGHT = 40
FROM = "split(datum.label, ' to ')[0]"  # where a cell begins: its whole span has no room under a narrow one
STEPS = ((0.5, "both"), (0.8, "slow"), (1.0, "late"))  # below these parts of the target share; the rest is good


def lengths(grid: LengthGrid, target_share: float, *, description: str) -> Chart:
    """A cell per prompt and output length, coloured by the part of the target it reaches, share and count in it."""
    rows = [
        _cell(grid, i, j, target_share)
        for i in range(len(grid.prompt_edge) - 1)
        for j in range(len(grid.output_edge) - 1)
        if grid.total[i][j]
    ]
    prompts, outputs = spans(grid.prompt_edge), spans(grid.output_edge)
    base = alt.Chart(data(rows)).encode(
        x=alt.X(
            "prompt:N",
            sort=prompts,
            scale=alt.Scale(domain=prompts, padding=0.04),
            axis=alt.Axis(
                title="prompt tokens, from",
                labelAngle=0,
                labelExpr=FROM,
                labelOverlap="greedy",
                ticks=False,
                domain=False,
            ),
        ),
        y=alt.Y(
            "output:N",
            sort=outputs[::-1],
            scale=alt.Scale(domain=outputs[::-1], padding=0.06),
            axis=alt.Axis(labelExpr=FROM, **y_title("output tokens asked, from")),
        ),
    )
    cells = base.mark_rect(cornerRadius=4).encode(
        color=alt.Color("colour:N", scale=None),
        fillOpacity=alt.FillOpacity("depth:Q", scale=None),
        tooltip=[
            alt.Tooltip("prompt:N", title="prompt tokens"),
            alt.Tooltip("output:N", title="output tokens"),
            alt.Tooltip("told:N", title="good"),
            alt.Tooltip("counted:N", title="requests"),
        ],
    )
    text = base.mark_text(font=FONT, fontSize=12, aria=False).encode(
        text=alt.Text("told:N"), color=alt.Color("ink:N", scale=None)
    )
    return finish(layered(cells, text), height=ROW_HEIGHT * len(outputs), description=description)


def spans(edges: list[int]) -> list[str]:
    """`16 to 31`, a label per cell."""
    return [f"{count(a)} to {count(b - 1)}" if b - 1 > a else count(a) for a, b in pairwise(edges)]


def _cell(grid: LengthGrid, i: int, j: int, target_share: float) -> Datum:
    good, total = grid.good[i][j], grid.total[i][j]
    share = good / total
    part = next((name for below, name in STEPS if share < below * target_share), "good")
    few = total < FEW
    return {
        "prompt": spans(grid.prompt_edge)[i],
        "output": spans(grid.output_edge)[j],
        "share": share,
        "told": percent(share, target_share),
        "counted": f"{count(good)} of {count(total)}",
        "colour": f"var(--{part})",
        "depth": 0.28 if few else 1.0,
        "ink": "var(--ink)" if few else "var(--on-bright)" if part == "late" else "var(--on)",
    }
