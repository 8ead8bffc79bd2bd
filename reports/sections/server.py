"""What the server said of itself: queue, running requests, KV cache and preemptions, and its figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.probes import Comparison
from metrics.serverlines import GAUGES, PoolLine
from reports import words
from reports.figures.server import TITLES, server_line
from reports.numbers import NOTHING, data_size, digits, percent, seconds
from reports.page import RunView
from reports.sections.section import Panel, Section, panel, series
from reports.tables import Table


def server_section(runs: Sequence[RunView]) -> Section | None:
    """A chart per quantity with a line per pool, and the client against the server; None without probes."""
    told = [(run, run.server) for run in runs if run.server is not None]
    if not told:
        return None
    lines = [(_label(runs, run, line.pool), line) for run, server in told for line in server.lines]
    labels = list(dict.fromkeys(label for label, _ in lines))
    span = max([1.0, *(line.at_s[-1] for _, line in lines), *(_span(run) for run, _ in told)])
    panels: list[Panel] = []
    for quantity in (*GAUGES, "preemptions"):
        mine = {label: line for label, line in lines if line.quantity == quantity}
        if not mine:
            continue
        tells = _words(quantity, mine)
        # A pool without this quantity keeps its colour in the others.
        drawn = [mine.get(label, PoolLine(label, quantity, [], [])) for label in labels]
        panels.append(panel("server", len(panels) + 1, server_line(drawn, labels, span, description=tells), tells))
    return Section(
        "server",
        "What the server said meanwhile",
        "A queue in the server explains late first tokens; a full KV cache and preemptions explain slow ones.",
        panels,
        _table([(run.label, server.table) for run, server in told]),
        key=series(labels),
        unfolded=True,
        note="Sampled from the server's own metrics pages. Where client and server differ, the way between them, or a "
        f"definition, lies in the difference.{_warm_up(told)}",
    )


def _warm_up(told: Sequence[tuple[RunView, object]]) -> str:
    if not any(run.summary.run.warmup_s for run, _ in told):
        return ""
    return " The client's figures leave out the warm-up; the server's have it in them."


def _label(runs: Sequence[RunView], run: RunView, pool: str) -> str:
    return f"{run.label}: {pool}" if len(runs) > 1 and pool else pool or run.label


def _span(run: RunView) -> float:
    line = run.bins.timeline
    return 0.0 if line is None else line.start_s[-1] + line.width_s


def _words(quantity: str, lines: dict[str, PoolLine]) -> str:
    peaks = []
    for label, line in lines.items():
        most = max(line.value)
        at = line.at_s[line.value.index(most)]
        shown = percent(most) if quantity == "kv_usage" else digits(most, trim=True)
        peaks.append(f"{label} {shown} (at {at:.3g} s)" if most else f"{label} none")
    return f"{words.capital(TITLES[quantity])}, at most: {words.listed(peaks)}."


def _table(told: Sequence[tuple[str, Sequence[Comparison]]]) -> Table:
    pools = list(dict.fromkeys(pool for _, lines in told for line in lines for pool in line.servers))
    rows = [
        [label, line.quantity, *(_cell(v, line.unit) for v in (line.client, *(line.servers.get(p) for p in pools)))]
        for label, lines in told
        for line in lines
    ]
    headers = ["run", "quantity", "client", *(pool or "server" for pool in pools)]
    return Table(headers, rows) if len(told) > 1 else Table(headers[1:], [row[1:] for row in rows])


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return NOTHING
    if unit == "s":
        return seconds(value)
    if unit == "bytes":
        return data_size(value)
    return percent(value) if unit == "share" else f"{value:,.0f}"
