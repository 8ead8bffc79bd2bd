"""The run's side that hands out shards, starts everybody at one instant, and knows who is alive.

Locust has no event for a worker that is gone and exits 0 after a `kill -9`, so liveness is ours: a worker
that has not been heard of for LIVENESS_NS is lost until it is heard of again or the run is over.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from gevent.event import Event
from locust.env import Environment

from loadtest import clock
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.sender import SenderOptions
from loadtest.replay.tally import Seen, together
from loadtest.swarm import protocol
from loadtest.swarm.courier import Copy
from loadtest.swarm.doorman import polite
from loadtest.swarm.protocol import Ack, Assignment, Batch, Beat, Claim, Go, Ping, Pong, Ready, Refusal, Stop
from loadtest.swarm.token import Token
from metrics import rundir
from metrics.runinfo import DISK_FULL, STOPPED_BY_USER
from workloads.schedule import Schedule
from workloads.tokenizer import file_hash

_log = logging.getLogger("goodput")

DISK_PATIENCE_NS = 60_000_000_000  # with a full disk here: what workers deliver waits in their own journals
LIVENESS_NS = 10_000_000_000
NOT_OURS = -1  # process id of a worker on another machine
OWN_FREEZE_NS = 2_000_000_000
STOP_GRACE_NS = 10_000_000_000
START_LIMIT_NS = 60_000_000_000
WATCH_S = 0.25
START_DELAY_NS = 100_000_000  # from the last worker's Ready to scheduled_s == 0: Go must arrive, connections open
START_DELAY_RTTS = 4


@dataclass(frozen=True)
class LoadPlan:
    """What to send, to whom, from how many workers; `directory` holds schedule.npz and gets the journals.

    With `bind`, the workers are started elsewhere and join a master there; a master waits `wait_s` for them, and
    listens beyond this machine only with the `token` that they have too.
    """

    run: str
    directory: Path
    endpoint: Endpoint
    options: SenderOptions
    workers: int = 1
    reactor: str = "hub"
    bind: tuple[str, int] | None = None
    wait_s: float = 60.0
    token: Token | None = None


class LoadProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is, all workers together; `elapsed_s` is negative before the first instant."""

    elapsed_s: float
    planned: int
    sent: int
    in_flight: int
    finished: int
    failed: int
    workers_lost: int
    seen: Seen = msgspec.field(default_factory=Seen)


@dataclass
class _Worker:
    """A client that holds a shard."""

    index: int
    pid: int
    heard_ns: int
    copy: Copy | None = None  # of the journal of a worker that does not write to our disk
    rtt_ns: int = 0
    ready: bool = False
    lost: bool = False
    trouble: str = ""  # with a disk, as the user was told
    beat: Beat | None = None

    @property
    def done(self) -> bool:
        return self.beat is not None and (self.beat.done or bool(self.beat.error))


_coordinators: WeakKeyDictionary[Environment, Coordinator] = WeakKeyDictionary()


def coordinator_of(environment: Environment) -> Coordinator:
    """The one coordinator of a master's, or a single process's, environment."""
    return _coordinators[environment]


class Coordinator:
    """One per master or single process; `begin` starts a new epoch."""

    def __init__(self, environment: Environment) -> None:
        assert environment.runner is not None
        self._runner = environment.runner
        self._plan: LoadPlan | None = None
        self._clients: dict[str, _Worker] = {}
        self._begun_ns = 0
        self._checked_ns = 0
        self._t0_ns = 0
        self._stopped_ns = 0
        self._over = Event()
        self.error = self.stop_reason = ""
        _coordinators[environment] = self
        for kind, listener in (
            (protocol.CLAIM, self._on_claim),
            (protocol.READY, self._on_ready),
            (protocol.BEAT, self._on_beat),
            (protocol.PING, self._on_ping),
            (protocol.BATCH, self._on_batch),
        ):
            self._runner.register_message(kind, polite(listener))

    def begin(self, plan: LoadPlan) -> None:
        """Start a new epoch: what an older run's workers still say does not count any more."""
        self._plan = plan
        self._clients = {}
        self._begun_ns = self._checked_ns = clock.monotonic_ns()
        self._t0_ns = self._stopped_ns = 0
        self._over.clear()
        self.error = self.stop_reason = ""

    @property
    def workers(self) -> int:
        """Workers of the plan, which is also the constant user count; 0 before the first plan."""
        return self._plan.workers if self._plan is not None else 0

    @property
    def started(self) -> bool:
        """True once all workers were ready and told when to start."""
        return self._t0_ns > 0

    @property
    def over(self) -> bool:
        """True once every shard is done or lost, or the run failed to start."""
        return bool(self._over.is_set())

    @property
    def interrupted(self) -> bool:
        """True when the run was stopped early."""
        return self._stopped_ns > 0

    @property
    def stopped_at_s(self) -> float | None:
        """When the user stopped the run, on the schedule's clock; None when nobody did."""
        if not self._stopped_ns:
            return None
        return max(0.0, (self._stopped_ns - self._t0_ns) / 1e9) if self._t0_ns else 0.0

    @property
    def lost(self) -> list[int]:
        """Indexes of the workers that are lost."""
        return sorted(worker.index for worker in self._clients.values() if worker.lost)

    def wait(self, seconds: float) -> bool:
        """Wait until the run is over, at most `seconds`; True when it is."""
        return bool(self._over.wait(seconds))

    def progress(self) -> LoadProgress:
        """All workers' last words, added up."""
        beats = [worker.beat for worker in self._clients.values() if worker.beat is not None]
        return LoadProgress(
            elapsed_s=(clock.monotonic_ns() - self._t0_ns) / 1e9 if self._t0_ns else 0.0,
            planned=sum(beat.planned for beat in beats),
            sent=sum(beat.sent for beat in beats),
            in_flight=sum(beat.in_flight for beat in beats),
            finished=sum(beat.finished for beat in beats),
            failed=sum(beat.failed for beat in beats),
            workers_lost=len(self.lost),
            seen=together(beat.seen for beat in beats if beat.seen is not None),
        )

    def interrupt(self) -> None:
        """Stop early: workers close what is in flight and end their journals."""
        self._stop(clock.monotonic_ns(), STOPPED_BY_USER)

    def _stop(self, at_ns: int, reason: str) -> None:
        if self._stopped_ns:  # several workers may come to it by themselves, and their words cross
            self._stopped_ns = min(self._stopped_ns, at_ns)
        if self.over or self._stopped_ns:
            return
        self._stopped_ns, self.stop_reason = at_ns, reason
        if self._t0_ns:
            self._send_all(protocol.STOP, Stop(self._run))
        else:
            self._over.set()

    def check(self, dead_pids: Collection[int] = ()) -> None:
        """Look after the workers; call a few times a second. `dead_pids` are processes known to have ended."""
        now_ns = clock.monotonic_ns()
        if now_ns - self._checked_ns > OWN_FREEZE_NS:  # it was we who slept: nobody could be heard
            for worker in self._clients.values():
                worker.heard_ns = now_ns
        self._checked_ns = now_ns
        for worker in self._clients.values():
            silent_ns = now_ns - worker.heard_ns
            unheard = silent_ns > LIVENESS_NS or (worker.copy is not None and worker.copy.hopeless(DISK_PATIENCE_NS))
            worker.lost = not worker.done and (worker.pid in dead_pids or unheard)
        if self._stopped_ns and now_ns - self._stopped_ns > STOP_GRACE_NS:
            self._over.set()
        if not self._t0_ns and now_ns - self._begun_ns > START_LIMIT_NS:
            self.fail(f"only {len(self._clients)} of {self.workers} workers took their part of the schedule")
        self._finish_if_all_done()

    def fail(self, error: str) -> None:
        """The run cannot go on."""
        self.error = self.error or error
        self._over.set()

    @property
    def _run(self) -> str:
        return self._plan.run if self._plan is not None else ""

    def _on_claim(self, msg: Any, **_: object) -> None:
        claim = protocol.unpack(msg.data, Claim)
        reason = self._refusal(msg.node_id)
        if reason:
            self._send(protocol.REFUSE, Refusal(self._run, reason), msg.node_id)
            return
        assert self._plan is not None
        index = len(self._clients)
        worker = _Worker(index, claim.pid, clock.monotonic_ns())
        assignment = _assignment(self._plan, index)
        if claim.place != protocol.place_id():
            assignment = _sent_along(assignment, self._plan)
            worker.copy, worker.pid = Copy(rundir.journal_path(self._plan.directory, index)), NOT_OURS
        self._clients[msg.node_id] = worker
        self._send(protocol.ASSIGN, assignment, msg.node_id)

    def _refusal(self, client: str) -> str:
        """Why a claim gets no shard; empty when it gets one."""
        if self._plan is None or self.over or self._t0_ns:
            return "no run is waiting for workers"
        if client in self._clients:
            return "this worker has its shard already"
        if len(self._clients) == self._plan.workers:
            return "all shards are taken"
        return ""

    def _on_ready(self, msg: Any, **_: object) -> None:
        ready = protocol.unpack(msg.data, Ready)
        worker = self._heard(msg.node_id, ready.run)
        if worker is None or self._plan is None or self.over:
            return
        worker.ready, worker.rtt_ns = True, ready.rtt_ns
        workers = self._clients.values()
        if sum(w.ready for w in workers) == self._plan.workers and not self._t0_ns:
            delay_ns = START_DELAY_NS + START_DELAY_RTTS * max(w.rtt_ns for w in workers)
            self._t0_ns = clock.monotonic_ns() + delay_ns
            self._send_all(protocol.GO, Go(self._run, self._t0_ns))

    def _on_ping(self, msg: Any, **_: object) -> None:
        ping = protocol.unpack(msg.data, Ping)
        self._send(protocol.PONG, Pong(ping.sent_ns, clock.monotonic_ns()), msg.node_id)

    def _on_batch(self, msg: Any, **_: object) -> None:
        batch = protocol.unpack(msg.data, Batch)
        worker = self._heard(msg.node_id, batch.run)
        if worker is not None and worker.copy is not None:
            self._send(protocol.ACK, Ack(self._run, worker.copy.take(batch)), msg.node_id)
            self._warn_of_disk(worker, worker.copy.trouble, "of its copy")

    def _on_beat(self, msg: Any, **_: object) -> None:
        beat = protocol.unpack(msg.data, Beat)
        worker = self._heard(msg.node_id, beat.run)
        if worker is None:
            if not beat.done:  # a worker that slept through the end of its run must not go on sending
                self._send(protocol.STOP, Stop(beat.run), msg.node_id)
            return
        worker.beat = beat
        if worker.copy is None or not worker.copy.trouble:
            self._warn_of_disk(worker, beat.disk, "of its journal")
        if beat.aborted:
            self._stop(beat.aborted_ns, beat.aborted)
        if beat.done and beat.disk:
            self._stop(clock.monotonic_ns(), f"{DISK_FULL}: {beat.disk}; the journal of worker {worker.index} is cut")
        if beat.error:
            self.fail(f"worker {worker.index}: {beat.error}")
            self._send_all(protocol.STOP, Stop(self._run))
        self._finish_if_all_done()

    def _warn_of_disk(self, worker: _Worker, trouble: str, whose: str) -> None:
        """Say it when a disk takes nothing more, and when it does again."""
        if trouble == worker.trouble:
            return
        worker.trouble = trouble
        if trouble:
            _log.warning("worker %d: the disk %s is full (%s): make room", worker.index, whose, trouble)
        else:
            _log.warning("worker %d: the disk takes rows again, nothing is lost", worker.index)

    def _heard(self, client: str, run: str) -> _Worker | None:
        """The worker that speaks, if it belongs to this epoch."""
        worker = self._clients.get(client) if run == self._run else None
        if worker is not None:
            worker.heard_ns = clock.monotonic_ns()
            worker.lost = False
        return worker

    def _finish_if_all_done(self) -> None:
        workers = self._clients.values()
        if workers and len(workers) == self.workers and all(worker.done or worker.lost for worker in workers):
            self._over.set()

    def _send(self, kind: str, message: msgspec.Struct, client: str) -> None:
        self._runner.send_message(kind, protocol.pack(message), client)

    def _send_all(self, kind: str, message: msgspec.Struct) -> None:
        for client in list(self._clients):
            self._send(kind, message, client)


def _assignment(plan: LoadPlan, index: int) -> Assignment:
    options = plan.options
    if options.max_in_flight is not None:  # a cap is on all workers together
        share, rest = divmod(options.max_in_flight, plan.workers)
        options = msgspec.structs.replace(options, max_in_flight=share + (index < rest))
    return Assignment(
        run=plan.run,
        worker=index,
        workers=plan.workers,
        schedule_path=str(plan.directory.resolve() / rundir.SCHEDULE),
        journal_path=str(rundir.journal_path(plan.directory.resolve(), index)),
        endpoint=plan.endpoint,
        options=options,
        reactor=plan.reactor,
    )


def _sent_along(assignment: Assignment, plan: LoadPlan) -> Assignment:
    """With the shard's rows in it and no path of ours, for a worker that cannot read our disk."""
    shard = Schedule.load(assignment.schedule_path).shard(assignment.worker, assignment.workers)
    file = plan.directory / f"shard-{assignment.worker}.npz"
    shard.save(file)
    schedule = file.read_bytes()
    file.unlink()
    endpoint = assignment.endpoint
    return msgspec.structs.replace(
        assignment,
        schedule_path="",
        journal_path="",
        schedule=schedule,
        endpoint=msgspec.structs.replace(endpoint, api_key_env="", api_key_file="", ca_file=""),
        needs_key=bool(endpoint.api_key_env or endpoint.api_key_file),
        tokenizer_sha256=file_hash(shard.tokenizer) if shard.tokenizer else "",
    )


def watch(coordinator: Coordinator) -> None:
    """Look after the workers until the run is over; for a greenlet of its own under `locust -f`."""
    while not coordinator.wait(WATCH_S):
        coordinator.check()
