"""When connections are opened: as late as their set-up allows, and never without need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadtest import clock
from loadtest.replay.opener import MARGIN_NS, OPENING_COSTS_NS, UNKNOWN_SETUP_NS, Opener
from loadtest.replay.timerfd import FAR_FUTURE_NS

MS = 1_000_000


class Stage:
    """A clock by hand, instants that are known, and a pool of which only the numbers matter."""

    def __init__(self, due_ms: list[float], idle: int = 0, setup_ns: int = 0, room: int = 10**9) -> None:
        self.now_ns, self.setup_ns = 0, setup_ns
        self.due_ns = sorted(round(due * MS) for due in due_ms)
        self.there, self.room = idle, room
        self.opened_ns: list[int] = []
        self.sent = 0
        self.at_ns = FAR_FUTURE_NS
        self.callback: Callable[[], None] = lambda: None
        self.opener = Opener(self, self, self, lambda: self.room, lambda: None)  # type: ignore[arg-type]

    # the reactor
    def deadline(self, callback: Callable[[], None]) -> Any:
        self.callback = callback
        return self

    def arm(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def close(self) -> None:
        """Nothing to close."""

    # the timetable
    def due_before(self, instant_ns: int) -> int:
        return sum(due < instant_ns for due in self.due_ns[self.sent :])

    def nth_due_ns(self, count: int) -> int:
        left = self.due_ns[self.sent :]
        return left[count] if count < len(left) else FAR_FUTURE_NS

    # the pool
    def missing(self, due: int) -> int:
        return max(due - self.there, 0)

    def open_ahead(self, _: int) -> bool:
        self.there += 1
        self.opened_ns.append(self.now_ns)
        self.now_ns += OPENING_COSTS_NS
        return True

    def run(self, until_ms: float) -> None:
        """The sender's tick each 50 ms, the opener's looks, and requests that take a connection at their instant."""
        tick_ns = 0
        while self.now_ns < until_ms * MS:
            due_ns = self.nth_due_ns(0)
            self.now_ns = max(self.now_ns, min(tick_ns, self.at_ns, due_ns))
            if self.now_ns >= due_ns:
                self.sent += 1
                self.there -= 1
                self.room -= 1
            if self.now_ns >= self.at_ns:
                self.at_ns = FAR_FUTURE_NS
                self.callback()
            if self.now_ns >= tick_ns:
                tick_ns += 50 * MS
                self.opener.look()
            while self.opener.missing:
                self.opener.open_next()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "monotonic_ns", lambda: Stage.current.now_ns)  # type: ignore[attr-defined]


def stage(*arguments: Any, **options: Any) -> Stage:
    made = Stage.__new__(Stage)
    Stage.current = made  # type: ignore[attr-defined]
    made.__init__(*arguments, **options)  # type: ignore[misc]
    return made


@pytest.mark.parametrize("setup_ms", [0.1, 2, 30, 300])
def test_one_is_opened_when_setting_it_up_takes_the_time_that_is_left(setup_ms: float) -> None:
    """Half as much again and a margin; the deadline's own steps and the tick make it no earlier than 1 ms."""
    scene = stage([900], setup_ns=round(setup_ms * MS))
    scene.run(1000)
    (opened_ns,) = scene.opened_ns
    lead_ns = 900 * MS - opened_ns
    assert 1.5 * setup_ms * MS <= lead_ns <= 1.5 * setup_ms * MS + MARGIN_NS + 2 * MS


def test_nothing_is_opened_that_is_there() -> None:
    """Ten idle connections serve ten requests, however near."""
    scene = stage([10 * number for number in range(1, 11)], idle=10)
    scene.run(200)
    assert [] == scene.opened_ns


def test_a_burst_begins_earlier_by_what_opening_all_takes() -> None:
    """300 requests at one instant: one by one, done in time, and not all of them long before."""
    scene = stage([800.0] * 300)
    scene.run(900)
    assert 300 == len(scene.opened_ns)
    first, last = scene.opened_ns[0], scene.opened_ns[-1]
    assert last + UNKNOWN_SETUP_NS <= 800 * MS
    assert first >= 800 * MS - 300 * OPENING_COSTS_NS - 1.5 * UNKNOWN_SETUP_NS - MARGIN_NS - 3 * MS


def test_single_requests_each_find_one_just_opened() -> None:
    """A server that closes after each answer: never more than one waits unused."""
    scene = stage([37.0 * number for number in range(1, 20)])
    scene.run(800)
    assert 19 == len(scene.opened_ns)
    for opened_ns, due_ns in zip(scene.opened_ns, scene.due_ns, strict=True):
        assert 0 < due_ns - opened_ns <= 1.5 * UNKNOWN_SETUP_NS + MARGIN_NS + 3 * MS


def test_no_more_than_may_be_sent() -> None:
    """Under --max-in-flight the rest would wait unused."""
    scene = stage([100.0] * 50, room=4)
    scene.run(99)
    assert 4 == len(scene.opened_ns)
