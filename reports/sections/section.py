"""What a section of a page is made of: a question, its charts, the numbers behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reports import words
from reports.figures.theme import Chart
from reports.page import RunView
from reports.palette import series_colour, series_dash
from reports.static import drawable, svg
from reports.tables import Table

STILL_BUDGET = 180_000  # characters of SVG per chart and run; larger charts are left to script and table
STILLS_BUDGET = {3: 750_000, 99: 300_000}  # of all of them on a page, by how many runs it has at most
WIDTHS = {1: 1000, 2: 480, 3: 320}  # of a chart drawn without script, by charts side by side


@dataclass(frozen=True)
class Panel:
    """One chart of a figure: its specification, and itself drawn for readers without script."""

    id: str
    caption: str
    tells: str
    spec: dict[str, Any]
    still: str


@dataclass(frozen=True)
class Swatch:
    """An entry of a key: a line (with its dash), a filled square or a cross."""

    name: str
    colour: str
    dash: str = ""
    square: bool = False
    cross: bool = False


@dataclass(frozen=True)
class Section:
    """A question, its charts and the numbers behind them; `columns` is how many charts stand side by side."""

    id: str
    title: str
    look_for: str
    panels: list[Panel]
    table: Table
    key: list[Swatch] = field(default_factory=list)
    columns: int = 1
    note: str = ""
    unfolded: bool = False  # its numbers stand open: they are the point
    leads: bool = False  # stands before the question whether the figures can be trusted


def panel(section: str, number: int, chart: Chart, tells: str, *, caption: str = "", width: int = WIDTHS[1]) -> Panel:
    """A chart as a page shows it; `width` is that of the drawing for readers without script."""
    spec = drawable(chart.to_dict(validate=False))
    name = f"{section}-{number}"
    return Panel(name, words.capital(caption), tells, spec, svg(spec, width=width, ids=name))


def lightened(sections: Sequence[Section], runs: int) -> list[Section]:
    """Without the drawings that would make the file heavy: the script draws those, and the table tells them."""
    limit = STILL_BUDGET // max(runs, 1)
    left = next((budget for most, budget in STILLS_BUDGET.items() if runs <= most), 0)
    light = []
    for section in sections:
        panels = []
        for one in section.panels:
            fits = len(one.still) <= min(limit, left)
            left -= len(one.still) if fits else 0
            panels.append(one if fits else replace(one, still=""))
        light.append(replace(section, panels=panels))
    return light


def abreast(charts: int) -> int:
    """How many charts stand side by side: three at most, and never one alone in a second row of four."""
    return 2 if charts == 4 else min(3, charts)


def named(runs: Sequence[RunView], label: str) -> str:
    """The caption of a run's chart: its label where there are several."""
    return label if len(runs) > 1 else ""


def series(labels: Sequence[str]) -> list[Swatch]:
    """The key of several runs; none for a single one."""
    if len(labels) == 1:
        return []
    return [Swatch(label, series_colour(i), dash=" ".join(map(str, series_dash(i)))) for i, label in enumerate(labels)]
