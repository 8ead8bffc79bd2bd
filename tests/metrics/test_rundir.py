"""Run directories."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metrics import rundir
from metrics.errors import MetricsError
from metrics.journal import JournalWriter
from metrics.records import PLANNED_COLUMNS, EventTimes, Outcome, RecordTable, Rows, WorkerStats
from metrics.runinfo import RunInfo, Setting
from tests.metrics.rows import ok_rows, ragged

INFO = RunInfo(name="x", seed=7, gpus=2, config={"rate": Setting(4.0, "flag")}, rejected={"zero": 2})


def save_plan(path: Path, rows: Rows) -> None:
    np.savez(path / rundir.SCHEDULE, **{name: rows[name] for name in ("request_id", *PLANNED_COLUMNS)})  # type: ignore[arg-type]


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Info, rows, events, errors and worker statistics come back; no temporary file stays."""
    path = rundir.create(tmp_path / "runs" / "a")
    rows = ok_rows([0.1, 0.2], outcome=[0, Outcome.TIMEOUT], error_id=[-1, 0])
    table = RecordTable(rows, ragged([[1, 2], [3]]), ["too slow"], [WorkerStats(worker=0, reads=3)])
    save_plan(path, rows)
    rundir.write_info(path, INFO)
    rundir.sync_plan(path)
    rundir.write_table(path, table)
    run = rundir.load(path)
    assert INFO == run.info
    assert rows.tobytes() == run.table.rows.tobytes()
    assert [0, 2, 3] == run.table.events.start.tolist()  # type: ignore[union-attr]
    assert (["too slow"], 3) == (run.table.errors, run.table.workers[0].reads)
    assert not list(path.glob("*.tmp"))


def test_events_are_optional(tmp_path: Path) -> None:
    """A table without events reads back without events."""
    rundir.write_info(tmp_path, INFO)
    rundir.write_table(tmp_path, RecordTable(ok_rows([0.1])))
    assert rundir.load(tmp_path).table.events is None


def test_existing_output_is_not_touched(tmp_path: Path) -> None:
    """A folder with something in it, or a file, is refused as output_exists; an empty folder is used."""
    assert tmp_path == rundir.create(tmp_path)
    (tmp_path / "note").write_text("mine")
    for path in (tmp_path, tmp_path / "note", tmp_path / "note" / "under"):
        with pytest.raises(MetricsError) as caught:
            rundir.create(path)
        assert caught.value.code == "output_exists"
    assert (tmp_path / "note").read_text() == "mine"


def test_a_crashed_run_is_rebuilt_from_its_journals(tmp_path: Path) -> None:
    """Without records.npz the journals fill the plan; what no journal holds is lost."""
    rows = ok_rows([0.1, 0.2, 0.3], prompt_tokens=[5, 6, 7], warmup=[True, False, False])
    rundir.write_info(tmp_path, INFO)
    save_plan(tmp_path, rows)
    writer = JournalWriter(rundir.journal_path(tmp_path, 0), 0)
    writer.record(rows[1])
    writer.flush()
    table = rundir.load(tmp_path).table
    writer.close()
    assert [Outcome.LOST_WORKER, Outcome.OK, Outcome.LOST_WORKER] == table.rows["outcome"].tolist()
    assert [5, 6, 7] == table.rows["prompt_tokens"].tolist()
    assert [True, False, False] == table.rows["warmup"].tolist()


def test_an_unfinished_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A write that fails in the middle changes nothing and leaves nothing behind."""
    rundir.write_info(tmp_path, INFO)
    before = (tmp_path / rundir.RUN).read_bytes()
    with pytest.raises(TypeError):
        rundir.write_atomically(tmp_path / rundir.RUN, "no bytes")  # type: ignore[arg-type]
    assert before == (tmp_path / rundir.RUN).read_bytes()
    assert [tmp_path / rundir.RUN] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        (rundir.RUN, b"{", "damaged_run"),
        (rundir.RUN, b'{"schema": "goodput.run/99"}', "unknown_schema"),
        (rundir.RECORDS, b"PK nonsense", "damaged_run"),
        (rundir.ERRORS, b"[1]", "damaged_run"),
    ],
)
def test_damage_is_one_clear_error(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    """A damaged file is named, never a traceback from a decoder."""
    rundir.write_info(tmp_path, INFO)
    rundir.write_table(tmp_path, RecordTable(ok_rows([0.1])))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MetricsError, match=name) as caught:
        rundir.load(tmp_path)
    assert code == caught.value.code


def test_a_folder_without_run_json_is_no_run(tmp_path: Path) -> None:
    """The sentence says what is missing."""
    with pytest.raises(MetricsError, match="not a run directory") as caught:
        rundir.load(tmp_path)
    assert caught.value.code == "not_a_run"


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    """An object array in records.npz is refused."""
    rundir.write_info(tmp_path, INFO)
    np.savez(tmp_path / rundir.RECORDS, request_id=np.array([{}], dtype=object))
    with pytest.raises(MetricsError):
        rundir.load(tmp_path)


def test_empty_events_have_a_start_per_row_and_one() -> None:
    """The ragged form of nothing."""
    assert [0, 0, 0] == EventTimes.empty(2).start.tolist()
