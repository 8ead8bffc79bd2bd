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
from metrics.serverlines import ServerView
from metrics.summary import Summary
from metrics.sweep import Sweep
from reports import palette, tables, words
from reports.advice import Box
from reports.escape import html_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


FEW_RUNS = 4  # each of more is not worth a paragraph when nothing is wrong with it


class RunView(msgspec.Struct, kw_only=True):
    """One run as a page shows it; `label` names it in figures and must be short and unique in the page."""

    label: str
    summary: Summary
    bins: Bins
    predicted: Prediction | None = None
    server: ServerView | None = None  # what its own metrics pages said


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
    from reports import advice, method, sections, static
    from reports.sections import versus

    headline, caution = _headline(page)
    shown = sections.sections(page)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            headline=headline,
            caution=caution,
            subline=page.subline or _subline(page),
            light=palette.variables(palette.LIGHT),
            dark=palette.variables(palette.DARK),
            bundle=static.vega_bundle(),
            sections=shown,
            undrawn=_undrawn(page, sections.drawn(page)),
            boxes=[*page.boxes, *advice.of_gate(page.gate), *advice.of_comparison(page.comparison)],
            hints=advice.hints(page.runs[0]) if len(page.runs) == 1 else [],
            differences=versus.differences(page),
            decision=tables.decision(page.decision) if page.decision else None,
            cards=tables.cards(page.runs[0]) if len(page.runs) == 1 else [],
            latencies=tables.latencies(page.runs),
            methods=method.methods(page.runs),
            definitions=method.DEFINITIONS,
            soundness=_soundness(page),
            sound=words.listed(_quietly_sound(page)),
        )
    )


def _headline(page: PageData) -> tuple[str, str]:
    """The answer, and what to be careful of; a verdict and its one sentence stay together."""
    if page.headline:
        return page.headline, ""
    if page.gate is not None:
        return f"{page.gate.verdict}. {page.gate.sentence}", ""
    if page.comparison is not None:
        return page.comparison.sentence, ""
    if page.decision is not None:
        answer, stop, rest = page.decision.sentence.partition(". ")
        return answer + stop.strip() + words.leader(page.decision), rest
    if len(page.runs) == 1:
        return words.headline(page.runs[0].summary, page.runs[0].bins.certainty), ""
    unsound = [run.label for run in page.runs if run.summary.validity.verdict == "invalid"]
    caution = f"Do not use the figures of {words.listed(unsound)}: that measurement is not sound." if unsound else ""
    return words.headline_of_several([run.label for run in page.runs], [run.summary for run in page.runs]), caution


def _soundness(page: PageData) -> list[tuple[RunView, str, str, list[Box]]]:
    """Each run that is worth a paragraph, with its verdict, its time stamps and its findings."""
    from reports import advice

    told = [
        run for run in page.runs if len(page.runs) == 1 or run.summary.validity.findings or len(page.runs) <= FEW_RUNS
    ]
    findings = advice.said_once(advice.boxes(run.summary) for run in told)
    return [(run, words.soundness(run.summary), _stamps(run), boxes) for run, boxes in zip(told, findings, strict=True)]


def _stamps(run: RunView) -> str:
    """How well the client kept time; nothing of a simulation, which has no client."""
    return "" if words.simulated(run.summary) else tables.stamps(run.summary.validity)


def _quietly_sound(page: PageData) -> list[str]:
    """Of many runs those that nothing speaks against: a line for all of them."""
    if len(page.runs) <= FEW_RUNS:
        return []
    return [run.label for run in page.runs if not run.summary.validity.findings]


def _undrawn(page: PageData, drawn: list[RunView]) -> str:
    """Which runs have charts of their own, where there are too many for all of them."""
    if len(drawn) == len(page.runs):
        return ""
    names = words.listed([run.label for run in drawn])
    return (
        f"Charts of single runs show {len(drawn)} of the {len(page.runs)}: {names}. "
        "Latencies and Method have all of them; `goodput report RUN` draws any."
    )


def _subline(page: PageData) -> str:
    if len(page.runs) == 1 and page.decision is None:
        return words.subline(page.runs[0].summary, page.runs[0].bins.certainty)
    return words.common(page.decision, [run.summary for run in page.runs])


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, escaping everything; for this page and those of other modules."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=html_text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"json_text": json_text, "breakable": breakable, "capital": words.capital, "coded": coded}
    return environment


def breakable(text: str) -> Markup:
    """Text that may break after a comma, as deployments need; escaped."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(piece) for piece in re.split(r"(?<=,)(?=\S)", html_text(text)))


def coded(text: str) -> Markup:
    """Text whose `backticks` become code elements; escaped."""
    from markupsafe import Markup, escape

    pieces = html_text(text).split("`")
    marked = (f"<code>{escape(piece)}</code>" if i % 2 else str(escape(piece)) for i, piece in enumerate(pieces))
    return Markup("".join(marked))


def json_text(value: Any) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
