"""`goodput trace`: look at traces and built-in workloads."""

from __future__ import annotations

from typing import Any

import click

from loadtest.cli import options
from loadtest.errors import ExitCode


@click.group()
def trace() -> None:
    """Look at traces and built-in workloads."""


@trace.command(cls=options.Command)
@click.argument("source", metavar="NAME|FILE")
@click.option("--seed", type=int, default=0, show_default=True, help="For a built-in workload.")
@click.option("--json", "json", is_flag=True, help="Print one JSON document.")
def info(source: str, seed: int, json: bool) -> int:
    """Print the rate, burstiness and lengths of a trace."""
    import msgspec

    from loadtest.cli import output
    from loadtest.workload import Workload
    from workloads.describe import describe

    found = describe(Workload(trace=source, seed=seed).read())
    if json:
        output.print_json(found)
    else:
        click.echo("\n".join(_lines(msgspec.to_builtins(found))))
    return ExitCode.OK


def _lines(figures: dict[str, Any], indent: str = "") -> list[str]:
    """`key  value` lines, nested figures indented."""
    lines = []
    for key, value in figures.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{key}", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key:<{28 - len(indent)}} {_shown(value)}")
    return lines


def _shown(value: Any) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "; ".join(map(_shown, value)) if isinstance(value, list) else str(value)
