"""A line for each worker of a run."""

from __future__ import annotations

import numpy as np

from loadtest.cli.worker_table import worker_lines
from metrics.records import EventTimes, Outcome, RecordTable, WorkerStats, empty_rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo


def a_run(workers: int) -> Run:
    """Worker 0 sent two requests, 1 and 3 ms late; worker 1 is lost with one."""
    rows = empty_rows(3)
    rows["worker"] = [0, 1, 0]
    rows["scheduled_s"] = [0.0, 1.0, 2.0]
    rows["sent_s"] = [0.001, np.nan, 2.003]
    rows["outcome"] = [Outcome.OK, Outcome.LOST_WORKER, Outcome.OK]
    stats = [WorkerStats(worker=0, cpu_s=1.0, wall_s=4.0)]
    return Run(RunInfo(workers=workers), RecordTable(rows, EventTimes.empty(3), workers=stats))


def test_lateness_and_cpu_of_each_worker() -> None:
    """The linear p99 of 1 and 3 ms is 2.98 ms; the lost one has neither lag nor CPU, but its loss."""
    assert [
        "worker 0  2 requests, send lag p99 2.98 ms, CPU 25%",
        "worker 1  1 requests, 1 lost with it, send lag p99 -, CPU -",
    ] == worker_lines(a_run(2))


def test_a_single_worker_needs_no_line() -> None:
    """The validity section has its figures."""
    assert [] == worker_lines(a_run(1))
