"""Whether idle connections hold the server's workers, which requests on new connections then wait for.

Some servers give a connection one of a few workers until it closes (llama.cpp's HTTP threads, for one). A request on a
kept connection never waits for a worker, so what those wait for their first byte is what the others should. One that
waits far longer while all workers may be taken (as many connections are open and served as ever were) is a reason to
close an idle connection; when that helped twice, a connection that comes back in such a moment is not kept at all.
"""

from __future__ import annotations

from collections import deque

from loadtest import clock
from loadtest.replay.connection import Connection

FACTOR, MORE_NS = 2, 20_000_000  # far longer: twice the longest of the last waits, and this
WAITS = 20
HELPED_WITHIN_NS = 10_000_000  # of the usual wait after the close
ENOUGH, TOO_OFTEN = 2, 3  # closes that helped; closes in vain after which nothing is suspected any more


class Workers:
    """Follows every request from its sending to the first byte of its answer."""

    def __init__(self) -> None:
        self._asked_ns: dict[Connection, int] = {}
        self._new: dict[Connection, None] = {}  # those of them that never answered before, in order
        self._served: set[Connection] = set()
        self._most = 0
        self._waits: deque[int] = deque(maxlen=WAITS)  # on kept connections
        self._shortest_ns = 0  # on new ones
        self._trial: tuple[Connection, int] | None = None  # who waits, since a connection was closed for it
        self._helped = self._in_vain = 0

    @property
    def held(self) -> bool:
        """Idle connections were seen to keep requests waiting."""
        return self._helped >= ENOUGH

    def asked(self, connection: Connection) -> None:
        """A request leaves on it."""
        self._asked_ns[connection] = clock.monotonic_ns()
        if connection not in self._served:
            self._new[connection] = None

    def answers(self, connection: Connection) -> None:
        """Something came; the first byte of an answer counts."""
        asked_ns = self._asked_ns.pop(connection, 0)
        if not asked_ns:
            return
        now = clock.monotonic_ns()
        if connection in self._served:
            self._waits.append(now - asked_ns)
            return
        del self._new[connection]
        self._served.add(connection)
        self._shortest_ns = min(self._shortest_ns or now - asked_ns, now - asked_ns)
        if len(self._served) > self._most:
            self._most, self._helped = len(self._served), 0
        if self._trial is not None and self._trial[0] is connection:
            if now - self._trial[1] <= self._usual_ns() + HELPED_WITHIN_NS:
                self._helped += 1
            else:
                self._in_vain += 1
            self._trial = None

    def closed(self, connection: Connection) -> None:
        self._asked_ns.pop(connection, None)
        self._new.pop(connection, None)
        self._served.discard(connection)
        if self._trial is not None and self._trial[0] is connection:
            self._trial = None

    def wanted(self) -> bool:
        """An idle connection should be closed, for a request that may wait for its worker."""
        if not self._new or len(self._served) < self._most:
            return False
        if self.held:
            return True
        usual_ns, waiting = self._usual_ns(), next(iter(self._new))
        now = clock.monotonic_ns()
        if not usual_ns or self._trial is not None or self._in_vain >= TOO_OFTEN:
            return False
        if now - self._asked_ns[waiting] < FACTOR * usual_ns + MORE_NS:
            return False
        self._trial = (waiting, now)
        return True

    def _usual_ns(self) -> int:
        return max(self._waits) if self._waits else self._shortest_ns
