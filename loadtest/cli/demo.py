"""`goodput demo`: the three arrangements side by side on this machine, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options
from loadtest.cli.options import DURATION
from loadtest.cli.output import say
from loadtest.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtest.demo import Shown
    from loadtest.search import Attempt
    from metrics.decision import Decision
    from metrics.documents import Demo
    from metrics.rundir import Run
    from metrics.slo import SLO
    from metrics.sweep import Sweep
    from workloads.schedule import Schedule

_SLO = "ttft=500ms,tpot=20ms"


@click.command(cls=options.Command)
@click.option(
    "--seconds", type=DURATION, default="90s", show_default=True, metavar="TIME", help="About how long in all."
)
@click.option("--slo", default=_SLO, show_default=True, metavar="SLO", help="Targets to meet.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides lengths and arrivals.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Where to write.  [default: runs/..._demo]")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def demo(context: click.Context, /, **given: Any) -> int:
    """Compare colocated, chunked and disaggregated serving on a Splitwise-like workload.

    Each arrangement is an emulated server on four GPUs of a calibrated performance model. Locust replays the same
    schedule against each over real sockets; then goodput per GPU is found on the virtual clock.
    """
    from loadtest.demo import ARRANGEMENTS, demo_schedule
    from metrics import rundir

    slo = options.parse_slo(given["slo"])
    schedule = demo_schedule(given["seconds"], given["seed"])
    directory = rundir.create(given["out"]) if given["out"] else rundir.create_numbered(_default_directory())
    runs = []
    for label, text in ARRANGEMENTS.items():
        run = _live(label, text, schedule, slo, directory / label, options.command_line(context))
        if run.info.state == "partial":
            say("goodput: stopped by the user", err=True)
            return ExitCode.INTERRUPTED
        runs.append((label, run))
    shown = _evaluate(runs, schedule, slo)
    return _publish(shown, slo, directory, as_json=given["json"])


def _default_directory() -> Path:
    from loadtest import clock

    return Path("runs") / f"{clock.utc_now():%Y-%m-%dT%H-%M-%S}_demo"


def _live(label: str, text: str, schedule: Schedule, slo: SLO, directory: Path, command: list[str]) -> Run:
    from loadtest.cli.progress import ProgressLine
    from loadtest.demo import run_live
    from loadtest.deployment import Deployment

    say(f"{label}: {len(schedule)} requests in {schedule.duration_s:.0f} s over real sockets", err=True)
    progress = ProgressLine(len(schedule), schedule.duration_s)
    try:
        return run_live(Deployment.parse(text), schedule, slo, directory, command, progress)
    finally:
        progress.close()


def _evaluate(runs: list[tuple[str, Run]], schedule: Schedule, slo: SLO) -> list[Shown]:
    from loadtest.demo import evaluate

    shown = []
    for label, run in runs:
        say(f"{label}: goodput on the virtual clock", err=True)
        shown.append(evaluate(label, run, schedule, slo, _attempt_line()))
    return shown


def _attempt_line() -> Callable[[Attempt, float], None] | None:
    """A rewritten line on a terminal; nothing elsewhere."""
    import sys

    if not sys.stderr.isatty():
        return None

    def show(attempt: Attempt, estimate: float) -> None:
        sys.stderr.write(
            f"\r\x1b[2K  {attempt.purpose}: {attempt.good} of {attempt.total} good at {attempt.rate_per_s:.1f} req/s,"
            f" estimate {estimate:.1f}\r"
        )

    return show


def _publish(shown: list[Shown], slo: SLO, directory: Path, *, as_json: bool) -> int:
    """demo.json and report.html into the directory, the decision to stdout."""
    from loadtest.cli import output
    from metrics.decision import decide

    decision = decide([one.row for one in shown])
    for one in shown:
        output.write_summary(directory / one.label, one.summary)
    document = _document(shown, decision)
    output.write_json(directory / "demo.json", document)
    drawn = output.draw_page(directory / output.REPORT, lambda: _page(shown, slo, decision))
    if as_json:
        output.print_json(document)
    else:
        output.print_decision(decision)
    if drawn:
        say(f"report: {directory / output.REPORT}", err=True)
    return ExitCode.OK


def _page(shown: list[Shown], slo: SLO, decision: Decision) -> str:
    from loadtest.cli import output

    runs, summaries = [(one.label, one.run) for one in shown], [one.summary for one in shown]
    predicted = [one.predicted for one in shown]
    return output.page("goodput demo", runs, summaries, slo, decision, predicted, _sweeps(shown, slo))


def _sweeps(shown: list[Shown], slo: SLO) -> list[Sweep]:
    """The searches' runs, one deployment a line."""
    from metrics.search import row_of
    from metrics.sweep import sweep_of_search

    rows = [row_of(one.label, one.row.deployment, one.row.gpus, one.found) for one in shown]
    return [found for row in rows if (found := sweep_of_search(row, slo.share)) is not None]


def _document(shown: list[Shown], decision: Decision) -> Demo:
    from metrics.documents import Demo

    return Demo(
        decision=decision,
        runs={one.label: one.summary for one in shown},
        searches={one.label: one.found for one in shown},
    )
