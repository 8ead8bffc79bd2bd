"""Whether idle connections hold the server's workers: suspected by a wait, tried, and believed when it helped twice."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest import clock
from loadtest.replay.workers import Workers

MS = 1_000_000


class Time:
    ns = 10**12

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "monotonic_ns", time)
    return time


def answered(workers: Workers, now: Time, connection: Any, wait_ms: int) -> None:
    """A request, and the first byte of its answer."""
    workers.asked(connection)
    now.ns += wait_ms * MS
    workers.answers(connection)


def kept(now: Time, count: int = 2, wait_ms: int = 10) -> Workers:
    """A server whose kept connections answer in `wait_ms`."""
    workers = Workers()
    for connection in range(count):
        answered(workers, now, connection, wait_ms)
        answered(workers, now, connection, wait_ms)
    return workers


def test_nothing_is_wanted_while_nobody_waits(now: Time) -> None:
    """Idle connections are kept alive."""
    workers = kept(now)
    assert not workers.wanted()
    workers.asked(0)
    now.ns += 10_000 * MS
    assert not workers.wanted()  # it waits on a connection that has a worker


def test_a_new_connection_that_waits_far_longer_is_a_suspicion(now: Time) -> None:
    """Twice the longest of the last waits and 20 ms; one trial at a time."""
    workers = kept(now)
    workers.asked("new")
    now.ns += 39 * MS
    assert not workers.wanted()
    now.ns += 1 * MS
    assert workers.wanted()
    assert not workers.wanted()


def test_what_helped_twice_is_known(now: Time) -> None:
    """From then on a connection is given up at once when somebody new waits."""
    workers = kept(now)
    for number in range(2):
        assert not workers.held
        new = object()
        workers.asked(new)
        now.ns += 50 * MS
        assert workers.wanted()
        workers.closed(number)
        now.ns += 10 * MS
        workers.answers(new)
    assert workers.held
    workers.closed(new)
    workers.asked("third")
    assert not workers.wanted()  # one of the workers is free
    answered(workers, now, "fourth", 10)
    assert workers.wanted()


def test_what_never_helps_is_given_up(now: Time) -> None:
    """A server that is slow for all: after three trials in vain its connections are left alone."""
    workers = kept(now)
    for number in range(3):
        new = object()
        workers.asked(new)
        now.ns += 50 * MS
        assert workers.wanted(), number
        now.ns += 500 * MS
        workers.answers(new)
    workers.asked("last")
    now.ns += 10_000 * MS
    assert not workers.wanted()


def test_more_connections_than_ever_need_no_worker_of_others(now: Time) -> None:
    """While fewer are open and served than once were, the server has workers to spare."""
    workers = kept(now, count=4)
    workers.closed(0)
    workers.asked("new")
    now.ns += 10_000 * MS
    assert not workers.wanted()
