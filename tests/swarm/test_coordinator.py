"""The coordinator: one claim each, one start for all, liveness, epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest import clock
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import SenderOptions
from loadtest.swarm import coordinator as module
from loadtest.swarm import protocol
from loadtest.swarm.coordinator import Coordinator, LoadPlan
from loadtest.swarm.protocol import Ack, Assignment, Batch, Beat, Claim, Go, Ping, Pong, Ready, Refusal, Stop
from loadtest.target import merged
from metrics.journal import JournalWriter
from metrics.records import Outcome, empty_rows
from metrics.runinfo import DISK_FULL
from tests.metrics.test_appender import Disk
from tests.swarm.stage import stage
from workloads.schedule import Schedule
from workloads.schedule import plan as schedule_from
from workloads.trace import Trace

HERE = Claim(protocol.place_id(), 100)


class Time:
    """The machine's monotonic clock, moved by hand."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def __call__(self) -> int:
        return self.ns

    def pass_s(self, seconds: float) -> None:
        self.ns += int(seconds * 1e9)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "monotonic_ns", time)
    return time


def plan(workers: int, run: str = "r1", directory: Path = Path("/nowhere"), **options: Any) -> LoadPlan:
    endpoint = Endpoint.parse("http://127.0.0.1:1")
    return LoadPlan(run, directory, endpoint, SenderOptions(**options), workers)


def schedule_of(rows: int) -> Schedule:
    """Requests 0, 1, ... a second apart, without sessions."""
    trace = Trace("t", np.arange(rows) * 1_000_000_000, np.full(rows, 4), np.full(rows, 2))
    return schedule_from(trace, seed=0, salt="00")


def begun(workers: int, **options: Any) -> tuple[Any, Coordinator]:
    scene = stage()
    coordinator = Coordinator(scene)
    coordinator.begin(plan(workers, **options))
    return scene, coordinator


def started(workers: int) -> tuple[Any, Coordinator]:
    """A run whose workers `a`, `b`, ... have all been told to go."""
    scene, coordinator = begun(workers)
    for index, client in enumerate("abcd"[:workers]):
        scene.say(protocol.CLAIM, Claim(HERE.place, 100 + index), client)
        scene.say(protocol.READY, Ready("r1", index), client)
    return scene, coordinator


def keep_alive(scene: Any, coordinator: Coordinator, now: Time, seconds: int, clients: str) -> None:
    """Time passes, and only `clients` are heard of."""
    for _ in range(seconds):
        now.pass_s(1)
        for client in clients:
            scene.say(protocol.BEAT, Beat("r1", "abcd".index(client)), client)
        coordinator.check()


def test_each_worker_gets_a_shard_of_its_own() -> None:
    """Two claims are answered with shards 0 and 1 of 2."""
    scene, _ = begun(2)
    scene.say(protocol.CLAIM, HERE, "a")
    scene.say(protocol.CLAIM, HERE, "b")
    assert [(0, 2)] == [(a.worker, a.workers) for a in scene.heard(protocol.ASSIGN, Assignment, "a")]
    assert [(1, 2)] == [(a.worker, a.workers) for a in scene.heard(protocol.ASSIGN, Assignment, "b")]


def test_a_second_claim_of_one_worker_is_refused() -> None:
    """A user that Locust restarts after a freeze gets nothing: no shard is replayed twice."""
    scene, _ = begun(2)
    scene.say(protocol.CLAIM, HERE, "a")
    scene.say(protocol.CLAIM, HERE, "a")
    assert 1 == len(scene.heard(protocol.ASSIGN, Assignment))
    assert ["this worker has its shard already"] == [r.reason for r in scene.heard(protocol.REFUSE, Refusal, "a")]


def test_more_workers_than_shards_are_refused() -> None:
    """A worker that joins beyond the planned number stays idle."""
    scene, _ = begun(1)
    scene.say(protocol.CLAIM, HERE, "a")
    scene.say(protocol.CLAIM, HERE, "b")
    assert ["all shards are taken"] == [r.reason for r in scene.heard(protocol.REFUSE, Refusal, "b")]


def test_a_worker_on_another_disk_gets_its_rows_along(tmp_path: Path) -> None:
    """No path of ours is of use there: the shard travels, and its journal comes back in pieces into our folder."""
    scene, coordinator = begun(2, directory=tmp_path)
    schedule_of(7).save(tmp_path / "schedule.npz")
    scene.say(protocol.CLAIM, HERE, "a")
    scene.say(protocol.CLAIM, Claim("elsewhere", 1), "b")
    (assignment,) = scene.heard(protocol.ASSIGN, Assignment, "b")
    assert ("", "") == (assignment.schedule_path, assignment.journal_path)
    (tmp_path / "got.npz").write_bytes(assignment.schedule)
    assert [1, 3, 5] == Schedule.load(tmp_path / "got.npz").request_id.tolist()
    for offset, data in ((0, b"abc"), (3, b"de"), (3, b"de")):
        scene.say(protocol.BATCH, Batch("r1", offset, data), "b")
    assert [3, 5, 5] == [ack.size for ack in scene.heard(protocol.ACK, Ack, "b")]
    assert b"abcde" == (tmp_path / "records-1.bin").read_bytes()
    scene.say(protocol.BATCH, Batch("r0", 5, b"x"), "b")  # of another run
    assert 3 == len(scene.heard(protocol.ACK, Ack, "b"))
    assert not coordinator.over


def journal_bytes(folder: Path, worker: int, ids: list[int]) -> bytes:
    """An ended journal in which these requests were answered."""
    path = folder / f"of-{worker}"
    writer = JournalWriter(path, worker, "r1")
    for request in ids:
        row = empty_rows(1)
        row["request_id"], row["worker"], row["outcome"], row["sent_s"] = request, worker, Outcome.OK, request
        writer.record(row[0])
    writer.close()
    return path.read_bytes()


def apart(tmp_path: Path, clients: str) -> tuple[Any, Coordinator]:
    """A run of eight requests that workers of other machines have begun."""
    scene, coordinator = begun(len(clients), directory=tmp_path)
    schedule_of(8).save(tmp_path / "schedule.npz")
    for index, client in enumerate(clients):
        scene.say(protocol.CLAIM, Claim("elsewhere", index), client)
    for index, client in enumerate(clients):
        scene.say(protocol.READY, Ready("r1", index), client)
    return scene, coordinator


@pytest.mark.parametrize("delivered", [0, 5, 30, 200])
def test_a_worker_that_dies_before_its_first_rows_costs_only_its_own(now: Time, tmp_path: Path, delivered: int) -> None:
    """Killed after Ready: its copy is empty or a few bytes; everything of the other one is in the table."""
    scene, coordinator = apart(tmp_path, "ab")
    scene.say(protocol.BATCH, Batch("r1", 0, journal_bytes(tmp_path, 0, [0, 2, 4, 6])), "a")
    if delivered:
        scene.say(protocol.BATCH, Batch("r1", 0, journal_bytes(tmp_path, 1, [])[:delivered]), "b")
    for _ in range(12):
        now.pass_s(1)
        scene.say(protocol.BEAT, Beat("r1", 0, done=True), "a")
        coordinator.check()
    assert (True, [1]) == (coordinator.over, coordinator.lost)
    table = merged(schedule_of(8), tmp_path, 2)
    assert [Outcome.OK, Outcome.LOST_WORKER] * 4 == table.rows["outcome"].tolist()


def test_a_disk_here_that_stays_full_ends_the_run(
    now: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The user is told once; after a minute the worker counts as lost, though it is heard: its journal is there."""
    scene, coordinator = apart(tmp_path, "a")
    content = journal_bytes(tmp_path, 0, [0, 1])
    Disk(monkeypatch, room=10)
    for second in range(62):
        assert coordinator.over == (second > 61)
        scene.say(protocol.BATCH, Batch("r1", 10 * (second > 0), content[10 * (second > 0) :]), "a")
        coordinator.check()
        now.pass_s(1)
    assert (True, [0]) == (coordinator.over, coordinator.lost)
    assert ["worker 0: the disk of its copy is full (No space left on device): make room"] == caplog.messages


def test_a_journal_that_is_cut_by_a_full_disk_is_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Its worker says so while it lasts, and with its last word: the run is partial, for that reason."""
    scene, coordinator = started(1)
    for trouble in ("", "No space left on device", "No space left on device", "", "No space left on device"):
        scene.say(protocol.BEAT, Beat("r1", 0, disk=trouble))
    assert not coordinator.interrupted
    scene.say(protocol.BEAT, Beat("r1", 0, disk="No space left on device", done=True))
    assert coordinator.over
    assert coordinator.stop_reason.startswith(DISK_FULL)
    assert 3 == len(caplog.messages)


def test_the_start_waits_for_the_slowest_way_there(now: Time, tmp_path: Path) -> None:
    """Go must be there before the first instant, however far a worker is."""
    scene, _ = begun(2, directory=tmp_path)
    for client in "ab":
        scene.say(protocol.CLAIM, HERE, client)
    scene.say(protocol.READY, Ready("r1", 0, rtt_ns=50_000_000), "a")
    scene.say(protocol.READY, Ready("r1", 1), "b")
    assert [now.ns + 300_000_000] == [go.t0_ns for go in scene.heard(protocol.GO, Go, "a")]


def test_the_coordinator_tells_its_clock(now: Time) -> None:
    """A Ping comes back at once with the time here."""
    scene, _ = begun(1)
    scene.say(protocol.PING, Ping(77), "a")
    assert [Pong(77, now.ns)] == scene.heard(protocol.PONG, Pong, "a")


def test_nobody_starts_before_all_are_ready() -> None:
    """Go is sent once, to all, with one instant in the near future, when the last worker is ready."""
    scene, coordinator = begun(2)
    for client in "ab":
        scene.say(protocol.CLAIM, HERE, client)
    scene.say(protocol.READY, Ready("r1", 0), "a")
    assert not scene.heard(protocol.GO, Go)
    assert not coordinator.started
    scene.say(protocol.READY, Ready("r1", 1), "b")
    instants = {go.t0_ns for go in scene.heard(protocol.GO, Go)}
    assert 2 == len(scene.heard(protocol.GO, Go))
    assert 1 == len(instants)
    assert 0 < instants.pop() - clock.monotonic_ns() <= module.START_DELAY_NS


def test_the_run_is_over_when_every_shard_is_done() -> None:
    """The last beat of the last worker ends it; progress adds up."""
    scene, coordinator = started(2)
    scene.say(protocol.BEAT, Beat("r1", 0, planned=3, sent=3, finished=3, done=True), "a")
    assert not coordinator.over
    scene.say(protocol.BEAT, Beat("r1", 1, planned=2, sent=2, finished=2, failed=1, done=True), "b")
    assert coordinator.over
    progress = coordinator.progress()
    assert (5, 5, 5, 1) == (progress.planned, progress.sent, progress.finished, progress.failed)
    assert [] == coordinator.lost


def test_a_silent_worker_is_lost_and_the_others_finish(now: Time) -> None:
    """After ten silent seconds a worker is lost; the run ends with the others."""
    scene, coordinator = started(2)
    keep_alive(scene, coordinator, now, 9, "a")
    assert [] == coordinator.lost
    keep_alive(scene, coordinator, now, 3, "a")
    assert [1] == coordinator.lost
    assert not coordinator.over
    scene.say(protocol.BEAT, Beat("r1", 0, done=True), "a")
    assert coordinator.over


def test_a_frozen_worker_that_comes_back_is_found_again(now: Time) -> None:
    """Lost is not for ever: one word of it while the run goes on, and it counts again."""
    scene, coordinator = started(2)
    keep_alive(scene, coordinator, now, 12, "a")
    assert [1] == coordinator.lost
    scene.say(protocol.BEAT, Beat("r1", 1), "b")
    coordinator.check()
    assert [] == coordinator.lost


def test_a_dead_process_is_lost_at_once() -> None:
    """Who supervises the processes knows before any silence tells."""
    _, coordinator = started(2)
    coordinator.check(dead_pids={101})
    assert [1] == coordinator.lost


def test_our_own_freeze_loses_nobody(now: Time) -> None:
    """When this process slept, it could not hear anybody: the silence is its own."""
    _, coordinator = started(2)
    now.pass_s(60)
    coordinator.check()
    assert [] == coordinator.lost


def test_a_worker_of_an_older_run_is_told_to_stop() -> None:
    """The run's id is the fence: what belongs to another run counts for nothing."""
    scene, coordinator = started(1)
    scene.say(protocol.BEAT, Beat("r0", 0, done=False), "z")
    assert ["r0"] == [stop.run for stop in scene.heard(protocol.STOP, Stop, "z")]
    scene.say(protocol.BEAT, Beat("r0", 0, done=True), "a")
    assert not coordinator.over


def test_a_new_epoch_forgets_the_old_one() -> None:
    """After `begin` every worker may claim again."""
    scene, coordinator = started(1)
    scene.say(protocol.BEAT, Beat("r1", 0, done=True), "a")
    coordinator.begin(plan(1, run="r2"))
    assert not coordinator.over
    scene.say(protocol.CLAIM, HERE, "a")
    assert ["r1", "r2"] == [a.run for a in scene.heard(protocol.ASSIGN, Assignment, "a")]


def test_an_interrupt_stops_all_workers_and_waits_for_them() -> None:
    """Workers are told to stop; the run is over when they have closed their journals."""
    scene, coordinator = started(2)
    coordinator.interrupt()
    assert 2 == len(scene.heard(protocol.STOP, Stop))
    assert not coordinator.over
    for index, client in enumerate("ab"):
        scene.say(protocol.BEAT, Beat("r1", index, done=True), client)
    assert coordinator.over
    assert coordinator.interrupted
    assert coordinator.stopped_at_s is not None


def test_an_interrupt_does_not_wait_for_ever(now: Time) -> None:
    """A worker that does not answer to Stop is given up after a grace."""
    _, coordinator = started(1)
    coordinator.interrupt()
    now.pass_s(11)
    coordinator.check()
    assert coordinator.over


def test_an_interrupt_before_the_start_ends_at_once() -> None:
    """Nothing was sent, so there is nothing to wait for."""
    _, coordinator = begun(2)
    coordinator.interrupt()
    assert coordinator.over
    assert 0.0 == coordinator.stopped_at_s


def test_a_worker_that_cannot_start_fails_the_run_with_its_reason() -> None:
    """The reason reaches the user."""
    scene, coordinator = begun(2)
    scene.say(protocol.CLAIM, HERE, "a")
    scene.say(protocol.BEAT, Beat("r1", 0, error="OSError: disk full"), "a")
    assert coordinator.over
    assert "worker 0: OSError: disk full" == coordinator.error


def test_workers_that_never_claim_fail_the_run(now: Time) -> None:
    """A run waits for its workers for a minute, not for ever."""
    _, coordinator = begun(2)
    now.pass_s(61)
    coordinator.check()
    assert coordinator.over
    assert "0 of 2 workers" in coordinator.error


@pytest.mark.parametrize(("cap", "shares"), [(7, [3, 2, 2]), (3, [1, 1, 1]), (None, [None, None, None])])
def test_a_cap_is_on_all_workers_together(cap: int | None, shares: list[int | None]) -> None:
    """--max-in-flight is split so that the shares sum to it."""
    scene, _ = begun(3, max_in_flight=cap)
    for client in "abc":
        scene.say(protocol.CLAIM, HERE, client)
    assert shares == [a.options.max_in_flight for a in scene.heard(protocol.ASSIGN, Assignment)]
