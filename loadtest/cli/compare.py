"""`goodput compare`: several run sets or deployments side by side, paired by run and by request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import load_options, options
from loadtest.cli.load_options import load_options as with_load_options
from loadtest.cli.output import say
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.pairs import Replay
    from loadtest.sides import Side, StoredSide
    from metrics.compare import Comparison, RunSet
    from metrics.rundir import Run
    from metrics.slo import SLO

COMPARISON = "comparison.json"


@click.command(cls=options.Command)
@click.argument("sides", nargs=-1, metavar="SIDE...")
@click.option(
    "--launch",
    cls=options.SeveralOption,
    as_argument=True,
    metavar="FILE...",
    help="Sides described by launch files, as in --launch examples/*.toml.",
)
@click.option("--metric", "metrics", multiple=True, metavar="METRIC", help="Only these, e.g. ttft.p90.")
@click.option(
    "--pairs", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Runs of each side, interleaved."
)
@click.option(
    "--metrics-url",
    multiple=True,
    metavar="SIDE.[POOL=]URL",
    help="Prometheus page to sample beside a side's runs, e.g. A.http://HOST:PORT/metrics.",
)
@click.option("--definitions", is_flag=True, help="Also print each side as other tools would count it.")
@with_load_options
@click.pass_context
def compare(context: click.Context, /, **given: Any) -> int:
    """Compare run sets or deployments with the first of them.

    SIDE is a run directory, a folder of them, a URL, or a deployment like emulated:chunked,instances=2. Servers are
    measured in turn on the same arrivals; stored runs must have replayed one schedule.
    """
    texts = [*given["sides"], *given["launch"]]
    if len(texts) < 2:
        raise UsageError("a comparison needs two sides", hint="goodput compare A B", code="too_few_sides")
    slo = options.parse_slo(given["slo"])
    return _run(context, given, [load_options.side_of(text, given, slo) for text in texts], slo)


def _run(context: click.Context, given: dict[str, Any], sides: list[Side | StoredSide], slo: SLO | None) -> int:
    from loadtest.sides import StoredSide
    from metrics.compare import check_metrics
    from metrics.compare import compare as compare_sets

    check_metrics(given["metrics"])
    pages = _pages(given["metrics_url"], sides)
    given_runs = [side for side in sides if isinstance(side, StoredSide)]
    if given_runs and len(given_runs) < len(sides):
        raise UsageError("stored runs and servers cannot be compared in one go", hint="goodput gate can", code="mixed")
    if given_runs:
        sets, folders = _stored_sets(given_runs, slo), [side.folders[0] for side in given_runs]
    else:
        live = [side for side in sides if not isinstance(side, StoredSide)]
        sets, folders = _measured_sets(context, given, live, slo, pages)
    found = compare_sets(sets, given["metrics"])
    return _publish(given, found, sets, folders)


def _pages(texts: Sequence[str], sides: Sequence[Side | StoredSide]) -> list[list[str]]:
    """The metrics pages of each side, by the letter that the table gives it; all of them can be asked."""
    from loadtest.probe import sources_of
    from loadtest.sides import StoredSide

    pages: list[list[str]] = [[] for _ in sides]
    for text in texts:
        letter, dot, page = text.partition(".")
        place = ord(letter) - ord("A") if len(letter) == 1 else -1
        if not dot or not 0 <= place < len(sides) or isinstance(sides[place], StoredSide):
            raise UsageError(
                f"--metrics-url {text!r} does not name a server that is measured",
                hint="A.URL is of the first side, B.URL of the second; B.prefill=URL names a pool, too",
                code="metrics_url",
            )
        pages[place].append(page)
    for mine in pages:
        sources_of(mine)
    return pages


def _stored_sets(sides: list[StoredSide], slo: SLO | None) -> list[RunSet]:
    """The runs in the folders, judged by the given SLO or the one they share."""
    from metrics.compare import RunSet
    from metrics.slo import SLO

    runs = [[side.run(number) for number in range(1, len(side.folders) + 1)] for side in sides]
    recorded = {run.info.slo for found in runs for run in found}
    if slo is None and len(recorded) > 1:
        raise UsageError("the runs were made with different SLOs", hint="choose one with --slo", code="different_slo")
    text = next(iter(recorded))
    judged = slo or (SLO.parse(text) if text else None)
    same = [[_under(run, judged) for run in found] for found in runs]
    return [RunSet(label, found, judged) for label, found in zip(_names(sides), same, strict=True)]


def _under(run: Run, slo: SLO | None) -> Run:
    import msgspec

    from metrics.rundir import Run

    return Run(msgspec.structs.replace(run.info, slo="" if slo is None else str(slo)), run.table)


def _measured_sets(
    context: click.Context, given: dict[str, Any], sides: list[Side], slo: SLO | None, pages: list[list[str]]
) -> tuple[list[RunSet], list[Path]]:
    """Every side in turn, forwards and backwards, as often as asked; and the folder of each side's first run."""
    from loadtest.pairs import WARMUP_SHARE, Replay
    from loadtest.sides import VirtualSide
    from metrics.compare import RunSet
    from metrics.rundir import create, create_numbered, load

    rate = load_options.default_rate(sides[0], given, slo)
    if rate is not None:
        say(f"rate: {rate:g}/s, 80 % of the first side's simulated goodput", err=True)
    probe = Replay(
        load_options.workload_of(given, rate),
        slo,
        options.command_line(context),
        virtual=all(isinstance(side, VirtualSide) for side in sides),
        warmup_share=WARMUP_SHARE if given["warmup"] is None else 0.0,
        say=load_options.say_finding,
    )
    directory = create(given["out"]) if given["out"] else create_numbered(load_options.default_folder("comparisons"))
    runs: list[list[Run]] = [[] for _ in sides]
    for number in range(1, given["pairs"] + 1):
        places = range(len(sides)) if number % 2 else reversed(range(len(sides)))
        for place in places:
            folder = create(directory / f"run-{number:02d}-{place + 1}")
            _measure(sides[place], probe, number, folder, pages[place])
            runs[place].append(load(folder))
    sets = [RunSet(label, found, slo) for label, found in zip(_names(sides), runs, strict=True)]
    return sets, [directory / f"run-01-{place}" for place in range(1, len(sides) + 1)]


def _measure(side: Side, probe: Replay, number: int, folder: Path, pages: Sequence[str]) -> None:
    from loadtest.cli.probing import probing
    from metrics.rundir import load

    with side.open(folder) as target, probing((*pages, *target.facts.metrics), folder) as probed:
        sample = probe(target, number, folder)
        probed(load(folder))
        if (died := target.died()) is not None:  # what it did before is no figure of a server that can be chosen
            raise died
    say(f"run {number}  {side.label}  {sample.requests} requests  {sample.failed} failed", err=True)


def _names(sides: Sequence[Side | StoredSide]) -> list[str]:
    """Short labels that tell the sides apart."""
    from metrics.names import distinct, short_names

    return distinct(short_names([side.label for side in sides]))


def _publish(given: dict[str, Any], found: Comparison, sets: list[RunSet], folders: Sequence[Path]) -> int:
    """comparison.json and a page where there is a folder for them; INVALID is an exit code, never a guess.

    `folders` are those of the first runs, where their servers' metrics lie.
    """
    from loadtest.cli import output
    from reports.text import console
    from reports.text_gate import render_comparison

    if given["out"] is not None:
        given["out"].mkdir(parents=True, exist_ok=True)
        output.write_json(given["out"] / COMPARISON, found)
        output.draw_page(given["out"] / output.REPORT, lambda: _page(found, sets, folders))
    if given["json"]:
        output.print_json(found)
    else:
        render_comparison(found, console(), definitions=given["definitions"])
    return ExitCode.INVALID if found.invalid else ExitCode.OK


def _page(found: Comparison, sets: list[RunSet], folders: Sequence[Path]) -> str:
    from loadtest.cli import output
    from reports.page import render_html
    from reports.pages import comparison_page

    firsts = [(side.label, side.runs[0]) for side in sets]
    seen = output.views(firsts, [side.summaries[0] for side in sets], sets[0].slo, folders=folders)
    return render_html(comparison_page(found, seen))
