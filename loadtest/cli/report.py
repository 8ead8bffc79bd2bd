"""`goodput report`: rebuild the report of finished, stopped or crashed runs from their directories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadtest.cli import options
from loadtest.errors import ExitCode

if TYPE_CHECKING:
    from metrics.rundir import Run


@click.command(cls=options.Command)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["html", "text", "json"]),
    default="html",
    show_default=True,
    help="What to make.",
)
@click.option("--slo", metavar="SLO", help="Judge by this SLO instead of the recorded one.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="HTML file.  [default: in RUN]")
@click.option("--json", "json", is_flag=True, help="The same as --format json.")
def report(runs: tuple[Path, ...], format_: str, slo: str | None, out: Path | None, json: bool) -> int:
    """Rebuild the report of one or several run directories, also of runs that crashed."""
    from loadtest.cli import output
    from metrics.rundir import load
    from metrics.summary import summarise

    loaded = [load(path) for path in runs]
    target = options.parse_slo(slo or _recorded_slo(loaded))
    summaries = [summarise(run, target) for run in loaded]
    if json or format_ == "json":
        output.print_json(summaries[0] if len(summaries) == 1 else summaries)
        return ExitCode.OK
    if format_ == "text":
        for summary in summaries:
            output.print_summary(summary)
        return ExitCode.OK
    labelled = list(zip(_labels(loaded), loaded, strict=True))
    title = loaded[0].info.name if len(loaded) == 1 else f"{len(loaded)} runs"
    path = out or runs[0] / output.REPORT
    output.write_page(path, output.page(title, labelled, summaries, target))
    if slo is None:
        for folder, summary in zip(runs, summaries, strict=True):
            output.write_summary(folder, summary)
    click.echo(path)
    return ExitCode.OK


def _recorded_slo(runs: list[Run]) -> str:
    """The SLO all runs were asked for; several different ones need a choice."""
    from loadtest.errors import UsageError

    found = sorted({run.info.slo for run in runs})
    if len(found) > 1:
        raise UsageError("the runs were made with different SLOs", hint="choose one with --slo", code="different_slo")
    return found[0]


def _labels(runs: list[Run]) -> list[str]:
    """Arrangements where they tell the runs apart, else names."""
    labels = [run.info.arrangement or run.info.target_url for run in runs]
    return labels if len(set(labels)) == len(labels) else [run.info.name for run in runs]
