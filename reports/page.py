"""One self-contained HTML file from metric objects: nothing is fetched, nothing is computed."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from metrics.bins import Bins
from metrics.compare import Comparison, Difference
from metrics.decision import Decision
from metrics.energy import Economy
from metrics.gate.report import GateReport
from metrics.plan import PlanReport
from metrics.prediction import Prediction
from metrics.search import SearchReport
from metrics.summary import Summary
from metrics.sweep import Sweep
from reports import palette, words
from reports.advice import Box

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


class RunView(msgspec.Struct, kw_only=True):
    """One run as a page shows it; `label` names it in figures and must be short and unique in the page."""

    label: str
    summary: Summary
    bins: Bins
    predicted: Prediction | None = None


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """What one deployment costs, and under which load."""

    label: str
    economy: Economy


class PageData(msgspec.Struct, kw_only=True):
    """A page: one run or several on the same axes, and what was made of them: decision, search, comparison or gate."""

    title: str
    runs: list[RunView] = []
    decision: Decision | None = None
    sweeps: list[Sweep] = []
    search: SearchReport | None = None
    plan: PlanReport | None = None
    comparison: Comparison | None = None
    differences: list[Difference] = []  # of the runs' set-up, one value per run
    gate: GateReport | None = None
    bills: list[Bill] = []
    boxes: list[Box] = []
    facts: list[tuple[str, str]] = []  # of the page as a whole, for its method section
    command: str = ""
    headline: str = ""  # empty: said by the gate, the comparison, the decision, or the runs
    subline: str = ""


def render_html(page: PageData) -> str:
    """The page as text; the same page gives the same bytes."""
    from reports import advice, method, sections, static, tables
    from reports.sections import versus

    return (
        environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            headline=page.headline or _headline(page),
            subline=page.subline or _subline(page),
            light=palette.variables(palette.LIGHT),
            dark=palette.variables(palette.DARK),
            bundle=static.vega_bundle(),
            sections=sections.sections(page),
            boxes=[*page.boxes, *advice.of_gate(page.gate), *advice.of_comparison(page.comparison)],
            hints=advice.hints(page.runs[0]) if len(page.runs) == 1 else [],
            differences=versus.differences(page),
            decision=tables.decision(page.decision) if page.decision else None,
            cards=tables.cards(page.runs[0]) if len(page.runs) == 1 else [],
            latencies=tables.latencies(page.runs),
            methods=[method.method(run) for run in page.runs],
            definitions=method.DEFINITIONS,
            soundness=[
                (run, words.soundness(v := run.summary.validity), tables.stamps(v), advice.boxes(run.summary))
                for run in page.runs
            ],
        )
    )


def _headline(page: PageData) -> str:
    if page.gate is not None:
        return f"{page.gate.verdict}. {page.gate.sentence}"
    for found in (page.comparison, page.decision):
        if found is not None:
            return found.sentence
    if len(page.runs) == 1:
        return words.headline(page.runs[0].summary)
    return words.headline_of_several([run.label for run in page.runs], [run.summary for run in page.runs])


def _subline(page: PageData) -> str:
    if len(page.runs) == 1 and page.decision is None:
        return words.subline(page.runs[0].summary)
    return words.common(page.decision, [run.summary for run in page.runs])


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, escaping everything; for this page and those of other modules."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"json_text": json_text, "breakable": breakable, "capital": words.capital, "coded": coded}
    return environment


def breakable(text: str) -> Markup:
    """Text that may break after a comma, as deployments need; escaped."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(piece) for piece in re.split(r"(?<=,)(?=\S)", text))


def coded(text: str) -> Markup:
    """Text whose `backticks` become code elements; escaped."""
    from markupsafe import Markup, escape

    pieces = text.split("`")
    marked = (f"<code>{escape(piece)}</code>" if i % 2 else str(escape(piece)) for i, piece in enumerate(pieces))
    return Markup("".join(marked))


def json_text(value: Any) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
