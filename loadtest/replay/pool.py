"""Connections of one worker: opened just before they are needed, reused while the server still holds them.

Nothing here limits concurrency: when no idle connection is left, one is opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from loadtest import clock
from loadtest.replay.connection import Connection

# Servers close idle connections, the common ones after 5 s (uvicorn, Node.js); older ones are not worth the race.
MAX_IDLE_NS = 4_000_000_000
BACK_OFF_NS = 1_000_000_000
RETURNS_LOOKS = 20
DROPS_PER_LOOK = 16
LEAST_READY, LEAST_SHARE = 8, 8  # whatever comes back: eight, and an eighth of what is due


class ConnectionPool:
    """Idle connections, last used first, and those still being opened without a request."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._opening: set[Connection] = set()
        self.opened = self.reused = self.given_back = self.missing = 0
        self._given_back_before: deque[int] = deque(maxlen=RETURNS_LOOKS)  # at each of the last looks
        self._not_ahead_before_ns = 0

    def look_ahead(self, due: int) -> None:
        """Find how many connections are `missing` for the `due` requests; `open_next` opens them one by one.

        Called at even intervals, with what is due within RETURNS_LOOKS of them. As many as came back within the last
        RETURNS_LOOKS will come back again: a thousand short requests a second need fifty connections, not a thousand.
        """
        self._drop_stale()
        returns = self.given_back - (self._given_back_before[0] if self._given_back_before else 0)
        self._given_back_before.append(self.given_back)
        wanted = max(due - returns, min(due, LEAST_READY + due // LEAST_SHARE))
        backing_off = clock.monotonic_ns() < self._not_ahead_before_ns
        self.missing = 0 if backing_off else max(wanted - len(self._idle) - len(self._opening), 0)

    def open_next(self) -> None:
        """Open one of the missing connections; errors wait for the request that needs it."""
        try:
            self._opening.add(self.open())
            self.missing -= 1
        except OSError:
            self.missing = 0

    def open(self) -> Connection:
        """A new connection, still connecting; raises OSError when the kernel refuses at once."""
        connection = self._connect()
        self.opened += 1
        return connection

    def take(self) -> Connection | None:
        """A usable idle connection, else one that is being opened (its `open` is False), else None."""
        if self._idle and self._idle[-1].idle_since_ns >= clock.monotonic_ns() - MAX_IDLE_NS:
            connection = self._idle.pop()
            self.reused += connection.uses > 0
            return connection
        return self._opening.pop() if self._opening else None

    def established(self, connection: Connection) -> bool:
        """A connection came up: True when it was opened ahead and is now idle."""
        if connection not in self._opening:
            return False
        self._opening.discard(connection)
        self.give_back(connection)
        return True

    def give_back(self, connection: Connection) -> None:
        """The connection carries nothing now and may serve again."""
        self.given_back += connection.uses > 0
        connection.idle_since_ns = clock.monotonic_ns()
        self._idle.append(connection)

    def discard(self, connection: Connection) -> None:
        """The connection broke or must not be used again."""
        if connection in self._opening:  # a server that refuses is not to be asked twenty times a second
            self._opening.discard(connection)
            self._not_ahead_before_ns = clock.monotonic_ns() + BACK_OFF_NS
            self.missing = 0
        if connection in self._idle:
            self._idle.remove(connection)
        connection.close()

    def close(self) -> None:
        for connection in [*self._idle, *self._opening]:
            connection.close()
        self._idle.clear()
        self._opening.clear()

    def _drop_stale(self) -> None:
        """A few at a time: closing costs as much as a request does."""
        limit = clock.monotonic_ns() - MAX_IDLE_NS
        stale = sum(connection.idle_since_ns < limit for connection in self._idle[:DROPS_PER_LOOK])
        for connection in self._idle[:stale]:
            connection.close()
        del self._idle[:stale]
