"""`goodput report`: the report of runs, a search, a comparison or a gate, again or in another form."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options
from loadtest.cli.output import say
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from metrics.rundir import Run
    from metrics.slo import SLO
    from metrics.summary import Summary
    from reports.page import PageData

FORMATS = ("html", "text", "json", "csv", "jsonl", "openmetrics", "svg", "png", "peers", "block")
FIGURES = "figures"
FOR_PEOPLE = ("text", "peers", "block")
# What other commands leave behind, besides run directories: file, and what can be made of it.
RESULTS = {"search.json": "search", "plan.json": "plan", "comparison.json": "comparison", "gate.json": "gate"}


@click.command(cls=options.Command)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="html", show_default=True, help="What to make."
)
@click.option("--slo", metavar="SLO", help="Judge by this SLO instead of the recorded one.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where to write.  [default: html in RUN, else stdout]",
)
@click.option(
    "--merge",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="DIR|FILE",
    help="Take a worker's journal into RUN first.",
)
@click.option("--json", "json", is_flag=True, help="The same as --format json.")
def report(
    runs: tuple[Path, ...], format_: str, slo: str | None, out: Path | None, merge: tuple[Path, ...], json: bool
) -> int:
    """Rebuild the report of one or several run directories, also of runs that crashed.

    RUN may also be the folder, or the file, of a search, a plan, a comparison or a gate (html, json, svg, png). svg and
    png write a file per figure; csv and jsonl a line per request; block is text to paste into an issue; peers is what
    vllm bench serve, AIPerf and GuideLLM would print of the same records.
    """
    format_ = "json" if json else format_
    _merge(runs, merge)
    result = _result(runs[0]) if len(runs) == 1 else None
    if result is not None:
        return _of_result(result, format_, out)
    loaded = _Loaded(runs, slo)
    if format_ == "html":
        return _html(loaded.page(), out or runs[0] / "report.html", loaded if slo is None else None)
    if format_ in ("svg", "png"):
        return _figures(loaded.page(), format_, out or runs[0] / FIGURES)
    if format_ == "text" and out is None:
        return loaded.show()
    _write(_lines(loaded, format_), out, document=format_ not in FOR_PEOPLE)
    return ExitCode.OK


def _merge(runs: tuple[Path, ...], sources: tuple[Path, ...]) -> None:
    """Journals that stayed on other machines, into the one run they belong to."""
    from loadtest.merging import merge_journals

    if sources and len(runs) != 1:
        raise UsageError("--merge takes journals into one run, not into several", code="merge")
    if sources:
        merged = merge_journals(runs[0], sources)
        again = f", {merged.known} of which the run had already and counts once" if merged.known else ""
        say(f"goodput: {merged.told} requests merged{again}", err=True)


class _Loaded:
    """Runs with their summaries, judged by one SLO, under labels that tell them apart."""

    def __init__(self, paths: tuple[Path, ...], slo: str | None) -> None:
        from metrics.rundir import load
        from metrics.summary import summarise

        loaded = _by_rate([(path, load(path)) for path in paths])
        self.paths = [path for path, _ in loaded]
        self.runs = [run for _, run in loaded]
        self.slo: SLO | None = options.parse_slo(_recorded_slo(self.runs) if slo is None else slo)
        self.summaries: list[Summary] = [summarise(run, self.slo) for run in self.runs]
        self.labels = _labels(self.runs)

    def page(self) -> PageData:
        from loadtest.cli import output
        from metrics import prediction
        from metrics.compare import RunSet, differences
        from metrics.sweep import sweeps_of
        from reports.pages import runs_page

        labelled = list(zip(self.labels, self.runs, strict=True))
        title = self.runs[0].info.name if len(self.runs) == 1 else f"{len(self.runs)} runs"
        sets = [RunSet(label, [run], self.slo) for label, run in labelled]
        foretold = [prediction.load(path, self.slo) for path in self.paths]
        views = output.views(labelled, self.summaries, self.slo, foretold, folders=self.paths)
        return runs_page(title, views, sweeps_of(self.runs, self.slo), differences(sets) if len(sets) > 1 else [])

    def show(self) -> int:
        """Text on the terminal."""
        from loadtest.cli import output
        from loadtest.cli.predicting import print_beside
        from metrics import prediction
        from metrics.bins import bins

        for path, run, summary in zip(self.paths, self.runs, self.summaries, strict=True):
            output.print_summary(summary, bins(run, self.slo))
            print_beside(summary, prediction.load(path, self.slo))
        return ExitCode.OK


def _lines(loaded: _Loaded, format_: str) -> Iterable[str]:
    """The text of a format that is one file."""
    if format_ in ("csv", "jsonl"):
        from metrics.requests import request_rows
        from reports import export

        rows = [(label, request_rows(run, loaded.slo)) for label, run in zip(loaded.labels, loaded.runs, strict=True)]
        return export.csv_lines(rows) if format_ == "csv" else export.jsonl_lines(rows)
    if format_ == "openmetrics":
        from reports.openmetrics import render_runs

        return [render_runs(list(zip(loaded.labels, loaded.summaries, strict=True)))]
    if format_ == "peers":
        from metrics.peers import peers
        from reports.peers import render_peers

        told = zip(loaded.runs, loaded.summaries, strict=True)
        return ["\n".join(render_peers(peers(run, loaded.slo), summary) for run, summary in told)]
    if format_ == "block":
        from reports.block import render_block

        return ["\n".join(render_block(summary) for summary in loaded.summaries)]
    if format_ == "text":
        return [_as_text(loaded)]
    return [_as_json(loaded.summaries[0] if len(loaded.summaries) == 1 else loaded.summaries)]


def _as_text(loaded: _Loaded) -> str:
    from io import StringIO

    from metrics.bins import bins
    from reports.escape import log
    from reports.text import console, render_text

    out = StringIO()
    for run, summary in zip(loaded.runs, loaded.summaries, strict=True):
        render_text(summary, console(out, width=80), bins(run, loaded.slo))
    return log(out.getvalue())


def _as_json(document: Any) -> str:
    import msgspec

    from reports.escape import json_document

    return json_document(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"


def _html(page: PageData, path: Path, refresh: _Loaded | None = None) -> int:
    """The page, and with it the summaries of its runs when they are judged as recorded."""
    from loadtest.cli import output
    from reports.page import render_html

    output.write_page(path, render_html(page))
    if refresh is not None:
        for folder, summary in zip(refresh.paths, refresh.summaries, strict=True):
            output.write_summary(folder, summary)
    say(str(path))
    return ExitCode.OK


def _figures(page: PageData, kind: Any, folder: Path) -> int:
    """A file per figure; prints their paths."""
    from metrics.storage import write_atomically
    from reports.export import figures

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in figures(page, kind):
        write_atomically(folder / name, content)
        written.append(folder / name)
    for path in written:
        say(str(path))
    return ExitCode.OK


def _print(lines: Iterable[str], *, document: bool) -> None:
    """What people read in the terminal's encoding; what programs read in UTF-8, whatever the terminal's is."""
    if document:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(line.encode(errors="replace") for line in lines)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.writelines(lines)


def _write(lines: Iterable[str], out: Path | None, *, document: bool) -> None:
    """To a file, whole or not at all, or to stdout."""
    if out is None:
        _print(lines, document=document)
        return
    temporary = out.with_name(out.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(lines)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _result(path: Path) -> Path | None:
    """The file of a search, a comparison or a gate; None for a run directory."""
    if path.is_file() and path.name in RESULTS:
        return path
    if not path.is_dir() or (path / "run.json").exists():
        return None
    return next((path / name for name in RESULTS if (path / name).exists()), None)


def _of_result(path: Path, format_: str, out: Path | None) -> int:
    """The page of what another command found."""
    from metrics.compare import Comparison
    from metrics.gate.report import GateReport
    from metrics.plan import PlanReport
    from metrics.search import SearchReport
    from metrics.storage import read_document
    from reports import pages
    from reports.openmetrics import render_openmetrics

    kinds: dict[str, tuple[Any, Callable[[Any], PageData]]] = {
        "search": (SearchReport, pages.search_page),
        "plan": (PlanReport, pages.plan_page),
        "comparison": (Comparison, pages.comparison_page),
        "gate": (GateReport, pages.gate_page),
    }
    kind = RESULTS[path.name]
    schema, paged = kinds[kind]
    found: Any = read_document(path, schema, "damaged_result")
    with _fitting(path):
        page = paged(found)
        if format_ == "html":
            return _html(page, out or path.with_suffix(".html"))
        if format_ in ("svg", "png"):
            return _figures(page, format_, out or path.parent / FIGURES)
    if format_ == "json":
        _write([_as_json(found)], out, document=True)
    elif format_ == "openmetrics" and kind == "gate":
        _write([render_openmetrics(found)], out, document=True)
    else:
        raise UsageError(
            f"a {kind} has no form {format_}", hint="it has html, json, svg and png; its runs have all", code="no_form"
        )
    return ExitCode.OK


@contextmanager
def _fitting(path: Path) -> Iterator[None]:
    """Whatever drawing trips over in a stored result is the fault of the file: a rule it does not hold, say."""
    from metrics.errors import MetricsError

    try:
        yield
    except (ArithmeticError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise MetricsError(
            f"{path} cannot be drawn: its parts do not fit together ({type(error).__name__})",
            hint="was it changed, or written by another version?",
            code="damaged_result",
        ) from error


def _recorded_slo(runs: list[Run]) -> str:
    """The SLO all runs were asked for; several different ones need a choice."""
    found = sorted({run.info.slo for run in runs})
    if len(found) > 1:
        raise UsageError("the runs were made with different SLOs", hint="choose one with --slo", code="different_slo")
    return found[0]


def _by_rate(runs: list[tuple[Path, Run]]) -> list[tuple[Path, Run]]:
    """Runs of one deployment by rising rate, however the shell sorted their folders; others as they were given."""
    one = len({run.info.deployment or run.info.target_url for _, run in runs}) == 1
    return sorted(runs, key=lambda found: found[1].info.rate_per_s or 0.0) if one else runs


def _labels(runs: list[Run]) -> list[str]:
    """What tells the deployments apart, else with their rate, else names, else numbered."""
    from metrics.names import short_names

    arrangements = short_names([run.info.deployment or run.info.target_url for run in runs])
    rated = [
        label if run.info.rate_per_s is None else f"{label} {run.info.rate_per_s:.3g}/s"
        for label, run in zip(arrangements, runs, strict=True)
    ]
    names = [run.info.name for run in runs]
    for labels in (arrangements, rated, names):
        if len(set(labels)) == len(labels) and all(labels):
            return labels
    return [f"{i} {name}".strip() for i, name in enumerate(names, 1)]
