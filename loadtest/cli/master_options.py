"""Options of a run whose workers are on other machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loadtest.cli.options import DURATION
from loadtest.cli.output import say
from loadtest.errors import UsageError

if TYPE_CHECKING:
    from loadtest.target import LoadSettings

F = TypeVar("F", bound=Callable[..., Any])

PORT = 5557

_OPTIONS = (
    click.option("--master", is_flag=True, help="Let goodput worker on other machines send."),
    click.option("--expect-workers", type=click.IntRange(1), metavar="N", help="How many; no start with fewer."),
    click.option(
        "--master-bind",
        metavar="HOST:PORT",
        help=f"Where they join: 127.0.0.1:{PORT}, with --token-file 0.0.0.0:{PORT}.",
    ),
    click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Secret of master and workers; made where there is none.",
    ),
    click.option("--wait", type=DURATION, default="60s", show_default=True, metavar="TIME", help="For all of them."),
)


def mastering(command: F) -> F:
    """All of them, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def workers_of(given: dict[str, Any]) -> int:
    """How many workers offer the load; UsageError when the options contradict each other."""
    expected, workers = given.get("expect_workers"), int(given["workers"])
    if not given.get("master"):
        if expected is not None:
            raise UsageError("--expect-workers is for --master", hint="use --workers for this machine", code="master")
        return workers
    if expected is None:
        raise UsageError("--master needs --expect-workers N", code="master")
    if workers != 1:
        raise UsageError("with --master all workers are on other machines: leave --workers out", code="master")
    if given["backend"]:
        raise UsageError(
            "--backend starts a server that only this machine reaches",
            hint="start it with goodput serve --host, and give --target as the workers reach it",
            code="master",
        )
    return int(expected)


def with_master(settings: LoadSettings, given: dict[str, Any]) -> LoadSettings:
    """The settings of a run that waits for its workers; as they are without --master."""
    from dataclasses import replace

    if not given.get("master"):
        return settings
    from loadtest.swarm.token import Token, is_loopback

    file: Path | None = given["token_file"]
    host, port = _address(given["master_bind"] or f"{'0.0.0.0' if file else '127.0.0.1'}:{PORT}")
    if file is None and not is_loopback(host):
        raise UsageError(
            f"--master-bind {host} lets other machines take part, or pose as this master",
            hint="add --token-file FILE here and at each worker, or bind to 127.0.0.1",
            code="token_file",
        )
    if given["dry_run"]:
        return replace(settings, bind=(host, port), wait_s=given["wait"])
    words = ["goodput worker", "" if file is None else f"--master-host THIS-HOST --token-file {file}"]
    words += [f"--master-port {port}"] if port != PORT else []
    token = Token.read_or_make(file) if file is not None else None
    say(f"goodput: waiting for {settings.workers} workers: {' '.join(filter(None, words))}", err=True)
    return replace(settings, bind=(host, port), wait_s=given["wait"], token=token)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"--master-bind {text!r} is not HOST:PORT", code="master_bind")
    return host.strip("[]"), int(port)
