"""All sockets of a worker behind one epoll, read in batches.

A loop that wakes for every single token spends a third of its time waking. The kernel stamps each read, so nothing
is lost by looking a little later and finding twenty sockets ready instead of one: after a turn the poller rests until
TURN_NS have passed since the turn began, unless there is something else to do or an instant of the schedule is near.
Where many sockets are ready at each look, tokens of one stream are far apart and it rests BUSY_TURN_NS.

The kernel tells of arrivals only (EPOLLET): to be told of a state, it would look at each socket a second time.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable

from loadtest import clock
from loadtest.replay import stamps
from loadtest.replay.timerfd import Deadline, rest

Callback = Callable[[], None]

TURN_NS = 500_000
BUSY_TURN_NS, BUSY_READY = 2_000_000, 16
WRITING_TURN_NS = 100_000
DEADLINE_GUARD_NS = 150_000
SHORTEST_REST_NS = 50_000
READS_BETWEEN_LOOKS = 4  # reads can wait, their stamps are the kernel's; an instant of the schedule cannot
MAX_TURNS = 8  # then the hub's own timers and greenlets have their turn
_IN, _OUT, _EDGE = 1, 4, 1 << 31
_ENDED = 0x2000  # EPOLLRDHUP: the peer will send no more
_BROKEN = 8 | 16  # EPOLLERR, EPOLLHUP: whoever watches the socket must look at it


class Poller:
    """Callbacks by file descriptor; `dispatch` runs those whose socket is ready."""

    def __init__(self, soon: deque[Callback]) -> None:
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._forgotten: set[int] = set()  # in this turn: what is left of it may be about an older socket
        self._soon = soon
        self._deadlines: list[Deadline] = []
        self._turn_ns = 0

    def fileno(self) -> int:
        """The epoll's own descriptor, which is readable when any socket is ready."""
        return self._epoll.fileno()

    def on_readable(self, fd: int, callback: Callback) -> PollHandle:
        """`callback` runs once for all that has arrived, and takes it; the end of a stream is told until it stops."""
        return self._watch(fd, self._readers, callback)

    def on_writable(self, fd: int, callback: Callback) -> PollHandle:
        return self._watch(fd, self._writers, callback)

    def add_deadline(self, deadline: Deadline) -> None:
        """Never rest into this instant."""
        self._deadlines.append(deadline)

    def dispatch(self, timeout_s: float = 0.0) -> None:
        """Run the callbacks of all sockets that are ready; rest and look again while there is nothing better to do."""
        ready = self._poll(timeout_s)
        for _ in range(MAX_TURNS):
            if not ready:
                return
            self._turn(ready)
            turn_ns = TURN_NS if len(ready) < BUSY_READY else BUSY_TURN_NS
            if self._writers:  # a long request goes out as fast as it is taken
                turn_ns = WRITING_TURN_NS
            if self._soon or not stamps.AVAILABLE or not self._rest(turn_ns):
                return
            ready = self._poll(0.0)
        self._turn(ready)

    def _turn(self, ready: list[tuple[int, int]]) -> None:
        readers = self._readers
        self._forgotten.clear()
        self._turn_ns = clock.monotonic_ns()
        for start in range(0, len(ready), READS_BETWEEN_LOOKS):
            for fd, events in ready[start : start + READS_BETWEEN_LOOKS]:
                if events == _IN and fd in readers and not self._forgotten:
                    readers[fd]()
                else:
                    self._dispatch_one(fd, events)
            for deadline in self._deadlines:
                deadline.run_if_due()

    def close(self) -> None:
        self._epoll.close()

    def forget(self, fd: int, watched: dict[int, Callback]) -> None:
        """Stop watching; used by handles."""
        if watched.pop(fd, None) is None:
            return
        self._forgotten.add(fd)
        mask = self._mask(fd)
        if mask:
            self._epoll.modify(fd, mask | _EDGE)
        else:
            self._epoll.unregister(fd)

    def _watch(self, fd: int, watched: dict[int, Callback], callback: Callback) -> PollHandle:
        known = self._mask(fd)
        watched[fd] = callback
        if known:
            self._epoll.modify(fd, self._mask(fd) | _EDGE)
        else:
            self._epoll.register(fd, self._mask(fd) | _EDGE)
        return PollHandle(self, fd, watched)

    def _mask(self, fd: int) -> int:
        return (_IN | _ENDED if fd in self._readers else 0) | (_OUT if fd in self._writers else 0)

    def _dispatch_one(self, fd: int, events: int) -> None:
        if events & _ENDED and fd in self._readers and fd not in self._forgotten:
            self._epoll.modify(fd, self._mask(fd))  # behind the last bytes stands the end, which is no arrival
        for watched, wanted in ((self._readers, _IN | _BROKEN), (self._writers, _OUT | _BROKEN)):
            callback = watched.get(fd) if events & wanted and fd not in self._forgotten else None
            if callback is not None:
                callback()

    def _rest(self, turn_ns: int) -> bool:
        """Sleep out the turn; False when it is over already, or an instant of the schedule is near."""
        until = self._turn_ns + turn_ns
        for deadline in self._deadlines:
            until = min(until, deadline.at_ns - DEADLINE_GUARD_NS)
        left = until - clock.monotonic_ns()
        if left < SHORTEST_REST_NS:
            return False
        rest(left)
        return True


class PollHandle:
    """Stops watching, once or more often."""

    __slots__ = ("_fd", "_poller", "_watched")

    def __init__(self, poller: Poller, fd: int, watched: dict[int, Callback]) -> None:
        self._poller: Poller | None = poller
        self._fd, self._watched = fd, watched

    def stop(self) -> None:
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.forget(self._fd, self._watched)


def run_all(callbacks: deque[Callback]) -> None:
    """Run what is there now; what they add waits for its own turn."""
    for _ in range(len(callbacks)):
        callbacks.popleft()()
