"""`--metrics-url`: the server's own pages during a run, and one table of client against server after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadtest.cli.output import say

if TYPE_CHECKING:
    from metrics.probes import Comparison
    from metrics.rundir import Run

TABLE, LOG = "server.json", "probe.log"


@contextmanager
def probing(texts: Sequence[str], directory: Path) -> Iterator[Callable[[Run], list[Comparison]]]:
    """Sample the pages inside the block; the function given ends that, and writes probes.npz and server.json."""
    if not texts:
        yield lambda _: []
        return
    from loadtest.probe import Probing, sources_of

    with Probing(sources_of(texts), directory) as probe:
        yield lambda run: _finish(probe, run, directory)


def _finish(probe: Any, run: Run, directory: Path) -> list[Comparison]:
    from loadtest.cli.output import write_json
    from metrics import probes

    # Workers on other machines have other clocks: their samples then count from the first one.
    master = run.info.config.get("master")
    elsewhere = master is not None and bool(master.value)
    zeros = [] if elsewhere else [worker.zero_ns for worker in run.table.workers if worker.zero_ns]
    sampled = probe.stop(min(zeros, default=0))
    probes.save(directory, sampled)
    for pool in sampled.silent:
        say(f"goodput: the metrics page of {pool!r} told nothing that is known; see {directory / LOG}", err=True)
    table = probes.compare(run, sampled)
    write_json(directory / TABLE, table)
    return table


def print_table(table: Sequence[Comparison]) -> None:
    """Client against server on stdout, in columns."""
    if not table:
        return
    from loadtest.cli.output import print_columns

    pools = list(table[0].servers)
    lines = [["", "client", *pools]]
    for row in table:
        told = [_cell(value, row.unit) for value in (row.client, *(row.servers[pool] for pool in pools))]
        lines.append([row.quantity, *told])
    print_columns("client against server", lines)


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return f"{value * 1e3:.3g} ms"
    return f"{value:.1%}" if unit == "share" else f"{value:,.0f}"
