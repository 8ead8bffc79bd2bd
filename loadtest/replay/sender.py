"""Each request at its instant, open loop, and everything that comes back written down.

One thread, no greenlet per stream. Three kinds of work share the loop: dispatch (`timetable`, sends inline), socket
reads (`connection`: collect and return), and short slices of decoding and preparing (`slices`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from loadtest import clock
from loadtest.replay import redirect
from loadtest.replay.abort import watch
from loadtest.replay.answer import Answer
from loadtest.replay.bodies import Bodies
from loadtest.replay.connection import Connection
from loadtest.replay.decoding import Decoder
from loadtest.replay.dialer import Dialer
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.exchange import Exchange
from loadtest.replay.ledger import Ledger, OnRequest
from loadtest.replay.limits import OUT_OF_RESOURCES
from loadtest.replay.opener import LOOK_EVERY_NS, Opener
from loadtest.replay.options import Progress, SenderOptions
from loadtest.replay.patience import Patience
from loadtest.replay.pool import ConnectionPool
from loadtest.replay.reactor import Reactor
from loadtest.replay.recorder import Recorder
from loadtest.replay.slices import Slices
from loadtest.replay.stamps import StampClock
from loadtest.replay.timetable import Timetable
from metrics.records import Outcome, Phase
from metrics.runinfo import FAULT
from workloads.prompts import Prompts
from workloads.schedule import Schedule

TICK_S = LOOK_EVERY_NS / 1e9
FLUSH_EVERY_NS = 1_000_000_000


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
        self._answer: Callable[[], Answer] = lambda: Answer(
            endpoint.dialect, stream_asked=endpoint.stream, choices=endpoint.choices, keep_text=options.keep_text
        )
        self._pool = ConnectionPool(self._dialer.target, self._dialer.places, endpoint.setup_ns)
        self._patience = Patience(options, shard)
        self._decoder = Decoder(ended=self._end_by_answer, broken=self._broken, surplus=self._surplus)
        self._requests_by_place = [0] * self._dialer.places
        watching = watch(options.abort_on, shard.warmup, self._due_ns) if options.abort_on else None
        self._ledger = Ledger(recorder, StampClock(), self._due_ns, on_request, watching)
        self._live: set[Exchange] = set()
        self._next_turn = shard.next_turn if shard.waits.any() else None
        self._slot_queue: deque[int] = deque()  # rows that wait for a slot under max_in_flight
        self._unmade: dict[int, int] = {}  # rows due whose long prompt is still being made: ns they waited for a slot
        self._flushed_ns = self._started_ns = 0
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
        self._opener = Opener(self._reactor, self._timetable, self._pool, self._room, lambda: self._slices.wake())
        self._slices = Slices(
            self._reactor, self._timetable, self._opener, self._bodies, decode=self._decoder.some, prepared=self._made
        )
        self._ticker = self._reactor.every(TICK_S, self._tick)
        self._tick()

    def fail(self, error: BaseException) -> None:
        """Something of ours went wrong: the run ends in order, and says why."""
        self._abort(f"{FAULT}: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """The user stops the run: nothing more is sent, what is in flight ends as INTERRUPTED."""
        self._stopped = True
        self._timetable.give_up()
        now = clock.monotonic_ns()
        for index in (*self._slot_queue, *self._unmade):
            self._ledger.unsent(index, Outcome.INTERRUPTED)
        self._slot_queue.clear()
        self._unmade.clear()
        for exchange in list(self._live):
            if exchange.connection is not None:
                self._decoder.all(exchange.connection)
        for exchange in list(self._live):
            self._end(exchange, Outcome.INTERRUPTED, exchange.answer.phase, now)
        self._finish_if_drained()

    def progress(self) -> Progress:
        counts = (len(self._shard), self._sent, len(self._live), self._ledger.finished, self._ledger.failed)
        return Progress(*counts, self._aborted, self._aborted_ns, self._recorder.tally.seen, self._recorder.trouble)

    def _due_ns(self, row: int) -> int:
        return self._timetable.due_ns(row)

    def _finish_if_drained(self) -> None:
        if self.done or not self._timetable.over or self._live or self._slot_queue or self._unmade:
            return
        self.done = True
        self._timetable.close()
        self._opener.close()
        self._ticker.stop()
        self._pool.close()
        stats = self._recorder.stats
        stats.reactor = self._reactor.name
        stats.cpu_s, stats.wall_s = clock.process_cpu_s() - self._cpu_s, (clock.monotonic_ns() - self._started_ns) / 1e9
        self._pool.tell(stats)
        stats.requests_by_address = dict(zip(self._dialer.place_names(), self._requests_by_place, strict=True))
        self._ledger.close()

    # --- dispatch ----------------------------------------------------------------------------------------------

    def _dispatched(self) -> None:
        self._slices.deadline_passed()
        self._finish_if_drained()

    def _launch(self, index: int, late_ns: int) -> None:
        if late_ns > self._options.max_lateness_s * 1e9:
            self._bodies.drop(index)
            self._ledger.unsent(index, Outcome.SKIPPED_LATE)
            self._turn_ended(index, clock.monotonic_ns())
            return
        limit = self._options.max_in_flight
        if limit is not None and self._room() <= 0:
            self._slot_queue.append(index)
            return
        self._make(index)

    def _room(self) -> int:
        """How many requests may be sent on top of those under way."""
        limit = self._options.max_in_flight
        return len(self._shard) if limit is None else limit - len(self._live) - len(self._unmade)

    def _make(self, index: int, queue_ns: int = 0) -> None:
        """Begin at once, or when a long prompt that nobody could make ahead is there; its lateness is ours."""
        if self._bodies.ready(index):
            self._begin(Exchange(index, self._bodies.take(index), self._answer(), queue_ns))
        else:
            self._unmade[index] = queue_ns
            self._slices.hurry(index)

    def _made(self, index: int) -> None:
        queue_ns = self._unmade.pop(index, None)
        if queue_ns is not None:
            self._make(index, queue_ns)

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
        if exchange.hop is None:
            self._requests_by_place[connection.place] += exchange.attempts == 1
            self._pool.workers.asked(connection)
        connection.uses += 1
        connection.decode_soon = True
        request = exchange.request
        stamp = connection.send(request) if isinstance(request, bytes) else connection.send_pieces(request)
        exchange.sent_ns = exchange.sent_ns or stamp

    # --- what connections tell ---------------------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        exchange = connection.exchange
        if exchange is None or self._dialer.at_home(exchange.hop):
            self._pool.established(connection)
        if exchange is not None:
            self._put(exchange, connection)

    def received(self, connection: Connection) -> None:
        if connection.exchange is None:  # nobody asked: a server's farewell on an idle connection
            self._pool.discard(connection)
        else:
            self._pool.workers.answers(connection)
            self._slices.add(connection)

    def lost(self, connection: Connection, error: OSError | None) -> None:
        exchange = connection.exchange
        if exchange is None:
            self._pool.discard(connection)
            if not connection.open and not connection.uses:
                self._dialer.try_next_address()
            return
        now = clock.monotonic_ns()
        self._decoder.all(connection)
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

    def _surplus(self, connection: Connection) -> None:
        """There was more behind the end of an answer: nobody can tell whose the next bytes would be."""
        if connection.exchange is None:
            self._pool.discard(connection)
        else:
            self.lost(connection, OSError("the server sent more than its answer"))

    def _broken(self, exchange: Exchange, why: str) -> None:
        self._end(exchange, Outcome.CONNECTION_LOST, exchange.answer.phase, clock.monotonic_ns(), why)

    # --- the clockwork -----------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Twenty times a second: look after what has no event of its own."""
        now = clock.monotonic_ns()
        self._look_after(now)
        if now - self._flushed_ns >= FLUSH_EVERY_NS:
            self._flushed_ns = now
            self._ledger.each_second()
            reason = "" if self._stopped else self._ledger.lost_cause(now, self._live)
            if reason:
                self._abort(reason)
        self._pool.close_stale()
        self._opener.look()
        self._slices.wake()
        self._finish_if_drained()

    def _look_after(self, now: int) -> None:
        """Queue collected reads for decoding, and end what makes no progress any more."""
        end_ns = self._timetable.end_ns
        for exchange in self._patience.next_few(self._live):
            if exchange not in self._live:
                continue
            connection, why = exchange.connection, self._patience.why_end(exchange, end_ns, now)
            if connection is not None and connection.reads:
                if not why:
                    self.received(connection)
                    continue
                self._decoder.all(connection)  # there may be progress in what was collected
                why = self._patience.why_end(exchange, end_ns, now) if exchange in self._live else ""
            if why and exchange.answer.said_all:
                exchange.answer.closed = True
                self._end_by_answer(exchange)
            elif why:
                phase = exchange.answer.phase if exchange.sent_ns else Phase.CONNECT
                self._end(exchange, Outcome.TIMEOUT, phase, now, why)

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
        except Exception:  # a place that is no place
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
        whole = exchange.answer.reusable and connection.open and not connection.sending
        if reuse and whole and self._dialer.at_home(exchange.hop):
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
        self._slices.hurry(later)
        self._timetable.wait(later, due_ns)
        self._opener.look()

    def _next_from_queue(self) -> None:
        index = self._slot_queue.popleft()
        self._make(index, clock.monotonic_ns() - self._timetable.due_ns(index))

    def _abort(self, reason: str) -> None:
        self._aborted, self._aborted_ns = reason, clock.monotonic_ns()
        self.stop()


__all__ = ["Progress", "Sender", "SenderOptions"]
