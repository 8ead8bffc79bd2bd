"""What a command leaves behind and prints: summary.json, report.html, text or one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from metrics.decision import Decision
    from metrics.rundir import Run
    from metrics.slo import SLO
    from metrics.summary import Summary

SUMMARY, REPORT = "summary.json", "report.html"


def print_json(document: Any) -> None:
    """The one JSON document of a command on stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_summary(summary: Summary) -> None:
    """The result as text on stdout."""
    from reports.text import console, render_text

    render_text(summary, console())


def print_decision(decision: Decision) -> None:
    """A comparison as a table and a sentence on stdout."""
    from reports.text import console, render_decision

    render_decision(decision, console())


def write_json(path: Path, document: Any) -> None:
    """A JSON file, whole or not at all."""
    import msgspec

    from metrics.rundir import write_atomically

    write_atomically(path, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def write_summary(directory: Path, summary: Summary) -> None:
    """summary.json of a run directory."""
    write_json(directory / SUMMARY, summary)


def page(
    title: str,
    runs: Sequence[tuple[str, Run]],
    summaries: Sequence[Summary],
    slo: SLO | None,
    decision: Decision | None = None,
) -> str:
    """The HTML report of labelled runs and their summaries."""
    from metrics.bins import bins
    from reports.page import PageData, RunView, render_html

    views = [
        RunView(label=label, summary=summary, bins=bins(run, slo))
        for (label, run), summary in zip(runs, summaries, strict=True)
    ]
    return render_html(PageData(title=title, runs=views, decision=decision))


def write_page(path: Path, html: str) -> None:
    """A report file, whole or not at all."""
    from metrics.rundir import write_atomically

    write_atomically(path, html.encode())
