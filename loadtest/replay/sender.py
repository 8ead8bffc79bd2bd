"""Each request at its instant, open loop, and everything that comes back written down.

One thread, no greenlet per stream. Three kinds of work share the loop: dispatch (`timetable`, sends inline), socket
reads (`connection`: collect and return), and short slices of decoding and preparing (`slices`).
"""

from __future__ import annotations

from collections import deque

from loadtest import clock
from loadtest.errors import TargetError
from loadtest.replay import redirect
from loadtest.replay.abort import watch
from loadtest.replay.answer import Answer, EventTooLargeError, FramingError
from loadtest.replay.bodies import Bodies
from loadtest.replay.connection import Connection
from loadtest.replay.dialer import Dialer
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.exchange import Exchange
from loadtest.replay.ledger import Ledger, OnRequest
from loadtest.replay.limits import OUT_OF_RESOURCES
from loadtest.replay.options import Progress, SenderOptions
from loadtest.replay.pool import ConnectionPool
from loadtest.replay.reactor import Reactor
from loadtest.replay.recorder import Recorder
from loadtest.replay.slices import Slices
from loadtest.replay.stamps import StampClock
from loadtest.replay.timetable import Timetable
from metrics.records import Outcome, Phase
from workloads.prompts import Prompts
from workloads.schedule import Schedule

TICK_S = 0.05
CONNECT_AHEAD_NS = 1_000_000_000
# A part of the live streams each tick: all at once would hold up the reads of all; and each seldom, many reads at a
# time, because what a stream needs for its decoding has left the CPU's caches since.
LOOK_AFTER_TICKS = 32
FLUSH_EVERY_NS = 1_000_000_000
DONE_GRACE_NS = 1_000_000_000  # a server that said [DONE] and neither ends the body nor closes


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
        self._recorder, self._reactor = recorder, reactor
        self._dialer = Dialer(endpoint, reactor, self)
        self._bodies = Bodies(endpoint, shard, prompts)
        self._pool = ConnectionPool(self._dialer.target)
        watching = watch(options.abort_on, shard.warmup, self._due_ns) if options.abort_on else None
        self._ledger = Ledger(recorder, StampClock(), self._due_ns, on_request, watching)
        self._live: set[Exchange] = set()
        self._next_turn = shard.next_turn if shard.waits.any() else None
        self._slot_queue: deque[int] = deque()  # rows that wait for a slot under max_in_flight
        self._flushed_ns = self._started_ns = 0
        self._to_look_after: list[Exchange] = []
        self._cpu_s = 0.0
        self._sent = 0
        self._stopped = False
        self._aborted, self._aborted_ns = "", 0
        self.finished_exchanges: list[Exchange] | None = [] if options.keep_text else None
        self.done = False

    # --- life --------------------------------------------------------------------------------------------------

    def start(self, t0_ns: int) -> None:
        """Begin: row i leaves at `t0_ns + scheduled_s[i]`, never before it."""
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
        self._slices = Slices(self._reactor, self._timetable, self._pool, self._bodies, self._decode)
        self._ticker = self._reactor.every(TICK_S, self._tick)
        self._tick()

    def stop(self) -> None:
        """The user stops the run: nothing more is sent, what is in flight ends as INTERRUPTED."""
        self._stopped = True
        self._timetable.give_up()
        now = clock.monotonic_ns()
        for index in self._slot_queue:
            self._ledger.unsent(index, Outcome.INTERRUPTED)
        self._slot_queue.clear()
        for exchange in list(self._live):
            if exchange.connection is not None:
                self._decode(exchange.connection)
        for exchange in list(self._live):
            self._end(exchange, Outcome.INTERRUPTED, exchange.answer.phase, now)
        self._finish_if_drained()

    def progress(self) -> Progress:
        counts = (len(self._shard), self._sent, len(self._live), self._ledger.finished, self._ledger.failed)
        return Progress(*counts, self._aborted, self._aborted_ns, self._recorder.tally.seen, self._recorder.trouble)

    def _due_ns(self, row: int) -> int:
        return self._timetable.due_ns(row)

    def _finish_if_drained(self) -> None:
        if self.done or not self._timetable.over or self._live or self._slot_queue:
            return
        self.done = True
        self._timetable.close()
        self._ticker.stop()
        self._pool.close()
        stats = self._recorder.stats
        stats.reactor = self._reactor.name
        stats.cpu_s, stats.wall_s = clock.process_cpu_s() - self._cpu_s, (clock.monotonic_ns() - self._started_ns) / 1e9
        stats.connections_opened, stats.connections_reused = self._pool.opened, self._pool.reused
        self._ledger.close()

    # --- dispatch ----------------------------------------------------------------------------------------------

    def _dispatched(self) -> None:
        self._slices.deadline_passed()
        self._finish_if_drained()

    def _launch(self, index: int, late_ns: int) -> None:
        if late_ns > self._options.max_lateness_s * 1e9:
            self._bodies.take(index)
            self._ledger.unsent(index, Outcome.SKIPPED_LATE)
            self._turn_ended(index, clock.monotonic_ns())
            return
        limit = self._options.max_in_flight
        if limit is not None and len(self._live) >= limit:
            self._slot_queue.append(index)
            return
        self._begin(self._exchange(index))

    def _exchange(self, index: int) -> Exchange:
        return Exchange(index, self._bodies.take(index), self._answer())

    def _answer(self) -> Answer:
        endpoint = self._endpoint
        return Answer(
            endpoint.dialect,
            stream_asked=endpoint.stream,
            choices=endpoint.choices,
            keep_text=self._options.keep_text,
        )

    def _begin(self, exchange: Exchange) -> None:
        self._live.add(exchange)
        self._sent += 1
        self._send_on(exchange, self._pool.take())

    def _send_on(self, exchange: Exchange, connection: Connection | None) -> None:
        """Send now when the connection is up, else when it comes up; None opens one."""
        if connection is None:
            try:
                hop = exchange.hop
                connection = self._dialer.hop(hop) if hop and not self._dialer.at_home(hop) else self._pool.open()
            except OSError as error:
                self._not_opened(exchange, error)
                return
        exchange.connection, connection.exchange = connection, exchange
        if connection.open:
            self._put(exchange, connection)

    def _not_opened(self, exchange: Exchange, error: OSError) -> None:
        """The system gave no socket: for want of files or ports here, or because the peer is out of reach."""
        now = clock.monotonic_ns()
        if error.errno not in OUT_OF_RESOURCES or exchange.sent_ns:
            self._end(exchange, Outcome.CONNECTION_LOST, Phase.CONNECT, now, str(error))
            return
        self._live.discard(exchange)
        self._sent -= 1
        self._ledger.unsent(exchange.index, Outcome.NOT_SENT, f"no connection could be opened here: {error}")
        self._turn_ended(exchange.index, now)

    def _put(self, exchange: Exchange, connection: Connection) -> None:
        exchange.attempts += 1
        if not connection.uses:
            exchange.connect_ns = connection.connect_ns
        connection.uses += 1
        connection.decode_soon = True
        stamp = connection.send(exchange.request)
        exchange.sent_ns = exchange.sent_ns or stamp

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
                self._dialer.try_next_address()
            return
        now = clock.monotonic_ns()
        self._decode(connection)
        if exchange not in self._live or exchange.connection is not connection:
            return
        answer = exchange.answer
        if exchange.nothing_came_back and connection.uses > 1 and not exchange.reconnects:
            self._resend(exchange, connection)
        elif not exchange.sent_ns:
            self._dialer.try_next_address()
            self._end(exchange, Outcome.CONNECTION_LOST, Phase.CONNECT, now, str(error or "the server closed"))
        elif error is None and answer.status:
            answer.close(now)
            self._end_by_answer(exchange)
        elif answer.said_all:
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

    # --- decoding ----------------------------------------------------------------------------------------------

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
            answer.closed = True
            if answer.said_all:
                self._end_by_answer(exchange)
            else:
                self._end(exchange, Outcome.CONNECTION_LOST, answer.phase, clock.monotonic_ns(), str(error))
            return
        connection.decode_soon = not answer.in_steady_stream
        if answer.complete:
            self._end_by_answer(exchange)

    # --- the clockwork -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Twenty times a second: look after what has no event of its own."""
        now = clock.monotonic_ns()
        self._look_after(now)
        if now - self._flushed_ns >= FLUSH_EVERY_NS:
            self._flushed_ns = now
            self._ledger.each_second()
            self._look_for_reason_to_abort(now)
        self._connect_ahead(now)
        self._slices.wake()
        self._finish_if_drained()

    def _connect_ahead(self, now: int) -> None:
        due = self._timetable.due_before(now + CONNECT_AHEAD_NS)
        if self._options.max_in_flight is not None:
            due = min(due, max(self._options.max_in_flight - len(self._live), 0))
        self._pool.look_ahead(due)

    def _look_after(self, now: int) -> None:
        """Queue collected reads for decoding, and end what has been silent for too long."""
        idle_ns = self._options.idle_timeout_s * 1e9
        drained_ns = self._timetable.end_ns + self._options.drain_limit_s * 1e9
        self._to_look_after = self._to_look_after or list(self._live)
        share = -(-len(self._live) // LOOK_AFTER_TICKS)
        now_due, self._to_look_after = self._to_look_after[:share], self._to_look_after[share:]
        for exchange in now_due:
            if exchange not in self._live:
                continue
            connection, answer = exchange.connection, exchange.answer
            if connection is not None and connection.reads:
                self.received(connection)
                continue
            silent_ns = now - (connection.last_read_ns if connection is not None and connection.open else now)
            patience_ns = min(DONE_GRACE_NS, idle_ns) if answer.done_marker else idle_ns
            if answer.said_all and (silent_ns > patience_ns or now > drained_ns):
                answer.closed = True
                self._end_by_answer(exchange)
            elif (answer.event_reads and silent_ns > idle_ns) or now > drained_ns:
                phase = answer.phase if exchange.sent_ns else Phase.CONNECT
                why = "between tokens" if answer.event_reads else "for the first token"
                self._end(exchange, Outcome.TIMEOUT, phase, now, f"timed out waiting {why}")

    # --- ends --------------------------------------------------------------------------------------------------

    def _end_by_answer(self, exchange: Exchange) -> None:
        answer = exchange.answer
        location = answer.headers.get("location", "") if 300 <= answer.status < 400 else ""
        if location and self._follow(exchange, location):
            return
        outcome = answer.outcome()
        phase = Phase.NONE if outcome == Outcome.OK else answer.phase
        error = redirect.refusal(location) if location else "" if outcome == Outcome.OK else answer.error_message()
        self._end(exchange, outcome, phase, 0, error)

    def _follow(self, exchange: Exchange, location: str) -> bool:
        """Send the request on to where a redirect leads; False when it leads nowhere we go."""
        try:
            hop = redirect.next_hop(
                exchange.hop or self._endpoint, exchange.answer.status, location, exchange.redirects
            )
        except TargetError:
            hop = None
        if hop is None or self._stopped:
            return False
        self._release(exchange, reuse=True)
        exchange.redirects += 1
        exchange.hop, exchange.request = hop, redirect.moved(exchange.request, hop)
        exchange.answer = self._answer()
        self._send_on(exchange, self._pool.take() if self._dialer.at_home(hop) else None)
        return True

    def _end(self, exchange: Exchange, outcome: Outcome, phase: Phase, now: int, error: str = "") -> None:
        """The exchange is over, at `now` or (0) with the last read of its body."""
        self._live.discard(exchange)
        done_ns = self._ledger.ended(exchange, outcome, phase, now, error)
        self._release(exchange, reuse=outcome != Outcome.INTERRUPTED)
        if self.finished_exchanges is not None:
            self.finished_exchanges.append(exchange)
        self._turn_ended(exchange.index, done_ns)
        if self._slot_queue and not self._stopped:
            self._next_from_queue()
        self._finish_if_drained()

    def _release(self, exchange: Exchange, *, reuse: bool) -> None:
        """Give the connection back, or close it."""
        connection, exchange.connection = exchange.connection, None
        if connection is None:
            return
        connection.exchange = None
        if reuse and self._dialer.at_home(exchange.hop) and exchange.answer.reusable and connection.open:
            self._pool.give_back(connection)
        else:
            self._pool.discard(connection)

    def _turn_ended(self, row: int, ended_ns: int) -> None:
        """The next turn of the session is due when its user has thought, however this one ended."""
        if self._next_turn is None or self._stopped or self._next_turn[row] < 0:
            return
        later = int(self._next_turn[row])
        due_ns = ended_ns + round(float(self._shard.think_s[later]) * 1e9)
        self._recorder.waited_s[later] = (due_ns - self._recorder.stats.zero_ns) / 1e9
        self._timetable.wait(later, due_ns)

    def _next_from_queue(self) -> None:
        index = self._slot_queue.popleft()
        exchange = self._exchange(index)
        exchange.queue_ns = clock.monotonic_ns() - self._timetable.due_ns(index)
        self._begin(exchange)

    # --- giving up early ---------------------------------------------------------------------------------------

    def _look_for_reason_to_abort(self, now: int) -> None:
        if self._stopped:
            return
        self._aborted = self._ledger.lost_cause(now, self._live)
        if self._aborted:
            self._aborted_ns = now
            self.stop()


__all__ = ["Progress", "Sender", "SenderOptions"]
