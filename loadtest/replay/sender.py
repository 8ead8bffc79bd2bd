"""Each request at its instant, open loop, and everything that comes back written down.

One thread, no greenlet per stream. Three kinds of work share the loop: dispatch (`timetable`, sends inline), socket
reads (`connection`: collect and return), and short slices of decoding and preparing (`slices`).
"""

from __future__ import annotations

import contextlib
import resource
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from loadtest import clock
from loadtest.replay.answer import EventTooLargeError, FramingError
from loadtest.replay.bodies import Bodies
from loadtest.replay.connection import Connection
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.exchange import Exchange
from loadtest.replay.pool import ConnectionPool
from loadtest.replay.reactor import Reactor
from loadtest.replay.recorder import Recorder
from loadtest.replay.slices import Slices
from loadtest.replay.stamps import ReadTimes, StampClock
from loadtest.replay.timetable import Timetable
from loadtest.replay.tls import TlsConnection
from metrics.records import Outcome, Phase, outcome_name
from workloads.prompts import Prompts
from workloads.schedule import Schedule

TICK_S = 0.05
CONNECT_AHEAD_NS = 1_000_000_000
DECODE_EVERY_NS = 200_000_000
FLUSH_EVERY_NS = 1_000_000_000
DONE_GRACE_NS = 1_000_000_000  # a server that said [DONE] and neither ends the body nor closes


class SenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to behave towards a server; times in seconds."""

    idle_timeout_s: float = 60.0  # between bytes, once the first token has come
    drain_limit_s: float = 60.0  # after the last instant of the schedule, for everything
    max_lateness_s: float = 2.0
    max_in_flight: int | None = None
    spin_us: int = 0
    keep_text: bool = False


class Progress(NamedTuple):
    """Counts of a worker's requests."""

    planned: int
    sent: int
    in_flight: int
    finished: int
    failed: int


OnRequest = Callable[[str, float, int, str | None], None]


class Sender:
    """Replays one shard; `start` returns at once, the reactor does the rest until `done`."""

    def __init__(
        self,
        endpoint: Endpoint,
        shard: Schedule,
        prompts: Prompts,
        options: SenderOptions,
        recorder: Recorder,
        reactor: Reactor,
        on_request: OnRequest | None = None,
    ) -> None:
        self._endpoint, self._shard, self._options = endpoint, shard, options
        self._recorder, self._reactor, self._on_request = recorder, reactor, on_request
        self._addresses = (endpoint if endpoint.addresses else endpoint.resolve()).address_list()
        self._bodies = Bodies(endpoint, shard, prompts)
        self._pool = ConnectionPool(self._connect)
        self._stamps = StampClock()
        self._live: set[Exchange] = set()
        self._slot_queue: deque[int] = deque()  # rows that wait for a slot under max_in_flight
        self._decoded_ns = self._flushed_ns = self._started_ns = 0
        self._cpu_s = 0.0
        self._sent = self._finished = self._failed = 0
        self._stopped = False
        self.finished_exchanges: list[Exchange] | None = [] if options.keep_text else None
        self.done = False

    # --- life --------------------------------------------------------------------------------------------------

    def start(self, t0_ns: int) -> None:
        """Begin: row i leaves at `t0_ns + scheduled_s[i]`, never before it."""
        raise_fd_limit()
        self._recorder.stats.zero_ns = t0_ns
        self._started_ns, self._cpu_s = clock.monotonic_ns(), clock.process_cpu_s()
        self._timetable = Timetable(
            self._reactor,
            self._shard,
            t0_ns=t0_ns,
            spin_us=self._options.spin_us,
            launch=self._launch,
            after=self._dispatched,
        )
        self._slices = Slices(self._reactor, self._timetable, self._bodies, self._decode)
        self._ticker = self._reactor.every(TICK_S, self._tick)
        self._tick()

    def stop(self) -> None:
        """The user stops the run: nothing more is sent, what is in flight ends as INTERRUPTED."""
        self._stopped = True
        self._timetable.give_up()
        now = clock.monotonic_ns()
        for index in self._slot_queue:
            self._recorder.unsent(index, Outcome.INTERRUPTED, now)
        self._slot_queue.clear()
        for exchange in list(self._live):
            self._decode_of(exchange)
        for exchange in list(self._live):
            self._end(exchange, Outcome.INTERRUPTED, exchange.answer.phase, now)
        self._finish_if_drained()

    def progress(self) -> Progress:
        return Progress(len(self._shard), self._sent, len(self._live), self._finished, self._failed)

    def _finish_if_drained(self) -> None:
        if self.done or not self._timetable.over or self._live or self._slot_queue:
            return
        self.done = True
        self._timetable.close()
        self._ticker.stop()
        self._pool.close()
        self._stamps.close()
        stats = self._recorder.stats
        stats.reactor = self._reactor.name
        stats.cpu_s = clock.process_cpu_s() - self._cpu_s
        stats.wall_s = (clock.monotonic_ns() - self._started_ns) / 1e9
        stats.connections_opened, stats.connections_reused = self._pool.opened, self._pool.reused
        stats.clock_steps = self._stamps.steps
        self._recorder.close()

    # --- dispatch ----------------------------------------------------------------------------------------------

    def _dispatched(self) -> None:
        self._slices.deadline_passed()
        self._finish_if_drained()

    def _launch(self, index: int, late_ns: int) -> None:
        if late_ns > self._options.max_lateness_s * 1e9:
            self._bodies.take(index)
            self._recorder.unsent(index, Outcome.SKIPPED_LATE, clock.monotonic_ns())
            self._count_end(Outcome.SKIPPED_LATE)
            return
        limit = self._options.max_in_flight
        if limit is not None and len(self._live) >= limit:
            self._slot_queue.append(index)
            return
        self._begin(Exchange(index, self._bodies.take(index), keep_text=self._options.keep_text))

    def _begin(self, exchange: Exchange) -> None:
        self._live.add(exchange)
        self._sent += 1
        self._send_on(exchange, self._pool.take())

    def _send_on(self, exchange: Exchange, connection: Connection | None) -> None:
        """Send now when the connection is up, else when it comes up; None opens one."""
        if connection is None:
            try:
                connection = self._pool.open()
            except OSError as error:
                self._end(exchange, Outcome.CONNECTION_LOST, Phase.CONNECT, clock.monotonic_ns(), str(error))
                return
        exchange.connection, connection.exchange = connection, exchange
        if connection.open:
            self._put(exchange, connection)

    def _put(self, exchange: Exchange, connection: Connection) -> None:
        exchange.attempts += 1
        if not connection.uses:
            exchange.connect_ns = connection.connect_ns
        connection.uses += 1
        connection.decode_soon = True
        stamp = connection.send(exchange.request)
        exchange.sent_ns = exchange.sent_ns or stamp

    def _connect(self) -> Connection:
        address = self._addresses[0]
        if self._endpoint.tls:
            return TlsConnection(address, self._reactor, self, self._endpoint)
        return Connection(address, self._reactor, self)

    # --- what connections tell ---------------------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        exchange = connection.exchange
        if exchange is not None:
            self._put(exchange, connection)
        else:
            self._pool.established(connection)

    def received(self, connection: Connection) -> None:
        if connection.exchange is None:  # nobody asked: a server's farewell on an idle connection
            self._pool.discard(connection)
        else:
            self._slices.add(connection)

    def lost(self, connection: Connection, error: OSError | None) -> None:
        exchange = connection.exchange
        if exchange is None:
            self._pool.discard(connection)
            if not connection.open and not connection.uses:
                self._try_next_address()
            return
        now = clock.monotonic_ns()
        self._decode(connection)
        if exchange not in self._live or exchange.connection is not connection:
            return
        answer = exchange.answer
        if exchange.nothing_came_back and connection.idle_since_ns and not exchange.reconnects:
            self._resend(exchange, connection)
        elif not exchange.sent_ns:
            self._try_next_address()
            self._end(exchange, Outcome.CONNECTION_LOST, Phase.CONNECT, now, str(error or "the server closed"))
        elif error is None and answer.status:
            answer.close(now)
            self._end_by_answer(exchange)
        elif answer.finish_reason or answer.done_marker:
            answer.closed = True
            self._end_by_answer(exchange)
        else:
            text = str(error) if error is not None else "the server closed the connection"
            self._end(exchange, Outcome.CONNECTION_LOST, answer.phase, now, text)

    def _resend(self, exchange: Exchange, connection: Connection) -> None:
        """A kept-alive connection died before a byte came back: the request was not taken, send it once more."""
        exchange.reconnects += 1
        connection.exchange = None
        self._pool.discard(connection)
        self._send_on(exchange, None)

    def _try_next_address(self) -> None:
        self._addresses.append(self._addresses.pop(0))

    # --- decoding ----------------------------------------------------------------------------------------------

    def _decode_of(self, exchange: Exchange) -> None:
        if exchange.connection is not None:
            self._decode(exchange.connection)

    def _decode(self, connection: Connection) -> None:
        """Decode what the connection has collected; ends the exchange when its answer is complete."""
        exchange, reads = connection.exchange, connection.reads
        if exchange is None or not reads:
            return
        connection.reads = []
        answer = exchange.answer
        try:
            answer.feed(reads)
        except (FramingError, EventTooLargeError) as error:
            self._end(exchange, Outcome.CONNECTION_LOST, answer.phase, clock.monotonic_ns(), str(error))
            return
        connection.decode_soon = not answer.in_steady_stream
        if answer.complete:
            self._end_by_answer(exchange)

    # --- the clockwork -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Twenty times a second: look after what has no event of its own."""
        now = clock.monotonic_ns()
        if now - self._decoded_ns >= DECODE_EVERY_NS:
            self._decoded_ns = now
            self._look_after(now)
        if now - self._flushed_ns >= FLUSH_EVERY_NS:
            self._flushed_ns = now
            self._stamps.sample()
            self._recorder.flush()
        self._connect_ahead(now)
        self._slices.wake()
        self._finish_if_drained()

    def _connect_ahead(self, now: int) -> None:
        wanted = self._timetable.due_before(now + CONNECT_AHEAD_NS)
        if self._options.max_in_flight is not None:
            wanted = min(wanted, max(self._options.max_in_flight - len(self._live), 0))
        if wanted:
            self._pool.open_ahead(wanted)

    def _look_after(self, now: int) -> None:
        """Queue collected reads for decoding, and end what has been silent for too long."""
        idle_ns = self._options.idle_timeout_s * 1e9
        drained_ns = self._timetable.end_ns + self._options.drain_limit_s * 1e9
        for exchange in list(self._live):
            connection, answer = exchange.connection, exchange.answer
            if connection is not None and connection.reads:
                self.received(connection)
                continue
            silent_ns = now - (connection.last_read_ns if connection is not None and connection.open else now)
            if answer.done_marker and silent_ns > min(DONE_GRACE_NS, idle_ns):
                answer.closed = True
                self._end_by_answer(exchange)
            elif (answer.event_reads and silent_ns > idle_ns) or now > drained_ns:
                phase = answer.phase if exchange.sent_ns else Phase.CONNECT
                why = "between tokens" if answer.event_reads else "for the first token"
                self._end(exchange, Outcome.TIMEOUT, phase, now, f"timed out waiting {why}")

    # --- ends --------------------------------------------------------------------------------------------------

    def _end_by_answer(self, exchange: Exchange) -> None:
        answer = exchange.answer
        outcome = answer.outcome()
        phase = Phase.NONE if outcome == Outcome.OK else answer.phase
        self._end(exchange, outcome, phase, 0, answer.error_message())

    def _end(self, exchange: Exchange, outcome: Outcome, phase: Phase, now: int, error: str = "") -> None:
        """The exchange is over, at `now` or (0) with the last read of its body."""
        self._live.discard(exchange)
        answer = exchange.answer
        times = self._stamps.resolve(answer.user_ns, answer.kernel, exchange.sent_ns)
        done_ns = now or times.at(max(answer.last_body_read, answer.headers_read))
        self._recorder.finished(exchange, times, outcome, phase, done_ns, error)
        connection, exchange.connection = exchange.connection, None
        if connection is not None:
            connection.exchange = None
            if outcome != Outcome.INTERRUPTED and exchange.answer.reusable and connection.open:
                self._pool.give_back(connection)
            else:
                self._pool.discard(connection)
        if self.finished_exchanges is not None:
            self.finished_exchanges.append(exchange)
        self._count_end(outcome)
        if self._on_request is not None:
            self._tell(exchange, times, outcome, done_ns)
        if self._slot_queue and not self._stopped:
            self._next_from_queue()
        self._finish_if_drained()

    def _count_end(self, outcome: Outcome) -> None:
        self._finished += 1
        self._failed += outcome != Outcome.OK

    def _next_from_queue(self) -> None:
        index = self._slot_queue.popleft()
        exchange = Exchange(index, self._bodies.take(index), keep_text=self._options.keep_text)
        exchange.queue_ns = clock.monotonic_ns() - self._timetable.due_ns(index)
        self._begin(exchange)

    def _tell(self, exchange: Exchange, times: ReadTimes, outcome: Outcome, done_ns: int) -> None:
        assert self._on_request is not None
        due, answer = self._timetable.due_ns(exchange.index), exchange.answer
        failure = None if outcome == Outcome.OK else outcome_name(outcome, answer.status)
        self._on_request("request", (done_ns - due) / 1e6, answer.bytes_received, failure)
        if answer.event_reads and failure is None:
            self._on_request("ttft", (times.at(answer.event_reads[0]) - due) / 1e6, 0, None)


def raise_fd_limit() -> None:
    """Every stream is a file descriptor: take as many as the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 1_048_576)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


__all__ = ["Progress", "Sender", "SenderOptions"]
