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
from tests.metrics.test_folderlock import somebody_else
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


def finished_run(tmp_path: Path) -> Path:
    """A complete run of two workers, with its journals and its table."""
    run = a_run(tmp_path / "run")
    a_journal(run, 0, [0, 2, 4, 6, 8])
    a_journal(run, 1, [1, 3, 5, 7, 9])
    merge_journals(run, [])
    return run


def test_what_the_run_has_stays(tmp_path: Path) -> None:
    """Its own journals gone, and one worker's merged again: the table that was written counts for the other."""
    run = finished_run(tmp_path)
    for worker in (0, 1):
        rundir.journal_path(run, worker).unlink()
    merged = merge_journals(run, [a_journal(tmp_path / "a", 0, [0, 2, 4, 6, 8])])
    assert ["OK"] * ROWS == outcomes(merged.run)
    assert (5, 5) == (merged.told, merged.known)


def test_own_journals_are_never_written(tmp_path: Path) -> None:
    """Whatever is merged, and however often: they are the same bytes, and so is the table after the first time."""
    run = a_run(tmp_path / "run")
    own = rundir.journal_path(a_journal(run, 0, [0, 2], ended=False), 0)
    before = own.read_bytes()
    sources = [a_journal(tmp_path / "a", 0, [2, 4, 6, 8]), a_journal(tmp_path / "b", 1, [1, 3, 5])]
    first = merge_journals(run, sources)
    tables = [(run / name).read_bytes() for name in (rundir.RECORDS, rundir.WORKERS, rundir.RUN)]
    again = merge_journals(run, sources)
    assert tables == [(run / name).read_bytes() for name in (rundir.RECORDS, rundir.WORKERS, rundir.RUN)]
    assert before == own.read_bytes()
    assert ["OK"] * 7 + ["NOT_SENT", "OK", "NOT_SENT"] == outcomes(first.run) == outcomes(again.run)
    assert (7, 1) == (first.told, first.known)
    assert (7, 7) == (again.told, again.known)


def test_rows_lost_with_a_worker_are_found_again(tmp_path: Path) -> None:
    """The table says lost; the worker's own journal, which has an end, says answered or not sent."""
    run = a_run(tmp_path / "run")
    a_journal(run, 0, [0, 2, 4, 6, 8])
    a_journal(run, 1, [1], ended=False)
    assert 4 == outcomes(merge_journals(run, []).run).count("LOST_WORKER")
    rundir.journal_path(run, 1).unlink()
    merged = merge_journals(run, [a_journal(tmp_path / "b", 1, [1, 3, 5, 7])]).run
    assert ["OK"] * 9 + ["NOT_SENT"] == outcomes(merged)


def test_one_name_and_one_salt_are_not_one_run(tmp_path: Path) -> None:
    """A pinned --salt and the same folder name elsewhere: what was drawn for each run tells them apart."""
    run = a_run(tmp_path / "run")
    rundir.write_info(run, RunInfo(id="1d", name="run", salt="5a17", workers=2))
    for other in ("run-5a17-2e", "run-5a17", "run-5a17-1d1d", ""):
        with pytest.raises(MetricsError, match="not of run-5a17-1d"):
            merge_journals(run, [a_journal(tmp_path / f"from-{other}", 0, [0], run=other)])
    moved = run.rename(tmp_path / "moved")
    merged = merge_journals(moved, [a_journal(tmp_path / "a", 0, [0], run="run-5a17-1d")])
    assert 1 == outcomes(merged.run).count("OK")


def test_an_empty_copy_costs_nothing(tmp_path: Path) -> None:
    """A worker that died before it had sent anything: its rows are lost, those of the other are kept."""
    run = a_run(tmp_path / "run")
    a_journal(run, 0, [0, 2, 4, 6, 8])
    rundir.journal_path(run, 1).touch()
    assert ["OK", "LOST_WORKER"] * 5 == outcomes(merge_journals(run, []).run)


def test_a_run_that_is_going_on_is_left_alone(tmp_path: Path) -> None:
    """Another process writes there: no table appears under its hands; a report may look."""
    run = a_run(tmp_path / "run")
    a_journal(run, 0, [0, 2, 4, 6, 8])
    with somebody_else(run):
        with pytest.raises(MetricsError, match="in use"):
            merge_journals(run, [])
        assert 5 == outcomes(rundir.load(run)).count("OK")
    assert not (run / rundir.RECORDS).exists()
