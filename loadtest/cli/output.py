"""What a command leaves behind and prints: summary.json, report.html, text or one JSON document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.errors import UsageError
from reports.escape import json_document, log, printable_lines

if TYPE_CHECKING:
    from metrics.bins import Bins
    from metrics.decision import Decision
    from metrics.prediction import Prediction
    from metrics.rundir import Run
    from metrics.serverlines import ServerView
    from metrics.slo import SLO
    from metrics.summary import Summary
    from metrics.sweep import Sweep
    from reports.page import RunView

SUMMARY, REPORT = "summary.json", "report.html"


def say(text: str = "", *, err: bool = False) -> None:
    """Lines on stdout or stderr; whatever is in them steers neither a terminal nor the CI that keeps its log."""
    click.echo(log(printable_lines(text)), err=err)


def say_commands(text: str) -> None:
    """Workflow commands of ours for the CI whose step this is, on stderr."""
    from loadtest import secrets

    click.echo(secrets.mask(text).encode(), err=True, nl=False)


def print_json(document: Any) -> None:
    """The one JSON document of a command on stdout."""
    import msgspec

    from loadtest import secrets

    click.echo(json_document(msgspec.json.format(secrets.masked_json(document), indent=2).decode()).encode())


def print_columns(title: str, lines: Sequence[Sequence[str]]) -> None:
    """Rows of cells under a title on stdout: the first column to the left, the others to the right."""
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    say(f"\n{title}")
    for name, *cells in lines:
        columns = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        say(f"  {name:<{widths[0]}}{columns}")


def print_summary(summary: Summary, bins: Bins | None = None) -> None:
    """The result as text on stdout, with small charts where there are bins."""
    from reports.text import console, render_text

    render_text(summary, console(), bins)


def print_decision(decision: Decision) -> None:
    """A comparison as a table and a sentence on stdout."""
    from reports.text import console, render_decision

    render_decision(decision, console())


def write_json(path: Path, document: Any) -> None:
    """A JSON file, whole or not at all."""
    import msgspec

    from loadtest import secrets
    from metrics.storage import write_atomically

    write_atomically(_named(path), msgspec.json.format(secrets.masked_json(document), indent=2) + b"\n")


def write_summary(directory: Path, summary: Summary) -> None:
    """summary.json of a run directory."""
    write_json(directory / SUMMARY, summary)


def page(
    title: str,
    runs: Sequence[tuple[str, Run]],
    summaries: Sequence[Summary],
    slo: SLO | None,
    decision: Decision | None = None,
    predictions: Sequence[Prediction | None] = (),
    sweeps: Sequence[Sweep] = (),
) -> str:
    """The HTML report of labelled runs and their summaries; `predictions` are in the order of the runs."""
    from reports.page import PageData, render_html
    from reports.pages import bills_of

    seen = views(runs, summaries, slo, predictions)
    return render_html(PageData(title=title, runs=seen, decision=decision, sweeps=list(sweeps), bills=bills_of(seen)))


def views(
    runs: Sequence[tuple[str, Run]],
    summaries: Sequence[Summary],
    slo: SLO | None,
    predictions: Sequence[Prediction | None] = (),
    folders: Sequence[Path] = (),
) -> list[RunView]:
    """Labelled runs as a page shows them, with what their servers said where `folders` hold it."""
    from metrics.bins import bins
    from reports.page import RunView

    foretold = [*predictions, *[None] * (len(runs) - len(predictions))]
    told = [_server(run, folder) for (_, run), folder in zip(runs, folders, strict=True)] if folders else []
    told += [None] * (len(runs) - len(told))
    return [
        RunView(label=label, summary=summary, bins=bins(run, slo), predicted=predicted, server=server)
        for (label, run), summary, predicted, server in zip(runs, summaries, foretold, told, strict=True)
    ]


def _server(run: Run, folder: Path) -> ServerView | None:
    """The samples of the server's metrics pages in a run directory; None without any."""
    from metrics.probes import load
    from metrics.serverlines import server_view

    probes = load(folder)
    return None if probes is None else server_view(run, probes)


def write_page(path: Path, html: str) -> None:
    """A report file, whole or not at all."""
    from metrics.storage import write_atomically

    write_atomically(_named(path), html.encode(errors="replace"))


def _named(path: Path) -> Path:
    if path.name in ("", ".."):
        raise UsageError(f"cannot write {path}: it is a folder, not a file", code="output_unusable")
    return path


def draw_page(path: Path, draw: Callable[[], str]) -> bool:
    """Write the page that `draw` makes beside results that are on the disk already; whether it could be drawn.

    A page is only a view: what stops it is said, and neither loses the results nor decides how the command ends.
    """
    from loadtest.cli.bug import told
    from metrics.errors import MetricsError

    try:
        write_page(path, draw())
    except (KeyboardInterrupt, SystemExit):
        raise
    except MetricsError as error:  # the disk
        why = error.message
    except OSError as error:
        why = error.strerror or str(error)
    except BaseException as error:
        why = told(error)
    else:
        return True
    say(f"goodput: {path} could not be drawn: {why}\n         the results beside it are whole", err=True)
    return False
