"""Cost and energy: what a request costs, and what a good one does."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.energy import Economy
from reports.figures.bills import bills as figure
from reports.numbers import NOTHING, digits, percent
from reports.page import Bill
from reports.sections.section import WIDTHS, Panel, Section, Swatch, panel
from reports.tables import Table

WHAT = (
    ("usd", "Cost of 1,000 requests, US dollars", "usd_per_request", "usd_per_good_request"),
    ("wh", "Energy of a request, watt-hours", "wh_per_request", "wh_per_good_request"),
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
        "The gap between the two dots is what was spent on requests that missed their targets.",
        panels,
        Table(
            ["deployment", "$", "$/1,000", "$/1,000 good", "Wh", "Wh each", "Wh per good", "GPUs idle"],
            [[bill.label, *_cells(bill.economy)] for bill in bills],
        ),
        key=[Swatch("per request", "var(--s1)", square=True), Swatch("per good request", "var(--good)", square=True)],
        columns=2,
        note=f"GPU hours at list price, all GPUs all the time; power model: {' and '.join(models)} (an estimate).",
    )


def _scaled(found: Economy, name: str, by: float) -> float | None:
    value: float | None = getattr(found, name)
    return None if value is None else value * by


def _words(rows: Sequence[tuple[str, float | None, float | None]]) -> str:
    known = [(label, good) for label, _, good in rows if good is not None]
    if not known:
        return "No request was good, so none has a price."
    label, least = min(known, key=lambda pair: pair[1])
    return f"Least per good request: {label}, {digits(least)}."


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
