"""A trace as pictures: arrivals over time and both lengths, on a terminal or as one HTML file that fetches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from markupsafe import Markup

SPARKS = " ▁▂▃▄▅▆▇█"
TEXT_WIDTH, TEXT_ROWS = 72, 6
CHART_WIDTH = 1000


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """Counts between edges; `unit` says what the edges count."""

    title: str
    unit: str
    edges: Sequence[float]
    counts: Sequence[int]
    log: bool = False


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """What a page about one trace shows; the caller has computed all of it."""

    name: str
    headline: str
    subline: str
    facts: list[tuple[str, str]]
    findings: list[str]
    bars: list[Bars]


def plot_text(view: TraceView) -> str:
    """All bars as characters, 72 columns wide."""
    return "\n".join(_plot(bars) for bars in view.bars)


def render_trace(view: TraceView) -> str:
    """The page as text; the same view gives the same bytes."""
    from reports import palette
    from reports.page import environment

    charts = [(bars.title, _svg(bars, f"c{i}")) for i, bars in enumerate(view.bars)]
    colours = {"light": palette.variables(palette.LIGHT), "dark": palette.variables(palette.DARK)}
    page: str = environment().get_template("trace.html.j2").render(view=view, charts=charts, **colours)
    return page


def _svg(bars: Bars, ids: str) -> Markup:
    from markupsafe import Markup

    from reports import static
    from reports.figures.workload import histogram

    chart = histogram(bars.edges, bars.counts, unit=bars.unit, log=bars.log, description=bars.title)
    return Markup(static.svg(chart.to_dict(), width=CHART_WIDTH, ids=ids))


def _plot(bars: Bars) -> str:
    columns = _columns(bars.counts)
    peak = max(columns)
    lines = [f"{bars.title} (highest {_short(max(bars.counts))})"]
    for row in range(TEXT_ROWS, 0, -1):
        levels = [column / peak * TEXT_ROWS * 8 - (row - 1) * 8 for column in columns]
        lines.append("".join(SPARKS[max(0, min(8, round(level)))] for level in levels).rstrip())
    low, high = (f"{_short(edge)} {bars.unit}" for edge in (bars.edges[0], bars.edges[-1]))
    lines += ["─" * len(columns), low + high.rjust(max(len(columns) - len(low), len(high) + 1)), ""]
    return "\n".join(lines)


def _columns(counts: Sequence[int]) -> list[float]:
    """As many columns as fit: each the mean of the bins that fall into it, or a bin drawn several columns wide."""
    wide = max(1, TEXT_WIDTH // len(counts))
    if len(counts) <= TEXT_WIDTH:
        return [float(count) for count in counts for _ in range(wide)]
    places = [i * len(counts) // TEXT_WIDTH for i in range(TEXT_WIDTH + 1)]
    return [sum(counts[a:b]) / (b - a) for a, b in pairwise(places)]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
