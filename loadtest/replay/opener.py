"""Opens connections just before the requests that need them, and no earlier.

A connection that waits unused holds a worker of servers that have few of them (gunicorn with one or two), so each is
opened when setting it up takes as long as its request has left. Those of a burst are opened one by one, so they begin
earlier by what opening all of them takes.
"""

from __future__ import annotations

from collections.abc import Callable

from loadtest import clock
from loadtest.replay.limits import OPENED_WITHIN_S
from loadtest.replay.pool import ConnectionPool
from loadtest.replay.reactor import Reactor
from loadtest.replay.timetable import Timetable

FARTHEST_NS = round(OPENED_WITHIN_S * 1e9)  # however slow a server is to let connections in
UNKNOWN_SETUP_NS = 2_000_000
SAFETY = 1.5  # times the usual set-up
MARGIN_NS = 1_000_000  # the loop may be busy with something else
OPENING_COSTS_NS = 150_000  # of our own time, for each
LOOK_EVERY_NS = 50_000_000  # the sender's tick
LOOK_AGAIN_NS = 1_000_000  # the least time between two looks in between


class Opener:
    """`missing` is how many connections should be opened now; `open_next` opens one of them."""

    def __init__(
        self,
        reactor: Reactor,
        timetable: Timetable,
        pool: ConnectionPool,
        room: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """`room` tells how many requests may be sent at all, `wake` makes sure that `open_next` is called soon."""
        self._timetable, self._pool, self._room, self._wake = timetable, pool, room, wake
        self._deadline = reactor.deadline(self.look)
        self._due = 0
        self.missing = 0

    def look(self) -> None:
        """Find what is missing now, and when to look again; call it on each tick.

        Sends in between change nothing: the first request without a connection stays the same one.
        """
        now = clock.monotonic_ns()
        self._due, self.missing = self._lacking(now)
        if self.missing:
            self._wake()
            return
        soon = self._lacking(now + LOOK_EVERY_NS)[1]
        if soon:
            first_ns = self._timetable.nth_due_ns(self._pool.there)
            begin_ns = first_ns - self._lead_ns - soon * OPENING_COSTS_NS
            self._deadline.arm(max(begin_ns, now + LOOK_AGAIN_NS))

    def open_next(self) -> None:
        """Open one; errors wait for the request that needs it."""
        if not self._pool.open_ahead(self._due):
            self.missing = 0
            return
        self.missing -= 1
        if not self.missing:
            self.look()

    def close(self) -> None:
        self._deadline.close()

    @property
    def _lead_ns(self) -> int:
        return int(SAFETY * (self._pool.setup_ns or UNKNOWN_SETUP_NS)) + MARGIN_NS

    def _lacking(self, now: int) -> tuple[int, int]:
        """The requests due before connections begun at `now` are up, and how many of them would find none.

        Opening m one by one takes time of its own, in which more requests may come due: the largest m that agrees
        with itself, found from above.
        """
        lead_ns = self._lead_ns
        room = self._room()
        due = min(self._timetable.due_before(now + FARTHEST_NS), room)
        missing = self._pool.missing(due)
        while missing:
            ahead_ns = min(lead_ns + missing * OPENING_COSTS_NS, FARTHEST_NS)
            due = min(self._timetable.due_before(now + ahead_ns), room)
            fewer = self._pool.missing(due)
            if fewer == missing:
                break
            missing = fewer
        return due, missing
