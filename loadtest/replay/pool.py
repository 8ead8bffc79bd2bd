"""Connections of one worker: opened just before they are needed, reused while the server still holds them.

Nothing here limits concurrency: when no idle connection is left, one is opened.
"""

from __future__ import annotations

from collections.abc import Callable

from loadtest import clock
from loadtest.replay.connection import Connection

# Servers close idle connections, the common ones after 5 s (uvicorn, Node.js); older ones are not worth the race.
MAX_IDLE_NS = 4_000_000_000
BACK_OFF_NS = 1_000_000_000


class ConnectionPool:
    """Idle connections, last used first, and those still being opened without a request."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._opening: set[Connection] = set()
        self.opened = self.reused = 0
        self._not_ahead_before_ns = 0

    def open_ahead(self, wanted: int) -> None:
        """Have `wanted` connections ready or on their way; errors wait for the request that needs the connection."""
        self._drop_stale()
        if clock.monotonic_ns() < self._not_ahead_before_ns:
            return
        for _ in range(wanted - len(self._idle) - len(self._opening)):
            try:
                self._opening.add(self.open())
            except OSError:
                return

    def open(self) -> Connection:
        """A new connection, still connecting; raises OSError when the kernel refuses at once."""
        connection = self._connect()
        self.opened += 1
        return connection

    def take(self) -> Connection | None:
        """A usable idle connection, else one that is being opened (its `open` is False), else None."""
        limit = clock.monotonic_ns() - MAX_IDLE_NS
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since_ns >= limit:
                self.reused += connection.uses > 0
                return connection
            connection.close()
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
        connection.idle_since_ns = clock.monotonic_ns()
        self._idle.append(connection)

    def discard(self, connection: Connection) -> None:
        """The connection broke or must not be used again."""
        if connection in self._opening:  # a server that refuses is not to be asked twenty times a second
            self._opening.discard(connection)
            self._not_ahead_before_ns = clock.monotonic_ns() + BACK_OFF_NS
        if connection in self._idle:
            self._idle.remove(connection)
        connection.close()

    def close(self) -> None:
        for connection in [*self._idle, *self._opening]:
            connection.close()
        self._idle.clear()
        self._opening.clear()

    def _drop_stale(self) -> None:
        limit = clock.monotonic_ns() - MAX_IDLE_NS
        while self._idle and self._idle[0].idle_since_ns < limit:
            self._idle.pop(0).close()
