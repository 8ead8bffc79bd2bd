"""The sections of a page in reading order: each figure with what to look for, what it shows, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from altair.utils.schemapi import debug_mode

from metrics.bins import SHARES, Timeline
from reports import words
from reports.figures import distributions, goodput, interference, outcomes, quadrants, timeline, worst
from reports.figures.theme import Chart
from reports.numbers import NOTHING, count, digits, percent, seconds
from reports.page import PageData, RunView
from reports.palette import PART_NAMES, series_colour, series_dash
from reports.static import svg
from reports.tables import Table

STILL_BUDGET = 180_000  # characters of SVG per chart and run; larger charts are left to script and table
WIDTHS = {1: 1000, 2: 480, 3: 320}  # of a chart drawn without script, by charts side by side
TIMELINE_ROWS = 130
CURVES = {
    "ttft_s": "Time to first token",
    "tpot_s": "Time per output token",
    "itl_s": "Token gap",
    "e2e_s": "End to end",
}
TABLE_SHARES = (0.1, 0.5, 0.9, 0.95, 0.99, 0.999)


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


def sections(page: PageData) -> list[Section]:
    """All sections that have something to show."""
    # Altair would check every part of every chart against its schema; our tests do that, users need not wait for it.
    with debug_mode(False):
        made = [
            _goodput(page),
            _outcomes(page.runs),
            _quadrants(page.runs),
            _distributions(page.runs),
            _timeline(page.runs),
            _interference(page.runs),
            _worst(page.runs),
        ]
    limit = STILL_BUDGET // len(page.runs)
    return [_lightened(section, limit) for section in made if section is not None]


def _lightened(section: Section, limit: int) -> Section:
    """Without the drawings that would make the file heavy: the script draws those, and the table tells them."""
    return replace(section, panels=[p if len(p.still) <= limit else replace(p, still="") for p in section.panels])


def _panel(section: str, number: int, chart: Chart, tells: str, *, caption: str = "", width: int = WIDTHS[1]) -> Panel:
    spec: dict[str, Any] = chart.to_dict(validate=False)
    name = f"{section}-{number}"
    return Panel(name, words.capital(caption), tells, spec, svg(spec, width=width, ids=name))


def _goodput(page: PageData) -> Section | None:
    if page.decision is None or not any(row.goodput_per_gpu for row in page.decision.rows):
        return None
    tells = words.goodput(page.decision)
    order = [run.label for run in page.runs]
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
        [_panel("goodput", 1, goodput.goodput(page.decision.rows, order, description=tells), tells)],
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


def _outcomes(runs: Sequence[RunView]) -> Section | None:
    known = [(run.label, run.bins.quadrants) for run in runs if run.bins.quadrants is not None]
    share = next((run.bins.targets.share for run in runs if run.bins.targets.share is not None), None)
    if not known or share is None:
        return None
    tells = words.of_each([(label, words.outcomes(q)) for label, q in known])
    parts = {name: [outcomes.counts(q)[part] for _, q in known] for part, name in PART_NAMES.items()}
    rows = [
        [label, *(count(ns[i]) for ns in parts.values()), count(q.total), percent(q.ok / q.total, share)]
        for i, (label, q) in enumerate(known)
    ]
    return Section(
        "outcomes",
        "What became of every request",
        "Good requests should reach the target line; the colour after them says what is missed.",
        [_panel("outcomes", 1, outcomes.outcomes(known, share, description=tells), tells)],
        Table(["run", *parts, "planned", "attainment"], rows),
        key=[Swatch(name, f"var(--{part})", square=True) for part, name in PART_NAMES.items() if any(parts[name])],
    )


def _quadrants(runs: Sequence[RunView]) -> Section | None:
    extent = quadrants.common_extent([run.bins for run in runs])
    if extent is None:
        return None
    columns = min(3, len(runs))
    panels, rows = [], []
    for i, run in enumerate(runs, 1):
        found = run.bins.density
        if found is None:
            continue
        tells = words.density(found)
        chart = quadrants.quadrants(found, run.bins.quadrants, run.bins.targets, extent, description=tells)
        panels.append(_panel("quadrants", i, chart, tells, caption=_named(runs, run.label), width=WIDTHS[columns]))
        rows += quadrants.table(run.label, found)
    return Section(
        "quadrants",
        "Where requests fail",
        "Lower left is good. A cloud to the right waits for its first token; a cloud at the top decodes slowly.",
        panels,
        Table(["run", "first token", "per token", "requests"], rows),
        key=[Swatch(PART_NAMES[part], f"var(--{part})", square=True) for part in ("good", "late", "slow", "both")],
        columns=columns,
    )


def _distributions(runs: Sequence[RunView]) -> Section | None:
    panels, rows = [], []
    for i, (name, title) in enumerate(CURVES.items(), 1):
        curves = [(run.label, curve) for run in runs if (curve := getattr(run.bins.curves, name)) is not None]
        if not curves:
            continue
        limit = getattr(runs[0].bins.targets, name, None)
        tells = words.distribution(curves, limit)
        chart = distributions.distribution(curves, limit, description=tells)
        panels.append(_panel("distributions", i, chart, tells, caption=title, width=WIDTHS[2]))
        rows += [
            [
                label,
                title.lower(),
                count(c.n),
                *(seconds(c.quantile_s[SHARES.index(q)]) for q in TABLE_SHARES),
                percent(c.within_target),
            ]
            for label, c in curves
        ]
    if not panels:
        return None
    return Section(
        "distributions",
        "How the times are spread",
        "A curve should cross its target line above the share to reach; a long right end is a tail users feel.",
        panels,
        Table(["run", "latency", "n", "p10", "p50", "p90", "p95", "p99", "p99.9", "within target"], rows),
        key=_series(runs),
        columns=2,
    )


def _timeline(runs: Sequence[RunView]) -> Section | None:
    lines = [(run.label, run.bins.timeline) for run in runs if run.bins.timeline is not None]
    if not lines:
        return None
    span = max(found.start_s[-1] + found.width_s for _, found in lines)
    tells = words.of_each([(label, words.timeline(found)) for label, found in lines])
    limit = runs[0].bins.targets.ttft_s
    charts = [
        timeline.arrivals(lines, span, description="Requests due per second."),
        timeline.in_flight(lines, span, description=tells),
        timeline.first_tokens(lines, span, limit, description="TTFT of the requests due in each bin."),
    ]
    with_tokens = [(label, found) for label, found in lines if found.output_tokens_per_s is not None]
    if with_tokens:
        charts.append(timeline.token_rate(with_tokens, span, description="Output tokens per second."))
    captions = ["", tells, "", ""]
    return Section(
        "timeline",
        "Over time",
        "A burst of arrivals should pass through; requests in flight that only grow mean the server is overloaded.",
        [_panel("timeline", i, chart, captions[i - 1]) for i, chart in enumerate(charts, 1)],
        Table(
            ["run", "from", "arrivals", "in flight", "not ended well", "TTFT p50", "TTFT p90", "tokens/s"],
            [row for label, found in lines for row in _timeline_rows(label, found)],
        ),
        key=[*_series(runs), *_failure_key(lines)],
    )


def _failure_key(lines: timeline.Lines) -> list[Swatch]:
    lost = any(any(found.failed) for _, found in lines)
    return [Swatch("did not end well", "var(--invalid)", cross=True)] if lost else []


def _timeline_rows(label: str, found: Timeline) -> list[list[str]]:
    tokens: Sequence[float | None] = found.output_tokens_per_s or [None] * len(found.start_s)
    columns = (found.start_s, found.arrivals, found.in_flight, found.failed, found.ttft_p50_s, found.ttft_p90_s, tokens)
    return [
        [
            label,
            f"{at:g} s",
            count(n),
            digits(flying),
            count(failed),
            seconds(p50),
            seconds(p90),
            NOTHING if t is None else digits(t),
        ]
        for at, n, flying, failed, p50, p90, t in zip(*columns, strict=True)
    ][:TIMELINE_ROWS]


def _interference(runs: Sequence[RunView]) -> Section | None:
    known = [(run.label, run.bins.interference) for run in runs if run.bins.interference is not None]
    if not known:
        return None
    medians = [gap for _, found in known for gap in found.p50_s if gap is not None]
    longest = [gap for _, found in known for gap in found.max_s if gap is not None]
    columns = min(3, len(known))
    panels, rows = [], []
    for i, (label, found) in enumerate(known, 1):
        tells = words.interference(found)
        chart = interference.interference(found, (min(medians), max(longest)), description=tells)
        panels.append(_panel("interference", i, chart, tells, caption=_named(runs, label), width=WIDTHS[columns]))
        rows += [
            [label, f"{at:+.3f} s", count(n), seconds(p50), seconds(p99), seconds(most)]
            for at, n, p50, p99, most in zip(
                found.offset_s, found.n, found.p50_s, found.p99_s, found.max_s, strict=True
            )
            if n
        ]
    return Section(
        "interference",
        "What an arriving prompt does to the others",
        "Flat lines: prefill leaves running requests alone. A step up after zero: their tokens wait for it.",
        panels,
        Table(["run", "since the arrival", "gaps", "p50", "p99", "longest"], rows),
        key=[
            Swatch("median gap", "var(--accent)"),
            Swatch("p99", "var(--slow)", dash="6 3"),
            Swatch("longest", "var(--late)", square=True),
        ],
        columns=columns,
    )


def _worst(runs: Sequence[RunView]) -> Section | None:
    known = [(run.label, run.bins.worst_gap) for run in runs if run.bins.worst_gap is not None]
    if not known:
        return None
    panels = []
    rows = []
    for i, (label, found) in enumerate(known, 1):
        tells = words.worst_gap(found)
        panels.append(_panel("worst", i, worst.worst_gap(found, description=tells), tells, caption=_named(runs, label)))
        rows += [
            [
                label,
                f"token {found.index + 1} after",
                seconds(found.gap_s),
                f"{found.ends_s:.3f} s",
                count(found.request_id),
            ]
        ]
        rows += [
            [label, "prompt sent", f"{a.prompt_tokens:,} tokens", f"{a.at_s:.3f} s", count(a.request_id)]
            for a in found.arrivals
        ]
    return Section(
        "worst",
        "The worst wait, token by token",
        "Each tick is a token of the request that waited longest; circles are prompts others sent, sized by length.",
        panels,
        Table(["run", "what", "how much", "at", "request"], rows),
    )


def _named(runs: Sequence[RunView], label: str) -> str:
    return label if len(runs) > 1 else ""


def _series(runs: Sequence[RunView]) -> list[Swatch]:
    if len(runs) == 1:
        return []
    return [Swatch(run.label, series_colour(i), dash=" ".join(map(str, series_dash(i)))) for i, run in enumerate(runs)]
