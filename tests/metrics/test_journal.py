"""The workers' journals and their merge."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import journal
from metrics.errors import MetricsError
from metrics.journal import JournalContents, JournalWriter, in_current_columns, read_journal
from metrics.merge import DISTINCT_ERRORS, OTHER_ERRORS, merge
from metrics.records import RECORD_DTYPE, EventTimes, Outcome, Rows, WorkerStats, empty_rows
from tests.metrics.rows import ok_rows, ragged

TIMES = [[100, 200, 300], [], [50], [7, 7]]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(rows: Rows, worker: int = 0, *, ended: bool = True) -> Path:
        path = tmp_path / f"records-{worker}.bin"
        writer = JournalWriter(path, worker)
        for row, times in zip(rows, TIMES, strict=False):
            us = np.array(times, dtype=np.uint32)
            pairs = np.ones(len(us), dtype=np.uint16).tobytes()
            writer.record(row, us.tobytes(), pairs, pairs, error=f"boom {row['request_id']}" if row["outcome"] else "")
        writer.stats(WorkerStats(worker=worker, cpu_s=1.5))
        writer.flush()
        alive = path.read_bytes()
        writer.close()
        if not ended:
            path.write_bytes(alive)
        return path

    return write


def planned(rows: Rows) -> Rows:
    plan = empty_rows(len(rows))
    for column in ("request_id", "scheduled_s", "worker"):
        plan[column] = rows[column]
    return plan


def contents(rows: Rows, worker: int = 0, *, ended: bool = True) -> JournalContents:
    return JournalContents(worker, rows, EventTimes.empty(len(rows)), [""] * len(rows), None, ended)


def test_a_journal_reads_back_what_was_written(written: Callable[..., Path]) -> None:
    """Rows, events, error texts and statistics survive to the bit."""
    rows = ok_rows([0.1, 0.2, 0.3, 0.4], outcome=[0, Outcome.TIMEOUT, 0, 0])
    got = read_journal(written(rows))
    assert rows.tobytes() == got.rows.tobytes()
    assert [0, 3, 3, 4, 6] == got.events.start.tolist()
    assert [100, 200, 300, 50, 7, 7] == got.events.us.tolist()
    assert ["", "boom 1", "", ""] == got.errors
    assert got.stats is not None
    assert (1.5, True, False) == (got.stats.cpu_s, got.ended, got.torn)


@given(cut=st.integers(1, 900))
def test_any_torn_tail_keeps_the_whole_records_before_it(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """Cut anywhere, the journal gives a prefix of its records, and says when a frame was torn."""
    path = tmp_path_factory.mktemp("journal") / "records-3.bin"
    writer = JournalWriter(path, 3)
    rows = ok_rows([0.1] * 4)
    for row in rows:
        writer.record(row)
    writer.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: max(len(whole) - cut, len(whole) - 4 * 250)])
    got = read_journal(path)
    assert rows[: len(got.rows)].tobytes() == got.rows.tobytes()
    assert not got.ended
    assert got.torn == (got.stats is not None and got.stats.torn_frames == 1)


def test_a_flipped_bit_costs_one_frame(written: Callable[..., Path]) -> None:
    """A frame whose checksum is wrong is never believed; what stands behind it is read, and the damage is counted."""
    rows = ok_rows([0.1, 0.2, 0.3])
    path = written(rows)
    data = bytearray(path.read_bytes())
    data[data.index(rows[1].tobytes()) + 20] ^= 1
    path.write_bytes(data)
    got = read_journal(path)
    assert rows[[0, 2]].tobytes() == got.rows.tobytes()
    assert [0, 3, 4] == got.events.start.tolist()
    assert (True, True, 1) == (got.torn, got.ended, got.stats.torn_frames if got.stats else 0)


@pytest.mark.parametrize("size", [0, 1, 15, 17, 20, 26, 60])
def test_a_journal_that_ends_before_its_first_frame_is_empty(written: Callable[..., Path], size: int) -> None:
    """A copy of which little or nothing arrived: no rows, not ended, of the worker that the file's name tells."""
    path = written(ok_rows([0.1]), worker=3)
    path.write_bytes(path.read_bytes()[:size])
    got = read_journal(path)
    assert (3, 0, False) == (got.worker, len(got.rows), got.ended)


def test_a_journal_of_the_first_version_is_read(tmp_path: Path) -> None:
    """Without marks between its frames, as versions before wrote them."""
    rows = ok_rows([0.1, 0.2])
    header = msgspec.json.encode({"worker": 5, "dtype": [(n, RECORD_DTYPE[n].str) for n in RECORD_DTYPE.names or ()]})
    frames = [(0, header), *((1, row.tobytes() + bytes(6)) for row in rows), (3, b"")]
    path = tmp_path / "records-5.bin"
    framed = (struct.pack("<IIB", len(p), zlib.crc32(p, zlib.crc32(bytes((k,)))), k) + p for k, p in frames)
    path.write_bytes(b"goodput journal\n" + b"".join(framed))
    got = read_journal(path)
    assert rows.tobytes() == got.rows.tobytes()
    assert (5, True, False) == (got.worker, got.ended, got.torn)


def test_rows_wait_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushes do not raise, the journal says why rows wait, and beyond a limit that the run has to end."""
    path = tmp_path / "records-0.bin"
    writer = JournalWriter(path, 0)
    rows = ok_rows([0.1] * 3)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _no_space)
        for row in rows:
            writer.record(row)
            writer.flush()
        assert "No space left on device" == writer.trouble
        assert not writer.overflowing
        full.setattr(journal, "MOST_WAITING_BYTES", 500)
        assert writer.overflowing
        assert not writer.close()
        assert not writer.close()
    assert writer.close()
    assert writer.close()
    assert (rows.tobytes(), True) == (read_journal(path).rows.tobytes(), read_journal(path).ended)


def test_what_is_abandoned_has_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that stays full: what it took is read, and the worker counts as lost."""
    path = tmp_path / "records-0.bin"
    writer = JournalWriter(path, 0)
    writer.record(ok_rows([0.1])[0])
    writer.flush()
    writer.record(ok_rows([0.2])[0])
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _no_space)
        assert not writer.close()
    writer.abandon()
    assert (1, False, False) == (len(read_journal(path).rows), read_journal(path).ended, read_journal(path).torn)


def _no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    """Something that is no journal is an error, not an empty journal."""
    path = tmp_path / "records-0.bin"
    path.write_text("hello")
    with pytest.raises(MetricsError, match="not a goodput journal"):
        read_journal(path)


def test_a_journal_is_never_overwritten(written: Callable[..., Path]) -> None:
    """Opening the journal of a worker that already has one fails."""
    path = written(ok_rows([0.1]))
    with pytest.raises(FileExistsError):
        JournalWriter(path, 0)


def test_mismatched_events_are_a_bug_of_the_caller(tmp_path: Path) -> None:
    """As many token counts and lags as times."""
    writer = JournalWriter(tmp_path / "records-0.bin", 0)
    with pytest.raises(ValueError, match="as many event times"):
        writer.record(empty_rows(1)[0], us=b"1234")
    writer.close()


def test_older_columns_are_read() -> None:
    """A journal with fewer, more or other columns gives today's rows, the unknown as before a run."""
    old = np.array([(7, 1.5, 9)], dtype=[("request_id", "i8"), ("scheduled_s", "f8"), ("gone", "i4")])
    row = in_current_columns(old)[0]
    assert (7, 1.5, Outcome.NOT_SENT) == (row["request_id"], row["scheduled_s"], row["outcome"])
    assert np.isnan(row["sent_s"])


def test_merge_puts_records_in_plan_order(written: Callable[..., Path]) -> None:
    """Records arrive as they finish; the table is in schedule order, with events and errors following."""
    rows = ok_rows([0.1, 0.2, 0.3], outcome=[0, 0, Outcome.TIMEOUT], worker=0)
    table = merge([read_journal(written(rows[[2, 0, 1]]))], planned(rows))
    assert rows["first_token_s"].tolist() == table.rows["first_token_s"].tolist()
    assert [0, 0, 1, 4] == table.events.start.tolist()  # type: ignore[union-attr]
    assert [50, 100, 200, 300] == table.events.us.tolist()  # type: ignore[union-attr]
    assert ["boom 2"] == table.errors
    assert [-1, -1, 0] == table.rows["error_id"].tolist()


def test_a_doubled_record_counts_once_and_the_earlier_send_wins() -> None:
    """A shard replayed after a freeze is not two requests; one never sent gives way to one that was."""
    rows = ok_rows([0.1, 0.2])
    late = ok_rows([0.1, 0.2])
    late["sent_s"] += 0.05
    unsent = planned(rows)
    for order in ([rows, late, unsent], [unsent, late, rows]):
        table = merge([contents(part, worker) for worker, part in enumerate(order)], planned(rows))
        assert [0.0, 1.0] == table.rows["sent_s"].tolist()


def test_rows_of_a_lost_worker_are_marked() -> None:
    """What a worker without an ended journal did not report is lost; another worker's unsent rows are not sent."""
    plan = planned(ok_rows([0.1] * 4, worker=[0, 0, 1, 1]))
    done = ok_rows([0.1] * 4, worker=[0, 0, 1, 1])
    table = merge([contents(done[:1], 0), contents(done[2:3], 1, ended=False)], plan)
    assert [Outcome.OK, Outcome.NOT_SENT, Outcome.OK, Outcome.LOST_WORKER] == table.rows["outcome"].tolist()


def test_without_assignment_any_lost_worker_may_have_had_the_row() -> None:
    """A plan that names no worker: missing rows are lost when any journal is not ended, else not sent."""
    plan = planned(ok_rows([0.1] * 2))
    one = ok_rows([0.1] * 2)[:1]
    assert Outcome.LOST_WORKER == merge([contents(one, ended=False)], plan).rows["outcome"][1]
    assert Outcome.NOT_SENT == merge([contents(one)], plan).rows["outcome"][1]
    assert [Outcome.NOT_SENT] * 2 == merge([], plan).rows["outcome"].tolist()


def test_a_record_of_another_run_is_refused() -> None:
    """A request id that was not planned cannot be counted anywhere."""
    with pytest.raises(MetricsError, match="did not plan"):
        merge([contents(ok_rows([0.1], request_id=5))], planned(ok_rows([0.1])))


def test_distinct_error_texts_are_capped() -> None:
    """Ten thousand different texts keep 199 and one that stands for the rest."""
    n = 1000
    rows = ok_rows([0.1] * n, outcome=Outcome.TIMEOUT)
    journal = JournalContents(0, rows, ragged([[]] * n), [f"error {i}" for i in range(n)])
    table = merge([journal], planned(rows))
    assert DISTINCT_ERRORS == len(table.errors)
    assert OTHER_ERRORS == table.errors[table.rows["error_id"][-1]]
