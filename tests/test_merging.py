"""`goodput report RUN --merge`: journals that stayed on other machines."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.merging import merge_journals
from loadtest.record import begin
from metrics import rundir
from metrics.errors import MetricsError
from metrics.journal import JournalWriter
from metrics.records import Outcome, WorkerStats, empty_rows
from metrics.runinfo import RunInfo, run_id
from workloads.schedule import plan
from workloads.trace import Trace

ROWS = 10
END_FRAME_BYTES = 4 + 4 + 1


def a_run(folder: Path) -> Path:
    """Ten requests planned for two workers; nobody has reported anything."""
    folder.mkdir()
    trace = Trace("t", np.arange(ROWS) * 1_000_000, np.full(ROWS, 4), np.full(ROWS, 2))
    begin(plan(trace, seed=0, salt="5a17"), RunInfo(name=folder.name, salt="5a17", workers=2), folder)
    return folder


def a_journal(folder: Path, worker: int, ids: list[int], *, ended: bool = True, run: str = "run-5a17") -> Path:
    folder.mkdir(exist_ok=True)
    writer = JournalWriter(rundir.journal_path(folder, worker), worker, run)
    for request_id in ids:
        row = empty_rows(1)
        row["request_id"], row["outcome"], row["worker"] = request_id, Outcome.OK, worker
        row["sent_s"] = request_id / 1000
        writer.record(row[0])
    writer.stats(WorkerStats(worker=worker))
    writer.close()
    if not ended:
        file = rundir.journal_path(folder, worker)
        os.truncate(file, file.stat().st_size - END_FRAME_BYTES)
    return folder


def outcomes(run: rundir.Run) -> list[str]:
    return [Outcome(value).name for value in run.table.rows["outcome"]]


def test_a_dead_masters_run_becomes_whole(tmp_path: Path) -> None:
    """Its copies are short; the workers kept all: every request once, state complete, each worker's stats once."""
    run = a_run(tmp_path / "run")
    a_journal(run, 0, [0, 2], ended=False)
    a_journal(run, 1, [1], ended=False)
    sources = [a_journal(tmp_path / "a", 0, [0, 2, 4, 6, 8]), a_journal(tmp_path / "b", 1, [1, 3, 5, 7, 9])]
    merged = merge_journals(run, sources).run
    assert ["OK"] * ROWS == outcomes(merged)
    assert "complete" == merged.info.state
    assert [0, 1] == sorted(worker.worker for worker in merged.table.workers)
    assert ["OK"] * ROWS == outcomes(rundir.load(run))


def test_what_no_journal_tells_is_lost_with_its_worker(tmp_path: Path) -> None:
    """Worker 1's journal has no end: what it does not hold is lost, and the run is not called complete."""
    run = a_run(tmp_path / "run")
    file = rundir.journal_path(a_journal(tmp_path / "b", 1, [1, 3], ended=False), 1)
    merged = merge_journals(run, [a_journal(tmp_path / "a", 0, [0, 2, 4, 6, 8]), file]).run
    assert {"OK": 7, "LOST_WORKER": 3} == {name: outcomes(merged).count(name) for name in set(outcomes(merged))}
    assert "running" == merged.info.state


def test_the_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    """Same name, another salt: nothing is written."""
    run = a_run(tmp_path / "run")
    with pytest.raises(MetricsError, match="run-dead, not of run"):
        merge_journals(run, [a_journal(tmp_path / "a", 0, [0], run=run_id("run", "dead"))])
    assert not (run / rundir.RECORDS).exists()


def test_a_folder_without_a_journal_is_named(tmp_path: Path) -> None:
    """One sentence about the folder."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty holds no journal"):
        merge_journals(a_run(tmp_path / "run"), [tmp_path / "empty"])
