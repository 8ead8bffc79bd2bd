"""The event loop under the sender: the gevent hub of a Locust worker, or a bare epoll loop.

Callbacks run in the loop itself and never block or switch. This is the only module of the package that may
import gevent, and it does so only when a `HubReactor` is made.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from loadtest import clock
from loadtest.replay import timerfd
from loadtest.replay.poller import Poller, run_all
from loadtest.replay.timerfd import Callback, Deadline, Handle


class Reactor(Protocol):
    """What the sender needs from a loop."""

    name: str
    failure: BaseException | None  # what a callback raised, where the loop itself does not pass it on

    def on_readable(self, fd: int, callback: Callback) -> Handle: ...
    def on_writable(self, fd: int, callback: Callback) -> Handle: ...
    def soon(self, callback: Callback) -> None:
        """Run `callback` after the loop has looked at its sockets once more."""

    def every(self, seconds: float, callback: Callback) -> Handle: ...
    def deadline(self, callback: Callback) -> Deadline: ...
    def close(self) -> None: ...


# --- the gevent hub --------------------------------------------------------------------------------------------


class HubReactor:
    """On the gevent hub of the thread that makes it: no greenlet per stream, no switch and no watcher per read.

    The hub watches one descriptor, the poller's; where there is no epoll, each socket.
    """

    name = "hub"

    def __init__(self) -> None:
        from gevent import get_hub

        self._hub: Any = get_hub()
        self._loop: Any = self._hub.loop
        self._handle_error = self._hub.handle_error
        self._hub.handle_error = self._on_error
        self._soon: deque[Callback] = deque()
        self._soon_scheduled = False
        # Gevent runs a callback that was added by a callback at once, for up to 5 ms, without a look at any socket or
        # instant; a timer of no length comes round after that look.
        self._next_round: Any = self._loop.timer(0.0)
        self._poller = Poller(self._soon) if hasattr(select, "epoll") else None
        if self._poller is not None:
            self._poll_handle = self._io(self._poller.fileno(), 1, self._poller.dispatch)
        self.failure: BaseException | None = None

    def close(self) -> None:
        """Leave the hub as it was found."""
        self._hub.handle_error = self._handle_error
        self._next_round.stop()
        self._next_round.close()
        if self._poller is not None:
            self._poll_handle.stop()
            self._poller.close()

    def _on_error(self, context: Any, kind: Any, value: Any, traceback: Any) -> None:
        """The hub only prints what a callback raises; a replay must end on it instead of waiting for ever."""
        passed_on = (*self._hub.SYSTEM_ERROR, *self._hub.NOT_ERROR)  # Ctrl-C, exit, and the end of a greenlet
        if (
            self.failure is None and not isinstance(value, passed_on) and not hasattr(context, "switch")
        ):  # no greenlet's
            self.failure = value
        self._handle_error(context, kind, value, traceback)

    def on_readable(self, fd: int, callback: Callback) -> Handle:
        return self._io(fd, 1, callback) if self._poller is None else self._poller.on_readable(fd, callback)

    def on_writable(self, fd: int, callback: Callback) -> Handle:
        return self._io(fd, 2, callback) if self._poller is None else self._poller.on_writable(fd, callback)

    def _io(self, fd: int, events: int, callback: Callback) -> Handle:
        watcher = self._loop.io(fd, events)
        watcher.start(callback)
        return _HubHandle(watcher)

    def soon(self, callback: Callback) -> None:
        if not self._soon_scheduled:
            self._soon_scheduled = True
            self._loop.run_callback(self._run_soon)
        self._soon.append(callback)

    def _run_soon(self) -> None:
        try:
            run_all(self._soon)
        finally:
            self._soon_scheduled = bool(self._soon)
            if self._soon_scheduled:
                self._next_round.start(self._run_soon)

    def every(self, seconds: float, callback: Callback) -> Handle:
        timer = self._loop.timer(seconds, seconds)
        timer.start(callback)
        return _HubHandle(timer)

    def deadline(self, callback: Callback) -> Deadline:
        made = timerfd.make(self, callback)
        if self._poller is not None:
            self._poller.add_deadline(made)
        return made


class _HubHandle:
    """A libev watcher: stopped before it is closed, closed once."""

    __slots__ = ("_watcher",)

    def __init__(self, watcher: Any) -> None:
        self._watcher = watcher

    def stop(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
            watcher.close()


# --- bare epoll ------------------------------------------------------------------------------------------------


class EpollReactor:
    """A loop of our own: for tests, and for a worker whose gevent hub is kept busy by other code."""

    name = "epoll"
    failure: BaseException | None = None

    def __init__(self) -> None:
        self._soon: deque[Callback] = deque()
        self._poller = Poller(self._soon)
        self._timers: list[_EpollTimer] = []
        self.on_readable, self.on_writable = self._poller.on_readable, self._poller.on_writable
        self.soon = self._soon.append

    def every(self, seconds: float, callback: Callback) -> Handle:
        timer = _EpollTimer(self._timers, int(seconds * 1e9), callback)
        self._timers.append(timer)
        return timer

    def deadline(self, callback: Callback) -> Deadline:
        made = timerfd.make(self, callback)
        self._poller.add_deadline(made)
        return made

    def run_until(self, finished: Callable[[], bool]) -> None:
        """Turn the loop until `finished()`."""
        while not finished():
            self.turn()

    def turn(self) -> None:
        """Look at the sockets once, then at the timers, then run what was put off."""
        self._poller.dispatch(0.0 if self._soon else min((t.wait_s() for t in self._timers), default=0.05))
        for timer in list(self._timers):
            timer.run_if_due()
        run_all(self._soon)

    def close(self) -> None:
        self._poller.close()


class _EpollTimer:
    def __init__(self, timers: list[_EpollTimer], period_ns: int, callback: Callback) -> None:
        self._timers, self._period_ns, self._callback = timers, period_ns, callback
        self._due_ns = clock.monotonic_ns() + period_ns

    def wait_s(self) -> float:
        return max(0.0, (self._due_ns - clock.monotonic_ns()) / 1e9)

    def run_if_due(self) -> None:
        now = clock.monotonic_ns()
        if now >= self._due_ns:
            self._due_ns = now + self._period_ns
            self._callback()

    def stop(self) -> None:
        if self in self._timers:
            self._timers.remove(self)
