"""One self-contained HTML file from metric objects: nothing is fetched, nothing is computed."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from metrics.bins import Bins
from metrics.decision import Decision
from metrics.summary import Summary
from reports import palette, words

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


class RunView(msgspec.Struct, kw_only=True):
    """One run as a page shows it; `label` names it in figures and must be short and unique in the page."""

    label: str
    summary: Summary
    bins: Bins


class PageData(msgspec.Struct, kw_only=True):
    """A page: one run, or several on the same axes, with the decision between them when there is one."""

    title: str
    runs: list[RunView]
    decision: Decision | None = None
    headline: str = ""  # empty: said by the decision, or by the run


def render_html(page: PageData) -> str:
    """The page as text; the same page gives the same bytes."""
    from reports import method, sections, static, tables

    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            headline=page.headline or _headline(page),
            subline=_subline(page),
            light=palette.variables(palette.LIGHT),
            dark=palette.variables(palette.DARK),
            bundle=static.vega_bundle(),
            sections=sections.sections(page),
            decision=tables.decision(page.decision) if page.decision else None,
            cards=tables.cards(page.runs[0]) if len(page.runs) == 1 else [],
            latencies=tables.latencies(page.runs),
            methods=[method.method(run) for run in page.runs],
            definitions=method.DEFINITIONS,
            soundness=[(run, words.soundness(v := run.summary.validity), tables.stamps(v)) for run in page.runs],
        )
    )


def _headline(page: PageData) -> str:
    if page.decision is not None:
        return page.decision.sentence
    if len(page.runs) == 1:
        return words.headline(page.runs[0].summary)
    return words.headline_of_several([run.label for run in page.runs], [run.summary for run in page.runs])


def _subline(page: PageData) -> str:
    if len(page.runs) == 1 and page.decision is None:
        return words.subline(page.runs[0].summary)
    return words.common(page.decision, [run.summary for run in page.runs])


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"json_text": json_text, "breakable": breakable, "capital": words.capital}
    return environment


def breakable(text: str) -> Markup:
    """Text that may break after a comma, as deployments need; escaped."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(piece) for piece in re.split(r"(?<=,)(?=\S)", text))


def json_text(value: Any) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
