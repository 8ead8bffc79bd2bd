"""`goodput worker`: offer a part of a run from this machine."""

from __future__ import annotations

from pathlib import Path

import click

from loadtest.cli import options
from loadtest.cli.options import DURATION
from loadtest.errors import ExitCode


@click.command(cls=options.Command)
@click.option("--master-host", default="127.0.0.1", show_default=True, metavar="HOST", help="Where the master runs.")
@click.option("--master-port", type=int, default=5557, show_default=True, metavar="PORT", help="Its port.")
@click.option("--wait", type=DURATION, default="60s", show_default=True, metavar="TIME", help="For the master.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="runs",
    show_default=True,
    metavar="DIR",
    help="Folder that gets the journal's folder.",
)
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
def worker(master_host: str, master_port: int, wait: float, out: Path, json: bool) -> int:
    """Join `goodput run --master`, offer this machine's part of one run, and end with it."""
    from loadtest.cli import output
    from loadtest.swarm.remote import join

    folder = join(master_host, master_port, out, wait)
    if json:
        output.print_json({"journal": str(folder)})
    else:
        click.echo(f"delivered; the journal is also in {folder}")
    return ExitCode.OK
