"""Targets: the table made of journals, the simulator, a server that does not start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtest.deployment import Deployment
from loadtest.errors import TargetError
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import SenderOptions
from loadtest.target import LiveTarget, LoadSettings, SimulatedTarget, SupervisedTarget, merged
from loadtest.workload import Workload
from metrics import rundir
from metrics.journal import JournalWriter
from metrics.records import Outcome, Rows, empty_rows
from workloads.schedule import Schedule

END_FRAME_BYTES = 9  # length, checksum and kind, nothing else


def planned(directory: Path, requests: int = 6) -> Schedule:
    workload = Workload(trace="azure-conv", requests=requests, rate_per_s=2.0)
    schedule = workload.schedule(workload.read())
    schedule.save(directory / rundir.SCHEDULE)
    return schedule


def journal(directory: Path, worker: int, ids: list[int], *, ended: bool = True) -> None:
    writer = JournalWriter(rundir.journal_path(directory, worker), worker)
    for request_id in ids:
        row: Rows = empty_rows(1)
        row["request_id"], row["worker"], row["outcome"], row["sent_s"] = request_id, worker, Outcome.OK, 0.1
        writer.record(row[0])
    writer.close()
    if not ended:
        path = rundir.journal_path(directory, worker)
        path.write_bytes(path.read_bytes()[:-END_FRAME_BYTES])


def test_journals_become_a_row_per_planned_request(tmp_path: Path) -> None:
    """Two ended journals: everything is there, in the order of the schedule."""
    schedule = planned(tmp_path)
    journal(tmp_path, 0, [4, 0, 2])
    journal(tmp_path, 1, [5, 3, 1])
    rows = merged(schedule, tmp_path, 2).rows
    assert [0, 1, 2, 3, 4, 5] == rows["request_id"].tolist()
    assert {Outcome.OK} == set(rows["outcome"].tolist())
    np.testing.assert_array_equal(schedule.scheduled_s, rows["scheduled_s"])


def test_only_the_unreported_rows_of_a_lost_worker_are_lost(tmp_path: Path) -> None:
    """Worker 1's journal has no end: what it reported counts, the rest of *its* shard is lost."""
    schedule = planned(tmp_path)
    journal(tmp_path, 0, [0, 2])
    journal(tmp_path, 1, [1], ended=False)
    outcome = merged(schedule, tmp_path, 2).rows["outcome"].tolist()
    ok, lost, unsent = Outcome.OK, Outcome.LOST_WORKER, Outcome.NOT_SENT
    assert [ok, ok, ok, lost, unsent, lost] == outcome


def test_a_worker_without_a_journal_lost_its_whole_shard(tmp_path: Path) -> None:
    """It died before it could write."""
    schedule = planned(tmp_path)
    journal(tmp_path, 0, [0, 2, 4])
    outcome = merged(schedule, tmp_path, 2).rows["outcome"]
    assert [Outcome.LOST_WORKER] * 3 == outcome[1::2].tolist()


def test_the_simulator_is_a_target_like_the_others(tmp_path: Path) -> None:
    """No directory is touched, every row is simulated."""
    schedule = planned(tmp_path)
    before = sorted(tmp_path.iterdir())
    with SimulatedTarget(Deployment.parse("emulated:chunked,model=demo-8b")) as target:
        table = target.measure(schedule, tmp_path).table
    assert before == sorted(tmp_path.iterdir())
    assert {Outcome.OK} == set(table.rows["outcome"].tolist())


def test_a_live_target_is_looked_at_before_any_load() -> None:
    """Nobody listens: a TargetError from opening it, before a schedule exists."""
    target = LiveTarget(Endpoint.parse("http://127.0.0.1:1"), LoadSettings(SenderOptions()))
    with pytest.raises(TargetError, match="cannot connect"), target:
        pass


@pytest.mark.live
def test_a_bundled_server_lives_as_long_as_the_block(tmp_path: Path) -> None:
    """Inside the block its facts are known; afterwards nothing listens there."""
    deployment = Deployment.parse("emulated:chunked,model=demo-8b")
    target = SupervisedTarget(deployment, LoadSettings(SenderOptions()), tmp_path / "server.log")
    with target:
        facts = target.facts
        assert ("demo-8b", 16_384) == (facts.model, facts.max_model_len)
        assert target.died() is None
    with pytest.raises(TargetError), LiveTarget(Endpoint.parse(facts.url), LoadSettings(SenderOptions())):
        pass


@pytest.mark.live
def test_a_bundled_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """Its last words are in the error."""
    deployment = Deployment.parse("emulated:chunked,policy=no_such_module:Policy")
    target = SupervisedTarget(deployment, LoadSettings(SenderOptions()), tmp_path / "server.log")
    with pytest.raises(TargetError, match="no_such_module"), target:
        pass
