"""`goodput plan`: simulate designs for a workload and an SLO, and print what to build."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options
from loadtest.cli.output import say
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from loadtest.plan.planner import Planner
    from metrics.plan import PlanReport


@click.command(cls=options.Command)
@click.option("--trace", metavar="NAME|FILE", default="azure-conv", show_default=True, help="What is to be served.")
@click.option("--slo", metavar="SLO", help="Targets, e.g. ttft=1s,tpot=45ms,share=90%.")
@click.option("--gpus", type=click.IntRange(1), default=16, show_default=True, metavar="N", help="GPUs to build with.")
@click.option("--rate", type=float, metavar="R", help="Requests per second to carry: how many GPUs does that take?")
@click.option(
    "--model", default="llama2-70b", show_default=True, metavar="NAME|FILE", help="Model, or its config.json."
)
@click.option("--hardware", default="h100", show_default=True, metavar="NAME,...", help="Kinds of GPU to choose from.")
@click.option("--tp", metavar="N,...", help="Tensor degrees to choose from.  [default: all that fit]")
@click.option(
    "--relaxed", type=float, default=2.0, show_default=True, metavar="X", help="The relaxed SLO: X times --slo."
)
@click.option("--gpu-hour-usd", metavar="PRICE", help="4.76, or h100=4.76,a100=2.21.  [default: a list price]")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Decides lengths and arrivals."
)
@click.option("--emit", type=click.Path(path_type=Path), metavar="DIR", help="Write launch files of the best design.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the plan as JSON, too.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the plan as a page, too.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def plan(context: click.Context, /, **given: Any) -> int:
    """Search arrangements, chunk sizes, tensor degrees, pool splits and hardware for the most goodput per GPU.

    Prints who wins for tokens alone, for a relaxed and for the strict SLO, at what cost; where the winner flips; and
    where the gain of two pools comes from. All on the simulator (docs/plan.md).
    """
    from loadtest.cli import output
    from loadtest.cli.load_options import fresh_folder
    from reports.page import render_html
    from reports.pages import plan_page
    from reports.text import console
    from reports.text_plan import render_plan

    options.require_positive(given, "rate")
    options.require_writable(given["out"])
    options.require_writable(given["html"])
    planner, command = _planner(given), options.command_line(context, seed=str(given["seed"]))
    with fresh_folder(given["emit"]) if given["emit"] is not None else nullcontext() as folder:
        report = planner.plan(command, given["rate"])
        if given["out"] is not None:
            output.write_json(given["out"], report)
        if given["html"] is not None:
            output.write_page(given["html"], render_html(plan_page(report)))
        emitted = _emit(folder, report) if folder is not None else []
        if given["json"]:
            output.print_json(report)
        else:
            render_plan(report, console())
        for line in emitted:
            say(line, err=True)
    return ExitCode.OK


def _emit(folder: Path, report: PlanReport) -> list[str]:
    """Write launch files of the winner under the user's own SLO; says which, and how to measure it."""
    from loadtest.deployment import Deployment
    from loadtest.plan.emit import EMULATED, launch_files

    row = report.rows[-1]
    about = f"goodput plan: {report.model}, {report.trace}, {report.slo}, {report.gpus} GPUs"
    files = launch_files(Deployment.parse(row.winner.deployment), about)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    names = ", ".join(str(folder / name) for name in files)
    return [
        f"launch files: {names}",
        f"measure it: goodput search --launch {folder / EMULATED} --trace {report.trace} --slo {report.slo}",
    ]


def _planner(given: dict[str, Any]) -> Planner:
    from loadtest.backends.hardware import hardware
    from loadtest.plan.bill import prices_of
    from loadtest.plan.designs import MAX_MODEL_LEN, Space
    from loadtest.plan.planner import Planner
    from loadtest.search.windows import Windows
    from metrics.objective import parse_objective

    if not given["slo"]:
        raise UsageError(
            "a plan needs an SLO", hint="give --slo, or let `goodput search --backend ...` suggest one", code="no_slo"
        )
    if not 1 < given["relaxed"] < float("inf"):
        raise UsageError(f"--relaxed must be above 1, not {given['relaxed']:g}", code="not_positive")
    kinds = tuple(dict.fromkeys(word.strip() for word in given["hardware"].split(",")))
    for kind in kinds:
        hardware(kind)
    return Planner(
        Space(given["model"], kinds, given["gpus"], _degrees(given["tp"])),
        Windows(given["trace"], seed=given["seed"], max_tokens=MAX_MODEL_LEN),
        parse_objective(given["slo"]),
        relaxed=given["relaxed"],
        prices=prices_of(given["gpu_hour_usd"], kinds),
        on_step=lambda text: say(text, err=True),
    )


def _degrees(text: str | None) -> tuple[int, ...]:
    try:
        degrees = tuple(int(word) for word in text.split(",")) if text else ()
    except ValueError:
        degrees = (0,)
    if any(degree < 1 for degree in degrees):
        raise UsageError(f"--tp {text!r} is not a list of tensor degrees", hint="write it like 2,4,8", code="bad_tp")
    return degrees
