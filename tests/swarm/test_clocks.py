"""The offset between two machines' clocks."""

from __future__ import annotations

import pytest

from loadtest import clock
from loadtest.swarm import clocks as module
from loadtest.swarm.clocks import ClockOffset
from loadtest.swarm.protocol import Ping, Pong


def test_the_shortest_way_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways of 10 ms and 2 ms: the second bounds the error by 1 ms, and half of it is taken off."""
    now = [0]
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now[0])
    offset = ClockOffset(lambda _: None)
    for left_ms, way_ms, there_ms in ((0, 10, 509), (100, 2, 601), (200, 5, 704)):  # they are 500 ms ahead
        now[0] = (left_ms + way_ms) * 1_000_000
        offset.heard(Pong(left_ms * 1_000_000, there_ms * 1_000_000))
    assert (500_000_000, 2_000_000) == (offset.offset_ns, offset.rtt_ns)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start without a common clock is an error, not a guess."""
    monkeypatch.setattr(module, "ANSWER_LIMIT_S", 0.0)
    monkeypatch.setattr(module, "PING_EVERY_S", 0.0)
    asked: list[Ping] = []
    with pytest.raises(TimeoutError):
        ClockOffset(asked.append).measure()
    assert module.PINGS == len(asked)
