"""The worker's half of a run: claims one shard, replays it, writes its journal, reports each second."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import gevent
import msgspec
from gevent.event import Event
from locust.env import Environment

from loadtest import clock
from loadtest.replay.sender import Progress
from loadtest.swarm import protocol
from loadtest.swarm.clocks import ClockOffset
from loadtest.swarm.courier import Courier
from loadtest.swarm.protocol import Ack, Assignment, Beat, Claim, Go, Pong, Ready, Stop
from loadtest.swarm.remote_settings import RemoteSettings
from metrics import rundir

_log = logging.getLogger("goodput")

POLL_S = 0.05
BEAT_NS = 1_000_000_000
DISK_PATIENCE_NS = 60_000_000_000  # with a full disk at the end of a run
DISK_RETRY_S = 0.5
PRIORITY_CHANGE = -10  # of the nice value, while measuring


class Sending(Protocol):
    """The part of the sender used here."""

    @property
    def done(self) -> bool: ...
    def start(self, t0_ns: int) -> None: ...
    def stop(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def progress(self) -> Progress: ...


class Shard(NamedTuple):
    """A sender with its loop: `turn(seconds)` lets it work for about that long, `close` ends its journal.

    While the disk is full `close` does not succeed, as `sender.progress().disk` tells; `abandon` leaves it at that.
    """

    sender: Sending
    turn: Callable[[float], object]
    close: Callable[[], object]
    abandon: Callable[[], object] = lambda: None


OnRequest = Callable[[str, float, int, str | None], None]
BuildShard = Callable[[Assignment, OnRequest], Shard]

_replayers: WeakKeyDictionary[Environment, Replayer] = WeakKeyDictionary()


def replayer_of(environment: Environment) -> Replayer:
    """The one replayer of this process's environment.

    Waits for it: a worker's runner may be told to start users while it is still being made.
    """
    while environment not in _replayers:
        gevent.sleep(0.01)
    return _replayers[environment]


def build_shard(assignment: Assignment, on_request: OnRequest) -> Shard:
    """The real sender on the reactor that was asked for."""
    from loadtest.swarm.shard import build

    return build(assignment, on_request)


class Replayer:
    """One per process. It, not a Locust user, owns the sender."""

    def __init__(
        self,
        environment: Environment,
        build: BuildShard = build_shard,
        *,
        remote: RemoteSettings | None = None,
        place: str = "",
    ) -> None:
        """With `remote` no assignment's path is used, only what was sent along; `place` pretends to be elsewhere."""
        assert environment.runner is not None
        self.stopping = Event()
        self._runner = environment.runner
        self._request = environment.events.request
        self._build = build
        self._remote, self._place = remote, place or protocol.place_id()
        self._claimed = False
        self._assignment: Assignment | None = None
        self._offset = ClockOffset(lambda ping: self._send(protocol.PING, ping))
        self._courier: Courier | None = None
        self.last_beat: Beat | None = None
        self.folder: Path | None = None  # with the journal of a shard from another place
        self.deserted = False  # the master is not there any more
        self._shard: Shard | None = None
        self._started = self._in_a_hurry = False
        self._nice_before = 0
        self._runner.register_message(protocol.ASSIGN, self._on_assign)
        self._runner.register_message(protocol.REFUSE, lambda **_: None)
        self._runner.register_message(protocol.GO, self._on_go)
        self._runner.register_message(protocol.STOP, self._on_stop)
        self._runner.register_message(protocol.PONG, self._on_pong)
        self._runner.register_message(protocol.ACK, self._on_ack)
        environment.events.test_start.add_listener(self._on_test_start)
        environment.events.test_stopping.add_listener(self._on_test_stopping)
        _replayers[environment] = self

    def claim(self) -> None:
        """Ask for this process's shard, once per test."""
        if not self._claimed:
            self._claimed = True
            self._send(protocol.CLAIM, Claim(self._place, os.getpid()))

    @property
    def busy(self) -> bool:
        """True from the assignment of a shard until its journal is closed and delivered."""
        return self._shard is not None or self._courier is not None

    def interrupt(self, *, deserted: bool = False) -> None:
        """Stop sending: by the user of this machine, or because there is no master any more."""
        self.deserted = self.deserted or deserted
        self._stop()

    def say_again(self) -> None:
        """Repeat the last word, should it have been lost on the way."""
        if self.last_beat is not None and not self.busy:
            self._send(protocol.BEAT, self.last_beat)

    def _on_test_start(self, **_: object) -> None:
        self._claimed = False
        self.stopping.clear()

    def _on_test_stopping(self, **_: object) -> None:
        """Locust ends the test: by the shape when all is drained, or early by the user or the web page."""
        self._stop()
        self.stopping.set()

    def _on_assign(self, msg: Any, **_: object) -> None:
        assignment = protocol.unpack(msg.data, Assignment)
        if self.busy:  # still with an older run: never two senders in one process
            self._report(assignment, error="this worker is still busy with an earlier run")
        elif self._remote is not None or assignment.schedule:
            gevent.spawn(self._get_ready, assignment)  # not in here: the clock's answers must get in
        else:
            self._get_ready(assignment)

    def _get_ready(self, assignment: Assignment) -> None:
        try:
            if self._remote is not None or assignment.schedule:
                assignment = self._settle(assignment, self._remote or RemoteSettings())
                self._offset.measure()
            self._shard = self._build(assignment, self._fire)
        except Exception as error:  # a worker must say why it cannot start, whatever the reason
            self._courier = None
            self._report(assignment, error=f"{type(error).__name__}: {error}")
            return
        self._assignment = assignment
        self._started = self._in_a_hurry = False
        self._nice_before = _enter_measured_window()
        self._send(protocol.READY, Ready(assignment.run, assignment.worker, self._offset.rtt_ns))

    def _settle(self, assignment: Assignment, remote: RemoteSettings) -> Assignment:
        """Make a folder of our own for a shard that was sent along, and a courier for its journal."""
        assignment = remote.settle(assignment)
        journal = Path(assignment.journal_path)
        self.folder = journal.parent
        self._courier = Courier(assignment.run, journal, lambda batch: self._send(protocol.BATCH, batch))
        return assignment

    def _on_pong(self, msg: Any, **_: object) -> None:
        self._offset.heard(protocol.unpack(msg.data, Pong))

    def _on_ack(self, msg: Any, **_: object) -> None:
        if self._courier is not None:
            self._courier.heard(protocol.unpack(msg.data, Ack))

    def _on_go(self, msg: Any, **_: object) -> None:
        go = protocol.unpack(msg.data, Go)
        if self._assignment is None or self._shard is None or self._started or go.run != self._assignment.run:
            return
        self._started = True
        gevent.spawn(self._replay, self._assignment, self._shard, go.t0_ns - self._offset.offset_ns)

    def _on_stop(self, msg: Any, **_: object) -> None:
        stop = protocol.unpack(msg.data, Stop)
        if self._assignment is not None and stop.run == self._assignment.run:
            self._stop()

    def _stop(self) -> None:
        """Stop early; a shard that never started only closes its journal."""
        if self._shard is None:
            return
        if self._shard.sender.done:  # and the disk is waited for
            self._in_a_hurry = True
        elif self._started:
            self._shard.sender.stop()
        else:
            self._shard.close()
            self._shard.abandon()
            self._courier = None
            self._forget()

    def _forget(self) -> None:
        self._shard = self._assignment = None
        _leave_measured_window(self._nice_before)

    def _replay(self, assignment: Assignment, shard: Shard, t0_ns: int) -> None:
        error = ""
        try:
            self._drive(assignment, shard, t0_ns)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        finally:
            self._forget()
        self._deliver()
        self._report(assignment, shard, done=True, error=error)

    def _deliver(self) -> None:
        """Wait until the master has the whole journal, or is known to be gone."""
        courier = self._courier
        while courier is not None and not courier.delivered and not self.deserted:
            courier.turn()
            gevent.sleep(POLL_S)
        self._courier = None
        if self.folder is not None:
            rundir.release(self.folder)

    def _drive(self, assignment: Assignment, shard: Shard, t0_ns: int) -> None:
        """Let the sender work until it is done; the journal is closed whatever happens."""
        next_beat_ns = clock.monotonic_ns()
        try:
            shard.sender.start(t0_ns)
            failed = False
            while not shard.sender.done:
                try:
                    shard.turn(POLL_S)
                except Exception as failure:
                    if failed:
                        raise
                    failed = True
                    _log.exception("the replay ends here")
                    shard.sender.fail(failure)
                if clock.monotonic_ns() >= next_beat_ns:
                    self._report(assignment, shard)
                    if self._courier is not None:
                        self._courier.turn()
                    next_beat_ns = clock.monotonic_ns() + BEAT_NS
        finally:
            self._close(assignment, shard)

    def _close(self, assignment: Assignment, shard: Shard) -> None:
        """End the journal; a disk that is full gets some time to be freed, and the master hears of it."""
        give_up_ns = clock.monotonic_ns() + DISK_PATIENCE_NS
        shard.close()
        while shard.sender.progress().disk and clock.monotonic_ns() < give_up_ns and not self._in_a_hurry:
            self._report(assignment, shard)
            gevent.sleep(DISK_RETRY_S)
            shard.close()
        shard.abandon()

    def _report(self, assignment: Assignment, shard: Shard | None = None, done: bool = False, error: str = "") -> None:
        beat = Beat(assignment.run, assignment.worker, done=done, error=error)
        if shard is not None:
            progress = shard.sender.progress()
            aborted_ns = progress.aborted_ns and progress.aborted_ns + self._offset.offset_ns
            beat = msgspec.structs.replace(beat, **progress._replace(aborted_ns=aborted_ns)._asdict())
        self.last_beat = beat
        self._send(protocol.BEAT, beat)

    def _fire(self, name: str, response_ms: float, size: int, error: str | None) -> None:
        self._request.fire(
            request_type="POST",
            name=name,
            response_time=response_ms,
            response_length=size,
            exception=error,
            context={},
        )

    def _send(self, kind: str, message: msgspec.Struct) -> None:
        self._runner.send_message(kind, protocol.pack(message))


def _enter_measured_window() -> int:
    """No garbage collection, which stops the loop for tens of milliseconds; first at the CPU, where that is allowed."""
    gc.collect()
    gc.freeze()
    gc.disable()
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):  # only root and the like may
        os.setpriority(os.PRIO_PROCESS, 0, before + PRIORITY_CHANGE)
    return before


def _leave_measured_window(nice_before: int) -> None:
    gc.enable()
    gc.unfreeze()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice_before)
