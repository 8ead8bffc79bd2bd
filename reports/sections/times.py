"""Times: how they are spread, and how they went over the run."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.bins import SHARES, Timeline
from reports import words
from reports.figures import distributions, timeline
from reports.figures.heat import heat as heat_figure
from reports.numbers import NOTHING, count, digits, percent, seconds
from reports.page import RunView
from reports.sections.section import WIDTHS, Section, Swatch, panel, series
from reports.tables import Table

TIMELINE_ROWS = 130
CURVES = {
    "ttft_s": "Time to first token",
    "tpot_s": "Time per output token",
    "itl_s": "Token gap",
    "e2e_s": "End to end",
}
TABLE_SHARES = (0.1, 0.5, 0.9, 0.95, 0.99, 0.999)


def distributions_section(runs: Sequence[RunView]) -> Section | None:
    """Each latency as a cumulative curve."""
    panels, rows = [], []
    for i, (name, title) in enumerate(CURVES.items(), 1):
        curves = [(run.label, curve) for run in runs if (curve := getattr(run.bins.curves, name)) is not None]
        if not curves:
            continue
        limit = getattr(runs[0].bins.targets, name, None)
        tells = words.distribution(curves, limit)
        chart = distributions.distribution(curves, limit, description=tells)
        panels.append(panel("distributions", i, chart, tells, caption=title, width=WIDTHS[2]))
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
        key=series([run.label for run in runs]),
        columns=2,
    )


def timeline_section(runs: Sequence[RunView]) -> Section | None:
    """Arrivals, requests in flight, TTFT and tokens on one time axis."""
    lines = [(run.label, run.bins.timeline) for run in runs if run.bins.timeline is not None]
    if not lines:
        return None
    span = max(found.start_s[-1] + found.width_s for _, found in lines)
    tells = words.of_each([(label, words.timeline(found)) for label, found in lines])
    limit = runs[0].bins.targets.ttft_s
    charts = [
        timeline.arrivals(lines, span, description="Requests due per second."),
        timeline.in_flight(lines, span, description=tells),
    ]
    if any(value is not None for _, found in lines for value in found.ttft_p50_s):
        told = "TTFT of the requests due in each bin."
        charts.append(timeline.first_tokens(lines, span, limit, description=told))
    with_tokens = [(label, found) for label, found in lines if any(found.output_tokens_per_s or ())]
    if with_tokens:
        charts.append(timeline.token_rate(with_tokens, span, description="Output tokens per second."))
    captions = ["", tells, "", "", ""]
    if len(lines) == 1 and (found := runs[0].bins.heat) is not None:
        captions[len(charts)] = "Every answer, not a percentile: a second band or a rising one is a kind of request."
        charts.append(heat_figure(found, span, limit, description="Answers by when they were due and by TTFT."))
    return Section(
        "timeline",
        "Over time",
        "A burst of arrivals should pass through; requests in flight that only grow mean the server is overloaded.",
        [panel("timeline", i, chart, captions[i - 1]) for i, chart in enumerate(charts, 1)],
        Table(
            ["run", "from", "arrivals", "in flight", "not ended well", "TTFT p50", "TTFT p90", "tokens/s"],
            [row for label, found in lines for row in _timeline_rows(label, found)],
        ),
        key=[*series([run.label for run in runs]), *_failure_key(lines)],
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
