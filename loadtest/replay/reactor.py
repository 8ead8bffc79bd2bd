"""The event loop under the sender: the gevent hub of a Locust worker, or a bare epoll loop.

Callbacks run in the loop itself and never block or switch. This is the only module of the package that may
import gevent, and it does so only when a `HubReactor` is made.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from loadtest import clock

Callback = Callable[[], None]


class Handle(Protocol):
    """Something that can be stopped, once or more often."""

    def stop(self) -> None: ...


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


class Deadline(Protocol):
    """A one-shot timer on absolute CLOCK_MONOTONIC nanoseconds; never early."""

    def arm(self, at_ns: int) -> None: ...
    def close(self) -> None: ...


# --- timerfd ---------------------------------------------------------------------------------------------------

_TFD_NONBLOCK = 0o4000
_TFD_CLOEXEC = 0o2000000
_TFD_ABSTIME = 1
_PR_SET_TIMERSLACK = 29


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class TimerFd:
    """A Linux timerfd watched by a reactor: loop timers have 1 ms granularity, this has the kernel's."""

    def __init__(self, reactor: Reactor, callback: Callback) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        self._fd = self._libc.timerfd_create(1, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._spec_ref = ctypes.byref(self._spec)
        self._callback = callback
        self._handle = reactor.on_readable(self._fd, self._fired)

    def arm(self, at_ns: int) -> None:
        value = self._spec.value
        value.sec, value.nsec = divmod(max(at_ns, 1), 1_000_000_000)
        self._libc.timerfd_settime(self._fd, _TFD_ABSTIME, self._spec_ref, None)

    def close(self) -> None:
        self._handle.stop()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._callback()


class PolledDeadline:
    """Where there is no timerfd: a millisecond tick that looks at the clock."""

    def __init__(self, reactor: Reactor, callback: Callback) -> None:
        self._callback = callback
        self._at_ns = 0
        self._handle = reactor.every(0.001, self._tick)

    def arm(self, at_ns: int) -> None:
        self._at_ns = at_ns

    def close(self) -> None:
        self._handle.stop()

    def _tick(self) -> None:
        if self._at_ns and clock.monotonic_ns() >= self._at_ns:
            self._at_ns = 0
            self._callback()


def _deadline(reactor: Reactor, callback: Callback) -> Deadline:
    return TimerFd(reactor, callback) if sys.platform == "linux" else PolledDeadline(reactor, callback)


# --- the gevent hub --------------------------------------------------------------------------------------------


class HubReactor:
    """Watchers on the gevent hub of the thread that makes it: no greenlet per stream, no switch per read."""

    name = "hub"

    def __init__(self) -> None:
        from gevent import get_hub

        self._hub: Any = get_hub()
        self._loop: Any = self._hub.loop
        self._handle_error = self._hub.handle_error
        self._hub.handle_error = self._on_error
        self.failure: BaseException | None = None

    def close(self) -> None:
        """Leave the hub as it was found."""
        self._hub.handle_error = self._handle_error

    def _on_error(self, context: Any, kind: Any, value: Any, traceback: Any) -> None:
        """The hub only prints what a callback raises; a replay must end on it instead of waiting for ever."""
        if self.failure is None and isinstance(value, Exception) and not hasattr(context, "switch"):  # no greenlet's
            self.failure = value
        self._handle_error(context, kind, value, traceback)

    def on_readable(self, fd: int, callback: Callback) -> Handle:
        return self._io(fd, 1, callback)

    def on_writable(self, fd: int, callback: Callback) -> Handle:
        return self._io(fd, 2, callback)

    def _io(self, fd: int, events: int, callback: Callback) -> Handle:
        watcher = self._loop.io(fd, events)
        watcher.start(callback)
        return _HubHandle(watcher)

    def soon(self, callback: Callback) -> None:
        self._loop.run_callback(callback)

    def every(self, seconds: float, callback: Callback) -> Handle:
        timer = self._loop.timer(seconds, seconds)
        timer.start(callback)
        return _HubHandle(timer)

    def deadline(self, callback: Callback) -> Deadline:
        return _deadline(self, callback)


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
        self._epoll = select.epoll()
        self._callbacks: dict[int, dict[int, Callback]] = {}
        self._soon: deque[Callback] = deque()
        self._timers: list[_EpollTimer] = []

    def on_readable(self, fd: int, callback: Callback) -> Handle:
        return self._io(fd, select.EPOLLIN, callback)

    def on_writable(self, fd: int, callback: Callback) -> Handle:
        return self._io(fd, select.EPOLLOUT, callback)

    def _io(self, fd: int, event: int, callback: Callback) -> Handle:
        wanted = self._callbacks.setdefault(fd, {})
        if wanted:
            self._epoll.modify(fd, event | sum(wanted))
        else:
            self._epoll.register(fd, event)
        wanted[event] = callback
        return _EpollHandle(self, fd, event)

    def forget(self, fd: int, event: int) -> None:
        """Stop watching `fd` for `event`."""
        wanted = self._callbacks.get(fd, {})
        wanted.pop(event, None)
        if wanted:
            self._epoll.modify(fd, sum(wanted))
        elif fd in self._callbacks:
            del self._callbacks[fd]
            self._epoll.unregister(fd)

    def soon(self, callback: Callback) -> None:
        self._soon.append(callback)

    def every(self, seconds: float, callback: Callback) -> Handle:
        timer = _EpollTimer(self._timers, int(seconds * 1e9), callback)
        self._timers.append(timer)
        return timer

    def deadline(self, callback: Callback) -> Deadline:
        return _deadline(self, callback)

    def run_until(self, finished: Callable[[], bool]) -> None:
        """Turn the loop until `finished()`."""
        while not finished():
            self.turn()

    def turn(self) -> None:
        """Look at the sockets once, then at the timers, then run what was put off."""
        timeout = 0.0 if self._soon else min((t.wait_s() for t in self._timers), default=0.05)
        for fd, events in self._epoll.poll(timeout):
            for event, callback in list(self._callbacks.get(fd, {}).items()):
                if events & (event | select.EPOLLHUP | select.EPOLLERR):
                    callback()
        for timer in list(self._timers):
            timer.run_if_due()
        for _ in range(len(self._soon)):
            self._soon.popleft()()

    def close(self) -> None:
        self._epoll.close()


class _EpollHandle:
    __slots__ = ("_event", "_fd", "_reactor")

    def __init__(self, reactor: EpollReactor, fd: int, event: int) -> None:
        self._reactor: EpollReactor | None = reactor
        self._fd, self._event = fd, event

    def stop(self) -> None:
        reactor, self._reactor = self._reactor, None
        if reactor is not None:
            reactor.forget(self._fd, self._event)


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
