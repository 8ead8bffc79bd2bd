"""Instants finer than a millisecond, which the timers of event loops do not have: a Linux timerfd, and a short rest."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from loadtest import clock

Callback = Callable[[], None]

FAR_FUTURE_NS = 2**62
_TFD_NONBLOCK = 0o4000
_TFD_CLOEXEC = 0o2000000
_TFD_ABSTIME = 1
_PR_SET_TIMERSLACK = 29


class Handle(Protocol):
    """Something that can be stopped, once or more often."""

    def stop(self) -> None: ...


class Watcher(Protocol):
    """The part of a reactor that a deadline stands on."""

    def on_readable(self, fd: int, callback: Callback) -> Handle: ...
    def every(self, seconds: float, callback: Callback) -> Handle: ...


class Deadline(Protocol):
    """A one-shot timer on absolute CLOCK_MONOTONIC nanoseconds; never early. `at_ns` is what it is armed for."""

    at_ns: int

    def arm(self, at_ns: int) -> None: ...
    def run_if_due(self) -> None:
        """Call back now if the instant has passed, before the loop comes round to it by itself."""

    def close(self) -> None: ...


def make(reactor: Watcher, callback: Callback) -> Deadline:
    """The best this system has."""
    return TimerFd(reactor, callback) if sys.platform == "linux" else PolledDeadline(reactor, callback)


def rest(nanoseconds: int) -> None:
    """Sleep, without gevent's `sleep`: the hub itself rests."""
    _libc().usleep(nanoseconds // 1000)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux":
        libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    return libc


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class TimerFd:
    """A timerfd watched by a reactor."""

    def __init__(self, reactor: Watcher, callback: Callback) -> None:
        self._fd = _libc().timerfd_create(1, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._spec_ref = ctypes.byref(self._spec)
        self._settime = _libc().timerfd_settime
        self._callback = callback
        self.at_ns = FAR_FUTURE_NS
        self._handle = reactor.on_readable(self._fd, self._fired)

    def arm(self, at_ns: int) -> None:
        self.at_ns = at_ns
        value = self._spec.value
        value.sec, value.nsec = divmod(max(at_ns, 1), 1_000_000_000)
        self._settime(self._fd, _TFD_ABSTIME, self._spec_ref, None)

    def close(self) -> None:
        self._handle.stop()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def run_if_due(self) -> None:
        if clock.monotonic_ns() >= self.at_ns:
            self.at_ns = FAR_FUTURE_NS
            self._callback()

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self.run_if_due()


class PolledDeadline:
    """Where there is no timerfd: a millisecond tick that looks at the clock."""

    def __init__(self, reactor: Watcher, callback: Callback) -> None:
        self._callback = callback
        self.at_ns = FAR_FUTURE_NS
        self._handle = reactor.every(0.001, self.run_if_due)

    def arm(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def close(self) -> None:
        self._handle.stop()

    def run_if_due(self) -> None:
        if clock.monotonic_ns() >= self.at_ns:
            self.at_ns = FAR_FUTURE_NS
            self._callback()
