"""`goodput launch`: start a deployment from a file, load it, sample its pages, stop it; nothing is left running."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadtest.cli import options
from loadtest.cli.run import run
from loadtest.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from loadtest.target import Target
    from metrics.slo import SLO

_NOT_OURS = ("target", "backend", "master", "expect_workers", "master_bind", "wait", "dry_run")


def _launch(**given: Any) -> int:
    """Start the deployment that FILE describes (argument lists, never a shell), load it, and stop all of it.

    Also after a crash or Ctrl-C. Options are those of `goodput run`; logs and metrics go into the run directory.
    """
    from loadtest.cli.run import offer

    file, values, keep = given.pop("file"), given.pop("set_"), given.pop("keep")
    if keep:
        return _keep(file, values, given)
    given = {**dict.fromkeys(_NOT_OURS), "backend": f"launch:{file.stem}", **given}
    return offer(click.get_current_context(), given, lambda slo, folder: _target(file, values, given, slo, folder))


def _target(file: Path, values: tuple[str, ...], given: dict[str, Any], slo: SLO | None, folder: Path) -> Target:
    from loadtest.cli.load_options import chosen
    from loadtest.cli.run import settings_of
    from loadtest.sides import EndpointOptions, launched

    asked = EndpointOptions(given["model"], given["api"], given["api_key_env"] or "", tuple(given["header"]))
    return launched(file, chosen(values, ""), settings_of(given, slo), asked).open(folder)


def _keep(file: Path, values: tuple[str, ...], given: dict[str, Any]) -> int:
    """Start it, say where it is, and wait for Ctrl-C."""
    import tempfile

    over = threading.Event()
    with tempfile.TemporaryDirectory(prefix="goodput-launch-") as folder:
        target = _target(file, values, {**dict.fromkeys(_NOT_OURS), **given}, None, Path(folder))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: over.set())
        with target:
            click.echo(f"{target.facts.url} serves {target.facts.model}; Ctrl-C ends it")
            while not over.wait(0.5):
                died = target.died()
                if died is not None:
                    raise died
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
