"""Wake the event loop at an absolute instant.

The event loop's own timers go through epoll's timeout, which counts whole milliseconds; a timerfd is a file
that becomes readable at the instant, to some 50 us on an idle machine.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Protocol

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME


class Alarm(Protocol):
    """One pending wake-up, on the loop's clock (CLOCK_MONOTONIC, seconds)."""

    def set(self, deadline: float | None) -> None:
        """Ring at `deadline`, at once when it is past, never when None; replaces the one set before."""

    def close(self) -> None: ...


def new_alarm(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Alarm:
    """The sharpest alarm of this platform, calling `ring` on `loop`."""
    return TimerFdAlarm(loop, ring) if sys.platform == "linux" else LoopAlarm(loop, ring)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class TimerFdAlarm:
    """A Linux timerfd watched by the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._settime = libc.timerfd_settime
        self._settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self._fd = int(libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._spec_address = ctypes.addressof(self._spec)
        self._loop = loop
        self._deadline: float | None = None
        self._ring = ring
        loop.add_reader(self._fd, self._readable)

    def set(self, deadline: float | None) -> None:
        if deadline == self._deadline:
            return
        self._deadline = deadline
        value = self._spec.value
        # An absolute time of 0 would disarm; the clock's zero is at boot.
        nanoseconds = 0 if deadline is None else max(1, int(deadline * 1e9))
        value.seconds, value.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        self._settime(self._fd, _ABSOLUTE, self._spec_address, None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew between the wake-up and this call
            return
        self._deadline = None
        self._ring()


class LoopAlarm:
    """The loop's own timer: a millisecond late at worst."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def set(self, deadline: float | None) -> None:
        self.close()
        if deadline is not None:
            self._handle = self._loop.call_at(deadline, self._ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
