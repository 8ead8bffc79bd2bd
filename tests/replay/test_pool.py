"""Which connection a request gets: the longest idle one to the next address, and how many are missing."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest

from loadtest import clock
from loadtest.replay.connection import Connection
from loadtest.replay.pool import MAX_IDLE_NS, ConnectionPool


class Opened:
    """A connection that is up at once."""

    def __init__(self) -> None:
        self.uses = self.idle_since_ns = self.place = 0
        self.connect_ns = 300
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Time:
    def __init__(self) -> None:
        self.ns = 10**12

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "monotonic_ns", time)
    return time


def pool(places: int = 1, setup_ns: int = 0) -> ConnectionPool:
    return ConnectionPool(lambda _: cast(Connection, Opened()), places, setup_ns)


def use(found: ConnectionPool) -> Connection:
    """As a request does: an idle one, or a new one."""
    connection = found.take() or found.open()
    connection.uses += 1
    return connection


def test_the_longest_idle_is_used_first(now: Time) -> None:
    """So that a server with few workers sees them all, and a closed one is found out early."""
    found = pool()
    first, second = use(found), use(found)
    found.give_back(second)
    now.ns += 1
    found.give_back(first)
    assert [second, first] == [found.take(), found.take()]
    assert (2, 2, 2) == (found.opened, found.reused, found.idle_most)


def test_what_was_idle_for_too_long_is_closed(now: Time) -> None:
    """At a look, and where it would have been used: servers close at 5 s, and a race is lost."""
    found = pool()
    connections = [use(found) for _ in range(2)]
    for connection in connections:
        found.give_back(connection)
    now.ns += MAX_IDLE_NS
    found.close_stale()
    assert 2 == found.there
    now.ns += 1
    assert found.take() is None
    assert all(cast(Opened, connection).closed for connection in connections)
    assert 0 == found.there


def test_a_long_idle_crowd_is_closed_a_few_at_a_time(now: Time) -> None:
    """Closing costs as much as a request does."""
    found = pool()
    for connection in [use(found) for _ in range(40)]:
        found.give_back(connection)
    now.ns += MAX_IDLE_NS + 1
    left = []
    for _ in range(3):
        found.close_stale()
        left.append(found.there)
    assert [24, 8, 0] == left


def test_only_what_is_missing_is_missing(now: Time) -> None:
    """Idle ones, and those that come up, count; nothing does while a server refuses."""
    found = pool()
    found.give_back(use(found))
    assert (0, 0, 3) == (found.missing(0), found.missing(1), found.missing(4))
    assert found.open_ahead(4)
    assert 2 == found.missing(4)
    (opening,) = found._opening[0]
    found.discard(opening)
    assert 0 == found.missing(4)
    now.ns += 1_000_000_000
    assert 3 == found.missing(4)


@pytest.mark.parametrize("places", [1, 2, 3, 7])
def test_each_address_gets_its_share(places: int) -> None:
    """Round and round, whether requests follow each other on few connections or come all at once."""
    found = pool(places)
    counts: Counter[int] = Counter()
    for _ in range(10 * places):  # one after the other
        connection = use(found)
        counts[connection.place] += 1
        found.give_back(connection)
    assert dict.fromkeys(range(places), 10) == counts
    assert places == found.opened
    crowd = Counter(use(found).place for _ in range(3 * places))
    assert dict.fromkeys(range(places), 3) == crowd


@pytest.mark.parametrize("places", [1, 2, 3])
@pytest.mark.parametrize("due", [0, 1, 2, 5, 8])
def test_opening_what_is_missing_serves_the_next_requests(places: int, due: int) -> None:
    """Wherever the round stands: after it, that many requests find a connection, and not one is left."""
    for before in range(places):
        found = pool(places)
        for _ in range(before):
            use(found)
        while found.missing(due):
            assert found.open_ahead(due)
        assert due == found.there
        for _ in range(due):
            assert found.take() is not None
        assert 0 == found.there


def test_setting_up_takes_what_it_usually_takes() -> None:
    """The preflight's word first, then the median: one connection that waits in a full backlog is no rule."""
    found = pool(setup_ns=1000)
    assert (1000, 0) == (found.setup_ns, pool().setup_ns)
    for connect_ns in (10, 20, 3_000_000_000, 20):
        connection = found.open()
        connection.connect_ns = connect_ns
        found.established(connection)
    assert 20 == found.setup_ns
