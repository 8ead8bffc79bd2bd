"""A search on a terminal of 80 columns: the table, what binds, and the sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metrics.goodput import GoodputEstimate, SweepGoodput
from metrics.names import shared_options
from metrics.search import SearchReport, SearchRow
from reports.escape import printable
from reports.numbers import NOTHING, THIN, count, digits, percent
from reports.search_words import headline, labels, ranked
from reports.text import paragraph
from reports.words import of_slo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WARNINGS = {
    "non_monotone": "attainment falls below the target and recovers: run {} again",
    "contradictory_repeats": "repeats disagree at {}: run them again",
    "unmeasured": "no attainment at {}: run them again",
}
HELD = {
    "failures": "not failed",
    "failed": "not failed",
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "end to end",
}
STOPPED = {"budget": "the budget ended the search before it was done"}


def render_search(report: SearchReport, console: Console) -> None:
    """Print a search: one row per deployment or value, then what it says in words."""
    console.print()
    console.print(paragraph(printable(headline(report)), console, "bold"))
    console.print(paragraph(_subline(report), console, "dim"))
    console.print()
    console.print(_table(report))
    for line in _lines(report):
        console.print(paragraph(printable(line), console))
    console.print()


def goodput(estimate: GoodputEstimate | None) -> str:
    """`3.21`, `at least 3.21` or `below 3.21`."""
    if estimate is None:
        return NOTHING
    prefix = {"estimate": "", "at_least": "at least ", "below": "below "}[estimate.bound]
    return prefix + digits(estimate.rate)


def interval(estimate: GoodputEstimate | None) -> str:
    """`2.9-3.5`."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return NOTHING
    return f"{digits(estimate.low)}-{digits(estimate.high)}"


def swept(found: SweepGoodput | None) -> str:
    """The highest that passed, as it may be said."""
    if found is None or found.bound == "unknown":
        return NOTHING
    if found.bound == "below":
        return f"below {digits(found.below_rate or 0.0, trim=True)}"
    return ("at least " if found.bound == "at_least" else "") + digits(found.rate or 0.0, trim=True)


def _subline(report: SearchReport) -> str:
    runs = sum(len(row.attempts) for row in report.rows)
    requests = sum(attempt.requests for row in report.rows for attempt in row.attempts)
    offered = f", {runs} runs, {count(requests)} requests" if runs else ""
    shared = shared_options([row.deployment for row in report.rows])
    asked = "" if report.slo in ("", "none") else f", {printable(of_slo(report.slo))}"
    common = f"; all with {shared}" if shared else ""
    return f"{report.trace}{asked}, {report.clock} clock, seed {report.seed}{offered}{common}"


def _table(report: SearchReport) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="dim")
    table.add_column(report.swept, overflow="fold", ratio=1)
    rows = ranked(report)
    cells = [_cells(report, row) for _, row in rows]
    for name in cells[0] if cells else ():
        table.add_column(name, justify="right", no_wrap=True)
    for (name, row), values in zip(rows, cells, strict=True):
        label = f"{'★ ' if row.best else ''}{row.value or name}"
        table.add_row(printable(label), *(value.replace(f"{THIN}%", "%") for value in values.values()))
    return table


def _cells(report: SearchReport, row: SearchRow) -> dict[str, str]:
    """The columns of a row; the same for all rows of a report."""
    cells = {"GPUs": count(row.gpus) if row.gpus is not None else NOTHING}
    if report.mode == "search":
        shown = row.goodput_per_gpu or row.goodput
        per = "per GPU" if row.goodput_per_gpu is not None else "req/s"
        cells |= {f"goodput\n{per}": goodput(shown), "95 %\ninterval": interval(shown)}
        cells["binds"] = row.binding or NOTHING
    elif report.mode == "slo-scale":
        scale = row.slo_scale
        known = scale is not None and scale.scale is not None
        cells["scale"] = f"x{digits(scale.scale)}" if scale is not None and scale.scale is not None else NOTHING
        both = known and scale is not None and scale.low is not None and scale.high is not None
        cells["95 %\ninterval"] = f"{digits(scale.low)}-{digits(scale.high)}" if both else NOTHING  # type: ignore[union-attr,arg-type]
    elif report.mode != "saturation":
        cells["users" if report.mode == "concurrency" else "passes"] = swept(row.sweep)
        bracket = row.sweep.bracket if row.sweep is not None else None
        cells["fails"] = digits(bracket[1], trim=True) if bracket is not None else NOTHING
    filled = row.saturation
    if any(other.saturation is not None for other in report.rows):
        cells["saturated\ntok/s/GPU"] = NOTHING if filled is None else digits(_per_gpu(row, filled.output_tokens_per_s))
    return cells


def _per_gpu(row: SearchRow, value: float) -> float:
    return value / row.gpus if row.gpus else value


def _lines(report: SearchReport) -> list[str]:
    """What the table has no room for."""
    lines = []
    for label, row in ranked(report):
        name = f"{row.value or label}: " if len(report.rows) > 1 else ""
        if row.marginals:
            held = ", ".join(f"{HELD.get(key, key)} {percent(share)}" for key, share in row.marginals.items())
            lines.append(
                f"{name}within each limit near goodput: {held}" if report.mode == "search" else f"{name}{held}"
            )
        if row.limit_rates:
            rates = ", ".join(
                f"{key} {digits(rate)}" for key, rate in sorted(row.limit_rates.items(), key=lambda i: i[1])
            )
            lines.append(f"{name}rate each limit alone allows: {rates}")
        phases = row.attempts[-1].phases_p90_s if row.attempts else {}
        if phases and len(report.rows) == 1:
            lines.append(
                "p90 of the last run: "
                + ", ".join(f"{k.removesuffix('_s')} {v * 1e3:.0f} ms" for k, v in phases.items())
            )
        if row.stopped:
            lines.append(f"{name}{STOPPED.get(row.stopped, row.stopped)}")
        for warning in row.sweep.warnings if row.sweep is not None else ():
            again = ", ".join(digits(rate, trim=True) for rate in row.sweep.retest) if row.sweep is not None else ""
            lines.append(f"! {name}{WARNINGS[warning].format(again)}")
    lines += [f"! {warning}" for warning in report.warnings]
    if report.mode == "rates":
        lines += _points(report)
    return ["", *lines] if lines else []


def _points(report: SearchReport) -> list[str]:
    return [
        f"{f'{row.value or label}: ' if len(report.rows) > 1 else ''}{digits(a.rate_per_s)}/s"
        f" {percent(a.good / a.total if a.total else None, report.share)} good"
        for row, label in zip(report.rows, labels(report), strict=True)
        for a in row.attempts
    ]
