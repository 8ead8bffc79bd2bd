"""What a command leaves behind and prints: summary.json, report.html, text or one JSON document."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from metrics.decision import Decision
    from metrics.rundir import Run
    from metrics.slo import SLO
    from metrics.summary import Summary

SUMMARY, REPORT = "summary.json", "report.html"
WIDTH = 80


def console() -> Console:
    """stdout as rich sees it: 80 columns unless the terminal is narrower; plain when it is none."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = min(os.get_terminal_size().columns, 120) if terminal else WIDTH
    return Console(width=width, no_color=bool(os.environ.get("NO_COLOR")) or None, highlight=False)


def print_json(document: Any) -> None:
    """The one JSON document of a command on stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_summary(summary: Summary) -> None:
    """The result as text on stdout."""
    from reports.text import render_text

    render_text(summary, console())


def write_summary(directory: Path, summary: Summary) -> None:
    """summary.json of a run directory."""
    import msgspec

    from metrics.rundir import write_atomically

    write_atomically(directory / SUMMARY, msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")


def page(
    title: str,
    runs: Sequence[tuple[str, Run]],
    summaries: Sequence[Summary],
    slo: SLO | None,
    decision: Decision | None = None,
) -> str:
    """The HTML report of labelled runs and their summaries."""
    from reports.page import PageData, RunView, render_html

    from metrics.bins import bins

    views = [
        RunView(label=label, summary=summary, bins=bins(run, slo))
        for (label, run), summary in zip(runs, summaries, strict=True)
    ]
    return render_html(PageData(title=title, runs=views, decision=decision))


def write_page(path: Path, html: str) -> None:
    """A report file, whole or not at all."""
    from metrics.rundir import write_atomically

    write_atomically(path, html.encode())
