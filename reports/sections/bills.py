"""Cost and energy: what a request costs, and what a good one does."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.energy import Economy
from reports import words
from reports.figures.bills import PARTS
from reports.figures.bills import bills as figure
from reports.numbers import NOTHING, digits, percent
from reports.page import Bill
from reports.sections.section import WIDTHS, Panel, Section, Swatch, panel
from reports.tables import Table

WHAT = (
    ("usd", "Cost of 1,000 good requests, US dollars", "usd_per_request", "usd_per_good_request"),
    ("wh", "Energy of a good request, watt-hours", "wh_per_request", "wh_per_good_request"),
)
SCALE = {"usd": 1000.0, "wh": 1.0}


def bills_section(bills: Sequence[Bill]) -> Section | None:
    """Cost and energy of each deployment per request and per good request."""
    if not bills:
        return None
    panels: list[Panel] = []
    for unit, title, each, good in WHAT:
        rows = [
            (bill.label, _scaled(bill.economy, each, SCALE[unit]), _scaled(bill.economy, good, SCALE[unit]))
            for bill in bills
        ]
        if not any(value is not None for _, *values in rows for value in values):
            continue
        tells = _words(rows)
        chart = figure(rows, description=tells)
        panels.append(panel("bills", len(panels) + 1, chart, tells, caption=title, width=WIDTHS[2]))
    models = sorted({bill.economy.power_model for bill in bills})
    return Section(
        "bills",
        "Cost and energy",
        "The whole bar is the price of a good request: requests that missed their targets were paid for, too.",
        panels,
        Table(
            ["deployment", "$", "$/1,000", "$/1,000 good", "Wh", "Wh each", "Wh per good", "GPUs idle"],
            [[bill.label, *_cells(bill.economy)] for bill in bills],
        ),
        key=[Swatch(name, colour, square=True) for name, colour in PARTS.values()],
        columns=2,
        note=f"GPU hours, all GPUs all the time. {_idle(bills)} Energy is an estimate: {' and '.join(models)} power.",
    )


def _scaled(found: Economy, name: str, by: float) -> float | None:
    value: float | None = getattr(found, name)
    return None if value is None else value * by


def _words(rows: Sequence[tuple[str, float | None, float | None]]) -> str:
    known = [(label, good) for label, _, good in rows if good is not None]
    if not known:
        return "No request was good, so none has a price."
    if len(rows) == 1:
        _, each, good = rows[0]
        lost = "" if each is None or not good else f"; {percent(1 - each / good)} of it went into misses"
        return f"{digits(known[0][1])} for the good ones{lost}."
    label, least = min(known, key=lambda pair: pair[1])
    most = max(known, key=lambda pair: pair[1])
    more = f"; {most[0]} takes {digits(most[1] / least)} times as much" if most[1] > least > 0 else ""
    return f"Least: {label}, {digits(least)}{more}."


def _idle(bills: Sequence[Bill]) -> str:
    told = [(bill.label, f"{percent(bill.economy.idle_share)} of the GPU time was idle.") for bill in bills]
    return words.of_each(told)


def _cells(found: Economy) -> list[str]:
    each = [
        found.usd,
        _scaled(found, "usd_per_request", 1000),
        _scaled(found, "usd_per_good_request", 1000),
        found.wh,
        found.wh_per_request,
        found.wh_per_good_request,
    ]
    return [*(NOTHING if value is None else digits(value) for value in each), percent(found.idle_share)]
