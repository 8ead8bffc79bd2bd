"""Connections of one worker: reused while the server still holds them, and spread over all of its addresses.

Nothing here limits concurrency: when no idle connection is left, one is opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from loadtest import clock
from loadtest.replay.connection import Connection
from loadtest.replay.workers import Workers
from metrics.records import WorkerStats

# Servers close idle connections, the common ones after 5 s (uvicorn, Node.js); older ones are not worth the race.
MAX_IDLE_NS = 4_000_000_000
BACK_OFF_NS = 1_000_000_000
DROPS_PER_LOOK = 16
SETUPS_KEPT = 9


class ConnectionPool:
    """Idle connections, the longest idle first, and those still being opened without a request.

    The next connection to be used belongs to the next of the server's `places` addresses, round and round: each gets
    its share of the requests, however few connections there are.
    """

    def __init__(self, connect: Callable[[int], Connection], places: int = 1, setup_ns: int = 0) -> None:
        """`connect` opens one to the address at a place; `setup_ns` is what setting one up took before the load."""
        self._connect = connect
        self._idle: list[deque[Connection]] = [deque() for _ in range(places)]
        self._opening: list[set[Connection]] = [set() for _ in range(places)]
        self._setups_ns: deque[int] = deque([setup_ns] if setup_ns else [], maxlen=SETUPS_KEPT)
        self._turn = 0
        self._not_ahead_before_ns = 0
        self.workers = Workers()
        self.opened = self.reused = self.idle_most = 0

    @property
    def setup_ns(self) -> int:
        """How long setting up a connection takes, TLS included: the median of the last ones; 0 before any."""
        return sorted(self._setups_ns)[len(self._setups_ns) // 2] if self._setups_ns else 0

    def missing(self, due: int) -> int:
        """How many of the next `due` requests would find no connection; 0 while a server refuses connections."""
        if due <= 0 or clock.monotonic_ns() < self._not_ahead_before_ns:
            return 0
        return sum(max(self._share(place, due) - self._there(place), 0) for place in range(len(self._idle)))

    def open_ahead(self, due: int) -> bool:
        """Open one of those that are missing; False when the kernel refuses, which waits for the request's own try."""
        places = len(self._idle)
        wanting = (place % places for place in range(self._turn, self._turn + places))
        place = next((place for place in wanting if self._share(place, due) > self._there(place)), None)
        if place is None:
            return False
        try:
            self._opening[place].add(self._open(place))
        except OSError:
            return False
        return True

    def take(self) -> Connection | None:
        """A usable idle connection to the next address, else one being opened (its `open` is False), else None."""
        idle, opening = self._idle[self._turn], self._opening[self._turn]
        stale_ns = clock.monotonic_ns() - MAX_IDLE_NS
        while idle:
            connection = idle.popleft()
            if connection.idle_since_ns >= stale_ns:
                self.reused += connection.uses > 0
                self._next_turn()
                return connection
            self._close(connection)
        if opening:
            self._next_turn()
            return opening.pop()
        return None

    def open(self) -> Connection:
        """A new connection to the next address, still connecting; raises OSError when the kernel refuses at once."""
        place = self._turn
        self._next_turn()
        return self._open(place)

    def established(self, connection: Connection) -> bool:
        """A connection came up; True when nobody waited for it, and it is now idle."""
        self._setups_ns.append(connection.connect_ns)
        if connection not in self._opening[connection.place]:
            return False
        self._opening[connection.place].discard(connection)
        self.give_back(connection)
        return True

    def give_back(self, connection: Connection) -> None:
        """The connection carries nothing now and may serve again, unless a worker is wanted that it holds."""
        if connection.uses and self.workers.wanted():
            self._close(connection)
            return
        connection.idle_since_ns = clock.monotonic_ns()
        self._idle[connection.place].append(connection)
        self.idle_most = max(self.idle_most, sum(map(len, self._idle)))

    def discard(self, connection: Connection) -> None:
        """The connection broke or must not be used again."""
        if connection in self._opening[connection.place]:  # a server that refuses is not to be asked again at once
            self._opening[connection.place].discard(connection)
            self._not_ahead_before_ns = clock.monotonic_ns() + BACK_OFF_NS
        if connection in self._idle[connection.place]:
            self._idle[connection.place].remove(connection)
        self._close(connection)

    def close_stale(self) -> None:
        """Close what has been idle for too long, a few at a time: closing costs as much as a request does.

        And one that may hold a worker of the server which somebody waits for.
        """
        limit = clock.monotonic_ns() - MAX_IDLE_NS
        for idle in self._idle:
            for _ in range(min(DROPS_PER_LOOK, len(idle))):
                if idle[0].idle_since_ns >= limit:
                    break
                self._close(idle.popleft())
        if any(self._idle) and self.workers.wanted():
            longest = min((idle for idle in self._idle if idle), key=lambda idle: idle[0].idle_since_ns)
            self._close(longest.popleft())

    def close(self) -> None:
        for idle, opening in zip(self._idle, self._opening, strict=True):
            for connection in (*idle, *opening):
                connection.close()
            idle.clear()
            opening.clear()

    @property
    def there(self) -> int:
        """Connections that are idle, or are being opened for nobody yet."""
        return sum(map(len, self._idle)) + sum(map(len, self._opening))

    def tell(self, stats: WorkerStats) -> None:
        """What is worth recording."""
        stats.connections_opened, stats.connections_reused = self.opened, self.reused
        stats.connections_idle_most = self.idle_most

    def _close(self, connection: Connection) -> None:
        self.workers.closed(connection)
        connection.close()

    def _open(self, place: int) -> Connection:
        connection = self._connect(place)
        connection.place = place
        self.opened += 1
        return connection

    def _next_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._idle)

    def _share(self, place: int, due: int) -> int:
        """How many of the next `due` requests go to that address."""
        places = len(self._idle)
        return (due + places - 1 - (place - self._turn) % places) // places

    def _there(self, place: int) -> int:
        return len(self._idle[place]) + len(self._opening[place])
