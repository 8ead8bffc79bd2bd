"""Options that say where a workload comes from and what is done to it, for `run` and `trace`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_READING = (
    click.option("--format", "format", metavar="NAME", help="Format of the file.  [default: by its content]"),
    click.option(
        "--zero-tokens", type=click.Choice(["drop", "clamp"]), default="drop", show_default=True, help="Rows with 0."
    ),
    click.option("--columns", metavar="K=PATH,...", help="Where a log keeps time, prompt, output, session, class."),
    click.option("--time-unit", type=click.Choice(["s", "ms", "us", "ns"]), help="Of numeric times in the file."),
    click.option("--block-tokens", type=click.IntRange(1), metavar="N", help="Tokens of a prompt block (hash_ids)."),
)
_FIELDS = ("format", "columns", "zero_tokens", "time_unit", "block_tokens", "arrivals", "tokenizer")
_SHAPING = (
    click.option("--spread-ticks", is_flag=True, help="Spread rows of one clock tick evenly: the step `spread`."),
    click.option("--shape", "shape", multiple=True, metavar="STEP", help="E.g. window=5m+10m, clip=8192, thin=4."),
    click.option(
        "--arrivals", metavar="PROCESS", default="recorded", show_default=True, help="Or poisson, gamma:cv=2, ..."
    ),
)
_SENDING = (
    click.option("--think", metavar="TIME", help="Later turns wait for the answer, then so long; or 'recorded'."),
    click.option("--tokenizer", metavar="FILE", help="tokenizer.json of the model: texts of an exact length."),
)


def reading(command: F) -> F:
    """How a file is read."""
    return _with(command, _READING)


def shaping(command: F) -> F:
    """The same, --shape and --arrivals."""
    return _with(command, (*_READING, *_SHAPING))


def sending(command: F) -> F:
    """All of them."""
    return _with(command, (*_READING, *_SHAPING, *_SENDING))


def fields(given: dict[str, Any]) -> dict[str, Any]:
    """What a Workload takes of the options."""
    found = {name: given[name] for name in _FIELDS if given.get(name)}
    steps = (*(("spread",) if given.get("spread_ticks") else ()), *(given.get("shape") or ()))
    if steps:
        found["shape"] = steps
    if given.get("think"):
        found["think"] = _think(given["think"])
    return found


def _think(text: str) -> str:
    from loadtest.cli.options import DURATION
    from loadtest.workload import RECORDED

    return RECORDED if text == RECORDED else str(DURATION.convert(text, None, None))


def _with(command: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):
        command = option(command)
    return command
