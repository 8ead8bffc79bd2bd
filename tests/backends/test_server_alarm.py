"""Alarms on a real loop: they ring once, not early, and can be moved and silenced."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from loadtest.backends.server.alarm import Alarm, LoopAlarm, TimerFdAlarm
from loadtest.clock import MonotonicClock

NewAlarm = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Alarm]
KINDS = [LoopAlarm, *([TimerFdAlarm] if sys.platform == "linux" else [])]
CLOCK = MonotonicClock()


def rings(kind: NewAlarm, use: Callable[[Alarm, list[float]], object], *, wait_s: float = 0.04) -> list[float]:
    """Instants at which the alarm rang within `wait_s` after `use`."""

    async def run() -> list[float]:
        heard: list[float] = []
        alarm = kind(asyncio.get_running_loop(), lambda: heard.append(CLOCK.now()))
        use(alarm, heard)
        await asyncio.sleep(wait_s)
        alarm.close()
        return heard

    return asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_rings_once_and_not_early(kind: NewAlarm) -> None:
    """One deadline, one ring, at or after it."""
    deadline = CLOCK.now() + 0.01
    (heard,) = rings(kind, lambda alarm, _: alarm.set(deadline))
    assert heard >= deadline - 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_past_deadline_rings_at_once(kind: NewAlarm) -> None:
    """A server that fell behind catches up; the clock's zero is a past like any other."""
    assert 1 == len(rings(kind, lambda alarm, _: alarm.set(CLOCK.now() - 5)))
    assert 1 == len(rings(kind, lambda alarm, _: alarm.set(0.0)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_deadline_replaces_the_old(kind: NewAlarm) -> None:
    """Earlier or later, only the last one set counts; None silences."""

    def move(alarm: Alarm, _: list[float]) -> None:
        alarm.set(CLOCK.now() + 0.005)
        alarm.set(CLOCK.now() + 100)

    def silence(alarm: Alarm, _: list[float]) -> None:
        alarm.set(CLOCK.now() + 0.005)
        alarm.set(None)
        alarm.set(None)

    assert [] == rings(kind, move)
    assert [] == rings(kind, silence)


@pytest.mark.parametrize("kind", KINDS)
def test_can_be_set_again_from_its_own_ring(kind: NewAlarm) -> None:
    """The engine sets the next iteration's end while handling this one's, the same instant too."""

    async def run() -> int:
        count = 0
        start = CLOCK.now()

        def ring() -> None:
            nonlocal count
            count += 1
            alarm.set(start if count < 5 else None)

        alarm: Alarm = kind(asyncio.get_running_loop(), ring)
        alarm.set(start)
        await asyncio.sleep(0.03)
        alarm.close()
        return count

    assert 5 == asyncio.run(run())
