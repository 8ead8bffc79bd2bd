"""The decision between deployments: goodput with its interval."""

from __future__ import annotations

from typing import Any

from reports import words
from reports.figures import goodput
from reports.numbers import NOTHING, digits
from reports.page import PageData
from reports.sections.section import Section, panel
from reports.tables import Table


def goodput_section(page: PageData) -> Section | None:
    """Goodput per GPU with intervals; None before any search."""
    if page.decision is None or sum(row.goodput_per_gpu is not None for row in page.decision.rows) < 2:
        return None  # one alone is in the headline and in the next chart
    tells = words.goodput(page.decision)
    names = [row.label for row in page.decision.rows]
    orders = ([one.label for one in some] for some in (page.runs, page.sweeps))
    order = next((order for order in orders if set(names) <= set(order)), names)
    rows = [
        [
            row.label,
            NOTHING if row.gpus is None else str(row.gpus),
            *_estimate(row.goodput_per_s),
            *_estimate(row.goodput_per_gpu),
        ]
        for row in page.decision.rows
    ]
    return Section(
        "goodput",
        "How much each GPU serves",
        "Intervals that do not overlap decide; intervals that do, do not.",
        [panel("goodput", 1, goodput.goodput(page.decision.rows, order, description=tells), tells)],
        Table(["deployment", "GPUs", "goodput", "low", "high", "per GPU", "low", "high"], rows),
    )


def _estimate(found: Any) -> list[str]:
    if found is None:
        return [NOTHING] * 3
    prefix = {"estimate": "", "at_least": "≥ ", "below": "< "}[found.bound]
    return [
        prefix + digits(found.rate),
        *(NOTHING if edge is None else digits(edge) for edge in (found.low, found.high)),
    ]
