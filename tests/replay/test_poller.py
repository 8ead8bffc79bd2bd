"""Sockets in batches: nobody is missed, nobody who left is called, and no instant is slept through."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable

import pytest

from loadtest import clock
from loadtest.replay import poller as module
from loadtest.replay.poller import Poller, run_all
from loadtest.replay.reactor import EpollReactor, HubReactor


class Due:
    """A deadline that is only looked at."""

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def arm(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def run_if_due(self) -> None:
        """Nobody to call."""

    def close(self) -> None:
        """Nothing to close."""


def pairs(count: int) -> list[tuple[socket.socket, socket.socket]]:
    return [socket.socketpair() for _ in range(count)]


def close(socks: list[tuple[socket.socket, socket.socket]]) -> None:
    for pair in socks:
        for sock in pair:
            sock.close()


def test_every_ready_socket_is_called_once_a_turn() -> None:
    """A hundred sockets with something to read: a hundred calls; after reading, none."""
    poller, seen, socks = Poller(deque()), [], pairs(100)
    for ours, theirs in socks:
        poller.on_readable(ours.fileno(), lambda ours=ours: seen.append(ours.recv(9)))  # type: ignore[misc]
        theirs.send(b"x")
    poller.dispatch()
    assert [b"x"] * 100 == seen
    poller.dispatch()
    assert 100 == len(seen)
    close(socks)
    poller.close()


def test_an_instant_comes_before_reads_that_can_wait() -> None:
    """Ten sockets are ready and an instant has passed: it is looked at after the first four, not behind them all."""
    poller, seen, socks = Poller(deque()), [], pairs(10)

    class Passed(Due):
        def run_if_due(self) -> None:
            seen.append(b"due")

    poller.add_deadline(Passed(0))
    for ours, theirs in socks:
        poller.on_readable(ours.fileno(), lambda ours=ours: seen.append(ours.recv(9)))  # type: ignore[misc]
        theirs.send(b"x")
    poller.dispatch()
    assert [*[b"x"] * 4, b"due", *[b"x"] * 4, b"due", *[b"x"] * 2, b"due"] == seen
    close(socks)
    poller.close()


def test_who_left_during_the_turn_is_not_called() -> None:
    """The first callback closes all others and one of their numbers is taken again: the old event is not its."""
    poller, called, socks = Poller(deque()), [], pairs(3)
    handles = {}

    def first_come(ours: socket.socket) -> None:
        called.append(ours)
        for other, handle in handles.items():
            if other is not ours:
                handle.stop()
                handle.stop()  # twice is once
        fresh = os.dup(ours.fileno())
        poller.on_writable(fresh, lambda: called.append(fresh))  # type: ignore[arg-type]
        os.close(fresh)
        ours.recv(9)

    for ours, theirs in socks:
        handles[ours] = poller.on_readable(ours.fileno(), lambda ours=ours: first_come(ours))  # type: ignore[misc]
        theirs.send(b"x")
    poller.dispatch()
    assert 1 == len([who for who in called if isinstance(who, socket.socket)])
    close(socks)
    poller.close()


def test_reading_and_writing_on_one_socket() -> None:
    """Both are watched, each is stopped on its own, and a hang-up reaches whoever still watches."""
    poller, called, socks = Poller(deque()), [], pairs(1)
    ours, theirs = socks[0]
    reading = poller.on_readable(ours.fileno(), lambda: called.append("read"))
    writing = poller.on_writable(ours.fileno(), lambda: called.append("write"))
    poller._rest = lambda _turn_ns: False  # type: ignore[method-assign]
    poller.dispatch()
    assert ["write"] == called
    writing.stop()
    theirs.close()
    poller.dispatch()
    assert ["write", "read"] == called
    reading.stop()
    poller.dispatch()
    assert 2 == len(called)
    close(socks)
    poller.close()


def test_the_end_of_a_stream_is_told_behind_its_last_bytes() -> None:
    """The peer's last bytes and its end are there together; one read takes the bytes, and the end is told after it."""
    poller, seen, socks = Poller(deque()), [], pairs(1)
    ours, theirs = socks[0]
    handle = poller.on_readable(ours.fileno(), lambda: seen.append(ours.recv(9)))
    theirs.send(b"last")
    theirs.close()
    poller._rest = lambda _turn_ns: False  # type: ignore[method-assign]
    poller.dispatch()
    poller.dispatch()
    assert [b"last", b""] == seen
    handle.stop()
    close(socks)
    poller.close()


def test_what_was_there_before_anybody_watched_is_told() -> None:
    """Bytes that came before the watch began, and bytes left when writing stops, are arrivals too."""
    poller, seen, socks = Poller(deque()), [], pairs(1)
    ours, theirs = socks[0]
    poller._rest = lambda _turn_ns: False  # type: ignore[method-assign]
    theirs.send(b"ab")
    poller.on_readable(ours.fileno(), lambda: seen.append(ours.recv(1)))
    poller.dispatch()
    assert [b"a"] == seen
    writing = poller.on_writable(ours.fileno(), lambda: None)
    writing.stop()
    poller.dispatch()
    assert [b"a", b"b"] == seen
    close(socks)
    poller.close()


@pytest.mark.parametrize(("ahead_ns", "rests"), [(10**9, True), (module.DEADLINE_GUARD_NS, False), (-(10**6), False)])
def test_no_instant_is_slept_through(monkeypatch: pytest.MonkeyPatch, ahead_ns: int, rests: bool) -> None:
    """The poller rests out its turn unless an instant of the schedule is near or past."""
    slept: list[int] = []
    monkeypatch.setattr(module, "rest", slept.append)
    now = 10**12
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now)
    poller = Poller(deque())
    poller.add_deadline(Due(now + ahead_ns))
    poller._turn_ns = now
    assert rests == poller._rest(module.TURN_NS)
    assert ([module.TURN_NS] if rests else []) == slept
    poller.close()


def test_put_off_work_comes_before_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is something to decode nobody rests; what it adds waits for its own turn."""
    monkeypatch.setattr(module, "rest", lambda _: pytest.fail("rested with work to do"))
    soon: deque[Callable[[], None]] = deque()
    poller, socks = Poller(soon), pairs(1)
    ours, theirs = socks[0]
    poller.on_readable(ours.fileno(), lambda: soon.append(lambda: soon.append(lambda: None)))
    theirs.send(b"x")
    poller.dispatch()
    assert 1 == len(soon)
    run_all(soon)
    assert 1 == len(soon)
    close(socks)
    poller.close()


def test_what_is_put_off_while_putting_off_is_run_on_the_hub() -> None:
    """Callbacks that add callbacks, several deep, all run."""
    import gevent

    for reactor in (HubReactor(), EpollReactor()):
        ran: list[int] = []

        def more(depth: int, reactor: HubReactor | EpollReactor = reactor, ran: list[int] = ran) -> None:
            ran.append(depth)
            if depth:
                reactor.soon(lambda: more(depth - 1))
                reactor.soon(lambda: more(0))

        reactor.soon(lambda: more(3))
        for _ in range(20):
            if isinstance(reactor, EpollReactor):
                reactor.turn()
            else:
                gevent.sleep(0.001)
        assert [0, 0, 0, 0, 1, 2, 3] == sorted(ran)
        reactor.close()
