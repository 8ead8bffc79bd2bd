"""`goodput trace`: look at traces, make them, fetch them."""

from __future__ import annotations

import click

from loadtest.cli.trace import look, make, public


@click.group()
def trace() -> None:
    """Look at traces and built-in workloads, make others, fetch public ones."""


for command in (
    public.list_,
    public.fetch,
    look.info,
    look.lint,
    make.convert,
    make.sample,
    make.synth,
    make.fit,
):
    trace.add_command(command)
