"""What became of each request: written down first, then told to Locust and to who watches for a lost cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from loadtest import clock
from loadtest.replay.abort import Watch
from loadtest.replay.answer import Answer
from loadtest.replay.exchange import Exchange
from loadtest.replay.recorder import Recorder
from loadtest.replay.rowpacker import Row
from loadtest.replay.stamps import ReadTimes, StampClock
from loadtest.replay.texts import unreadable
from metrics.records import Outcome, Phase, outcome_name

OnRequest = Callable[[str, float, int, str | None], None]


class Ledger:
    """One worker's: counts what has ended and passes it on; `due_ns` is the instant of a row."""

    def __init__(
        self,
        recorder: Recorder,
        stamps: StampClock,
        due_ns: Callable[[int], int],
        on_request: OnRequest | None,
        watch: Watch | None,
    ) -> None:
        self._recorder, self._stamps, self._due_ns = recorder, stamps, due_ns
        self._on_request, self._watch = on_request, watch
        self.finished = self.failed = 0

    def unsent(self, row: int, outcome: Outcome, error: str = "") -> None:
        """A row that was never put on the wire."""
        self._recorder.unsent(row, outcome, clock.monotonic_ns(), error)
        self._count(outcome)

    def ended(self, exchange: Exchange, outcome: Outcome, phase: Phase, now: int, error: str) -> int:
        """A request that was sent is over, at `now` or (0) with the last read of its body; returns that instant."""
        try:
            times, done_ns, row = self._written(exchange, outcome, phase, now, error)
        except Exception as trouble:  # values that no row holds: the row is kept, without what the answer said
            exchange.answer, outcome = Answer(), Outcome.CONNECTION_LOST
            now = now or clock.monotonic_ns()
            times, done_ns, row = self._written(exchange, outcome, Phase.HEADERS, now, unreadable(trouble))
        self._count(outcome)
        if self._on_request is not None:
            self._tell(self._on_request, exchange, times, outcome, done_ns)
        if self._watch is not None:
            self._watch.finished(exchange.index, row)
        return done_ns

    def _written(
        self, exchange: Exchange, outcome: Outcome, phase: Phase, now: int, error: str
    ) -> tuple[ReadTimes, int, Row]:
        answer = exchange.answer
        times = self._stamps.resolve(answer.user_ns, answer.kernel, exchange.sent_ns)
        done_ns = now or times.at(max(answer.last_body_read, answer.headers_read))
        return times, done_ns, self._recorder.finished(exchange, times, outcome, phase, done_ns, error)

    def each_second(self) -> None:
        """Hand over to the operating system what was written, and look whether the wall clock was moved."""
        self._stamps.sample()
        self._recorder.flush()

    def lost_cause(self, now: int, live: Iterable[Exchange]) -> str:
        """Why the run should end here, "" when it should not."""
        full = self._recorder.must_end()
        return full or (self._watch.verdict(now, live) if self._watch is not None else "")

    def close(self) -> None:
        """Everything has ended; what the disk does not take now is offered again by whoever drives the sender."""
        self._stamps.close()
        self._recorder.stats.clock_steps = self._stamps.steps
        self._recorder.close()

    def _count(self, outcome: Outcome) -> None:
        self.finished += 1
        self.failed += outcome != Outcome.OK

    def _tell(self, told: OnRequest, exchange: Exchange, times: ReadTimes, outcome: Outcome, done_ns: int) -> None:
        due, answer = self._due_ns(exchange.index), exchange.answer
        failure = None if outcome == Outcome.OK else outcome_name(outcome, answer.status)
        told("request", (done_ns - due) / 1e6, answer.bytes_received, failure)
        if answer.event_reads and failure is None:
            told("ttft", (times.at(answer.event_reads[0]) - due) / 1e6, 0, None)
