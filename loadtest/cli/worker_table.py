"""Which worker was late, busy or lost: a line each, after a run of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtest.cli.output import say

if TYPE_CHECKING:
    from metrics.rundir import Run


def worker_lines(run: Run) -> list[str]:
    """Requests, those without a record, p99 of the send lag and CPU share of each worker; none for a single one."""
    from metrics.latency import client_lag_s
    from metrics.records import Outcome
    from metrics.stats import describe

    if run.info.workers < 2:
        return []
    said = {stats.worker: stats for stats in run.table.workers}
    lines = []
    for worker in range(run.info.workers):
        rows = run.table.rows[run.table.rows["worker"] == worker]
        missing = int((rows["outcome"] == Outcome.LOST_WORKER).sum())
        lag, stats = describe(client_lag_s(rows)), said.get(worker)
        late = "-" if lag is None else f"{lag.p99 * 1e3:.3g} ms"
        busy = "-" if stats is None or not stats.wall_s else f"{stats.cpu_s / stats.wall_s:.0%}"
        lost = f", {missing} lost with it" if missing else ""
        lines.append(f"worker {worker}  {len(rows)} requests{lost}, send lag p99 {late}, CPU {busy}")
    return lines


def print_workers(run: Run) -> None:
    """The lines on stdout."""
    for line in worker_lines(run):
        say(line)
