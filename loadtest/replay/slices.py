"""Decoding and preparing in slices of at most 200 us, never when a deadline is near.

A 600-token answer decoded in one go, fifty connections opened at once or a long prompt built at the wrong moment
would hold the loop for milliseconds; cut up, it disturbs neither dispatch nor the reads of other streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from loadtest import clock
from loadtest.replay.bodies import Bodies
from loadtest.replay.connection import Connection
from loadtest.replay.opener import Opener
from loadtest.replay.reactor import Reactor
from loadtest.replay.timetable import Timetable

SLICE_NS = 200_000
DEADLINE_GUARD_NS = 100_000
PREPARE_AHEAD_NS = 3_000_000_000


class Slices:
    """Connections that are to be opened, those whose reads wait to be decoded, and bodies that wait to be built."""

    def __init__(
        self,
        reactor: Reactor,
        timetable: Timetable,
        opener: Opener,
        bodies: Bodies,
        decode: Callable[[Connection], None],
        prepared: Callable[[int], None],
    ) -> None:
        self._reactor, self._timetable, self._opener = reactor, timetable, opener
        self._bodies, self._decode, self._prepared = bodies, decode, prepared
        self._waiting: deque[Connection] = deque()
        self._scheduled = self._parked = False

    def add(self, connection: Connection) -> None:
        """Decode what this connection has collected, soon."""
        if not connection.queued:
            connection.queued = True
            self._waiting.append(connection)
            self.wake()

    def hurry(self, row: int) -> None:
        """Make this row's request before others and tell `prepared`: its instant has come, or is known now."""
        self._bodies.hurry(row)
        self.wake()

    def wake(self) -> None:
        """Make sure that a slice comes, if there is anything to do."""
        if not self._scheduled and (
            self._waiting or self._opener.missing or self._should_prepare(clock.monotonic_ns())
        ):
            self._scheduled = True
            self._reactor.soon(self._run)

    def deadline_passed(self) -> None:
        """Dispatch is through: a slice that stood back for it may run."""
        if self._parked:
            self._parked = False
            self._reactor.soon(self._run)

    def _run(self) -> None:
        now = clock.monotonic_ns()
        deadline = self._timetable.next_due_ns
        if deadline - DEADLINE_GUARD_NS < now < deadline:
            self._parked = True
            return
        stop = min(now + SLICE_NS, max(deadline - DEADLINE_GUARD_NS, now + 1))
        while self._opener.missing and clock.monotonic_ns() < stop:
            self._opener.open_next()
        while self._waiting:
            connection = self._waiting.popleft()
            connection.queued = False
            self._decode(connection)
            if connection.reads and connection.exchange is not None:  # a part was decoded, and others have their turn
                self.add(connection)
            if clock.monotonic_ns() >= stop:
                break
        while not self._waiting and self._should_prepare(now) and clock.monotonic_ns() < stop:
            row = self._bodies.prepare()
            if row >= 0:
                self._prepared(row)
        self._scheduled = False
        self.wake()

    def _should_prepare(self, now: int) -> bool:
        bodies = self._bodies
        if bodies.hurried:
            return True
        return not bodies.full and self._timetable.due_ns(bodies.next_row) - now < PREPARE_AHEAD_NS
