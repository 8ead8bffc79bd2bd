"""How many connections are opened ahead: enough for what is due, not for what is coming back anyway."""

from __future__ import annotations

from typing import cast

from loadtest.replay.connection import Connection
from loadtest.replay.pool import ConnectionPool


class Opened:
    """A connection that is up at once."""

    def __init__(self) -> None:
        self.uses, self.idle_since_ns = 0, 0

    def close(self) -> None:
        """Nothing to close."""


def pool() -> ConnectionPool:
    return ConnectionPool(lambda: cast(Connection, Opened()))


def come_up(found: ConnectionPool) -> None:
    """All that are being opened are established."""
    for connection in list(found._opening):
        found.established(connection)


def look_ahead(found: ConnectionPool, due: int) -> None:
    """A look, and what is missing is opened."""
    found.look_ahead(due)
    while found.missing:
        found.open_next()


def test_a_burst_finds_a_connection_for_every_request() -> None:
    """Nothing has come back yet: as many as are due are opened, once."""
    found = pool()
    look_ahead(found, 300)
    come_up(found)
    look_ahead(found, 300)
    assert 300 == found.opened


def test_connections_that_come_back_are_not_opened_again() -> None:
    """A hundred requests a look, each over before the next: after the first second the pool has stopped growing."""
    found = pool()
    for _ in range(20):
        look_ahead(found, 2000)
        come_up(found)
        for connection in [found.take() for _ in range(100)]:
            assert connection is not None
            connection.uses += 1
            found.give_back(connection)
    opened = found.opened
    assert 2000 == opened  # in the first looks nothing had come back
    for _ in range(40):
        look_ahead(found, 2000)
        for connection in [found.take() for _ in range(100)]:
            assert connection is not None
            connection.uses += 1
            found.give_back(connection)
    assert opened == found.opened


def test_a_few_are_ready_however_many_come_back() -> None:
    """Returns are an estimate: with 100 of 100 expected back, 8 and an eighth of the hundred still stand by."""
    found = pool()
    for _ in range(20):
        found.given_back += 5
        look_ahead(found, 100)
        found._idle.clear()
        found._opening.clear()
    before = found.opened
    look_ahead(found, 100)
    assert 8 + 100 // 8 == found.opened - before
