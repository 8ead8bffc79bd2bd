"""Where requests fail: how many took how long to their first token and per token after it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt

from metrics.bins import Bins, Density, Quadrants, Targets
from reports.figures.theme import (
    Chart,
    Datum,
    beyond,
    data,
    finish,
    halo,
    layered,
    seconds_axis,
    seconds_scale,
    target_rule,
    y_title,
)
from reports.numbers import percent, seconds, span
from reports.palette import PARTS

HEIGHT = 330
MARGINS = (0.05, 0.16)  # room around the cells, as parts of the axis: across, and up where the counts stand
PALEST = 0.22
LINE_HEIGHT = 14
TARGET_PLACE = 0.72  # the target lies at most so far along its axis: beyond it stand the counts
TABLE_ROWS = 40
Span = tuple[float, float]
Extent = tuple[Span, Span]


def quadrants(
    density: Density, counted: Quadrants | None, targets: Targets, extent: Extent, *, description: str
) -> Chart:
    """Cells of TTFT x TPOT, darker for more requests, coloured by the target they miss; quadrants counted."""
    rows = _cells(density, targets)
    cells = (
        alt.Chart(data(rows))
        .mark_rect(stroke=None, clip=True, aria=False)
        .encode(
            x=alt.X(
                "x:Q",
                scale=seconds_scale(extent[0], log=True),
                axis=seconds_axis(extent[0], log=True, title="time to first token"),
            ),
            x2=alt.X2("x2:Q"),
            y=alt.Y(
                "y:Q",
                scale=seconds_scale(extent[1], log=True),
                axis=seconds_axis(extent[1], log=True, **y_title("time per output token")),
            ),
            y2=alt.Y2("y2:Q"),
            color=alt.Color(
                "part:N", scale=alt.Scale(domain=PARTS, range=[f"var(--{part})" for part in PARTS]), legend=None
            ),
            fillOpacity=alt.FillOpacity("depth:Q", scale=None),
            tooltip=[
                alt.Tooltip("count:Q", title="requests", format=","),
                alt.Tooltip("ttft:N", title="first token after"),
                alt.Tooltip("tpot:N", title="per token"),
            ],
        )
    )
    layers: list[alt.Chart | alt.LayerChart] = [cells]
    if targets.ttft_s is not None:
        layers.append(target_rule("x", targets.ttft_s, leftwards=beyond(targets.ttft_s, extent[0], log=True)))
    if targets.tpot_s is not None:
        layers.append(target_rule("y", targets.tpot_s, seconds(targets.tpot_s, trim=True)))
    if counted is not None:
        layers += _corner_labels(counted, targets)
    return finish(layered(*layers), height=HEIGHT, description=description)


def common_extent(runs: Sequence[Bins]) -> Extent | None:
    """The same axes for all runs: every cell and every target inside, with a margin."""
    densities = [(bins.density, bins.targets) for bins in runs if bins.density is not None]
    if not densities:
        return None
    across = [edge for d, t in densities for edge in _edges(d.ttft_cell, d.ttft_anchor_s, d.ttft_per_decade, t.ttft_s)]
    up = [edge for d, t in densities for edge in _edges(d.tpot_cell, d.tpot_anchor_s, d.tpot_per_decade, t.tpot_s)]
    targets = [t for _, t in densities]
    return (
        _padded(across, MARGINS[0], max((t.ttft_s for t in targets if t.ttft_s), default=0.0)),
        _padded(up, MARGINS[1], max((t.tpot_s for t in targets if t.tpot_s), default=0.0)),
    )


def _edges(cells: list[int], anchor: float, per_decade: int, target: float | None) -> list[float]:
    edges = [_edge(min(cells), anchor, per_decade), _edge(max(cells) + 1, anchor, per_decade)]
    return edges if target is None else [*edges, target]


def _padded(edges: list[float], margin: float, target: float) -> Span:
    """The edges with a margin, and room beyond the target for the counts of what misses it."""
    factor = (max(edges) / min(edges)) ** margin
    low, high = min(edges) / factor, max(edges) * factor
    return low, max(high, low * (target / low) ** (1 / TARGET_PLACE))


def _edge(cell: int, anchor: float, per_decade: int) -> float:
    return float(anchor * 10 ** (cell / per_decade))


def _cells(density: Density, targets: Targets) -> list[Datum]:
    most = max(density.count)
    rows: list[Datum] = []
    for i, j, count in zip(density.ttft_cell, density.tpot_cell, density.count, strict=True):
        x, x2 = (_edge(k, density.ttft_anchor_s, density.ttft_per_decade) for k in (i, i + 1))
        y, y2 = (_edge(k, density.tpot_anchor_s, density.tpot_per_decade) for k in (j, j + 1))
        late = targets.ttft_s is not None and i >= 0
        slow = targets.tpot_s is not None and j >= 0
        rows.append(
            {
                "x": x,
                "x2": x2,
                "y": y,
                "y2": y2,
                "count": count,
                "depth": PALEST + (1 - PALEST) * (math.log(count + 1) / math.log(most + 1)),
                "part": "both" if late and slow else "late" if late else "slow" if slow else "good",
                "ttft": span(x, x2),
                "tpot": span(y, y2),
            }
        )
    return rows


def _corner_labels(counted: Quadrants, targets: Targets) -> list[alt.LayerChart]:
    """Each quadrant's share in its own corner: right is late, top is slow."""
    corners = [("good", counted.ok, False, False)]
    if targets.ttft_s is not None:
        corners.append(("late", counted.late_first_token, True, False))
    if targets.tpot_s is not None:
        corners.append(("slow", counted.slow_tokens, False, True))
    if targets.ttft_s is not None and targets.tpot_s is not None:
        corners.append(("both", counted.both, True, True))
    return [_corner(name, count, counted.total, right, top) for name, count, right, top in corners]


def _corner(name: str, count: int, total: int, right: bool, top: bool) -> alt.LayerChart:
    text = alt.Chart(data([{"label": f"{percent(count / total)}\n{name}"}])).encode(
        text=alt.Text("label:N"), x=alt.value("width" if right else 0), y=alt.value(0 if top else "height")
    )
    return halo(
        text,
        lineBreak="\n",
        align="right" if right else "left",
        baseline="top" if top else "bottom",
        dx=-6 if right else 6,
        dy=6 if top else -6 - LINE_HEIGHT,
        lineHeight=LINE_HEIGHT,
        fontWeight="bold",
        fontSize=12,
    )


def table(label: str, density: Density) -> list[list[str]]:
    """The cells as rows of text, the fullest first."""
    cells = sorted(zip(density.count, density.ttft_cell, density.tpot_cell, strict=True), reverse=True)
    return [
        [
            label,
            _between(i, density.ttft_anchor_s, density.ttft_per_decade),
            _between(j, density.tpot_anchor_s, density.tpot_per_decade),
            f"{count:,}",
        ]
        for count, i, j in cells[:TABLE_ROWS]
    ]


def _between(cell: int, anchor: float, per_decade: int) -> str:
    return span(_edge(cell, anchor, per_decade), _edge(cell + 1, anchor, per_decade))
