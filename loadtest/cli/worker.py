"""`goodput worker`: offer a part of a run from this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loadtest.cli import options
from loadtest.cli.options import DURATION
from loadtest.cli.output import say
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
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The secret that the master made; needed for a master on another machine.",
)
@click.option("--api-key-env", default="", metavar="VARIABLE", help="Variable of this machine that holds the API key.")
@click.option("--api-key-file", default="", metavar="FILE", help="Or a file that holds it.")
@click.option("--ca-file", default="", metavar="FILE", help="Certificate authority of an https target.")
@click.option("--tokenizer", default="", metavar="FILE", help="This machine's copy of the master's --tokenizer.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
def worker(master_host: str, master_port: int, wait: float, out: Path, token_file: Path | None, **own: Any) -> int:
    """Join `goodput run --master`, offer this machine's part of one run, and end with it.

    Keys and files are this machine's own: a master names none.
    """
    from loadtest.cli import output
    from loadtest.swarm.remote import join
    from loadtest.swarm.remote_settings import RemoteSettings

    json = own.pop("json")
    folder = join(master_host, master_port, RemoteSettings(home=out, **own), token_file, wait)
    if json:
        output.print_json({"journal": str(folder)})
    else:
        say(f"delivered; the journal is also in {folder}")
    return ExitCode.OK
