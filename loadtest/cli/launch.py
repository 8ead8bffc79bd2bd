"""`goodput launch`: start a deployment from a file, load it, sample its pages, stop it; nothing is left running."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest import clock
from loadtest.cli import options
from loadtest.cli.output import say
from loadtest.cli.run import run
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from loadtest.target import Target
    from metrics.slo import SLO

_NOT_OURS = (
    *("target", "backend", "virtual", "master", "expect_workers", "master_bind", "token_file", "wait"),
    *("dry_run", "gpu_hour_usd", "token_usd"),
)
_LOOK_EVERY_S = 0.5


def _launch(**given: Any) -> int:
    """Start the deployment that FILE describes (argument lists, never a shell), load it, and stop all of it.

    Also after a crash or Ctrl-C. Options are those of `goodput run`; logs and metrics go into the run directory.
    """
    from loadtest.cli.run import offer

    file, values, keep = given.pop("file"), given.pop("set_"), given.pop("keep")
    given = {**dict.fromkeys(_NOT_OURS), "backend": f"launch:{file.stem}", **given}
    if keep:
        return _keep(file, values, given)
    return offer(click.get_current_context(), given, lambda slo, folder: _target(file, values, given, slo, folder))


def _target(file: Path, values: tuple[str, ...], given: dict[str, Any], slo: SLO | None, folder: Path) -> Target:
    from loadtest.cli.load_options import chosen, endpoint_of
    from loadtest.cli.run import refuse_options_of_a_target, settings_of
    from loadtest.sides import BundledSide, launched

    side = launched(file, chosen(values, ""), settings_of(given, slo), endpoint_of(given))
    if isinstance(side, BundledSide):
        refuse_options_of_a_target(given)
    return side.open(folder)


def _keep(file: Path, values: tuple[str, ...], given: dict[str, Any]) -> int:
    """Start it, say where it is, and wait for Ctrl-C, which also ends a start that takes too long."""
    from loadtest.supervise import log_folder

    with log_folder("goodput-launch-") as folder, _target(file, values, given, None, folder) as target:
        asked: list[int] = []  # a note, now that all is up: an exception out of a handler can be lost on its way
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _frame: asked.append(number))
        say(f"{target.facts.url} serves {target.facts.model}; Ctrl-C ends it")
        while not asked:
            died = target.died()
            if died is not None:
                raise died
            clock.sleep(_LOOK_EVERY_S)
    return ExitCode.OK


def _existing(_context: click.Context, _parameter: click.Parameter, value: Path) -> Path:
    if not value.is_file():
        raise UsageError(f"there is no launch file {value}", hint="examples/ holds some", code="bad_launch_file")
    return value


launch = options.Command(
    name="launch",
    callback=_launch,
    help=_launch.__doc__,
    params=[
        click.Argument(["file"], type=click.Path(path_type=Path), metavar="FILE.toml", callback=_existing),
        click.Option(["--set", "set_"], multiple=True, metavar="K=V", help="Value for {K} in FILE."),
        click.Option(["--keep"], is_flag=True, help="Send nothing: keep it running until Ctrl-C."),
        *(option for option in run.params if option.name not in _NOT_OURS),
    ],
)
