"""The hub's reactor: what a callback raises ends the replay that it belongs to."""

from __future__ import annotations

import os
from collections.abc import Iterator

import gevent
import pytest

from loadtest.replay.reactor import HubReactor


class OutcomeError(BaseException):
    """As a test runner's time limit raises it, in whatever runs at that moment."""


@pytest.fixture
def reactor() -> Iterator[HubReactor]:
    made = HubReactor()
    yield made
    made.close()


@pytest.mark.parametrize("raised", [ValueError("no"), OutcomeError("too long")])
def test_what_a_read_raises_is_kept(reactor: HubReactor, raised: BaseException) -> None:
    """Gevent stops the watcher and goes on: nobody would read again, and the replay would wait for ever."""

    def fail() -> None:
        raise raised

    read, write = os.pipe()
    reactor.on_readable(read, fail)
    os.write(write, b"x")
    with gevent.Timeout(10):
        while reactor.failure is None:
            gevent.sleep(0.001)
    os.close(read)
    os.close(write)
    assert raised is reactor.failure
