"""Sessions whose later turns wait for the answer before them and think."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.replay.player import Play, Player, Received
from tests.replay.replaying import replay, schedule
from tests.replay.streams import answer_bytes
from workloads.schedule import Schedule

ANSWER = answer_bytes([" a", " b"])


def conversation(scheduled_s: list[float], session: list[int], think_s: list[float]) -> Schedule:
    return replace(schedule(scheduled_s), session=np.array(session), think_s=np.array(think_s))


def slow(_received: Received, _number: int) -> Play:
    return Play([(60, ANSWER)])


def test_a_turn_waits_for_the_answer_and_thinks() -> None:
    """Due exactly think_s after the turn before it ended, never sent earlier; other rows keep their instants."""
    shard = conversation([0.0, np.nan, 0.03, np.nan], [5, 5, -1, 5], [0, 0.05, 0, 0])
    with Player(slow) as player:
        done = replay(player.url(), shard)
    rows = done.rows
    assert ["ok"] * 4 == [done.outcome(i) for i in range(4)]
    assert np.allclose([rows["done_s"][0] + 0.05, rows["done_s"][1]], rows["scheduled_s"][[1, 3]], atol=1e-6)
    assert 0.03 == rows["scheduled_s"][2]
    assert (rows["sent_s"] >= rows["scheduled_s"] - 1e-9).all()


def test_a_failed_turn_does_not_end_the_session() -> None:
    """The next turn is due after an error too."""

    def refusing(_received: Received, number: int) -> Play:
        return Play([(0, b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno" if number == 0 else ANSWER)])

    with Player(refusing) as player:
        done = replay(player.url(), conversation([0.0, np.nan], [1, 1], [0, 0.01]))
    assert ["http_500", "ok"] == [done.outcome(i) for i in range(2)]


def test_a_skipped_turn_does_not_end_the_session() -> None:
    """A first turn that is too late is skipped, the next one still comes."""
    with Player(slow) as player:
        done = replay(player.url(), conversation([0.0, np.nan], [1, 1], [0, 0.01]), lead_s=-3.0, max_lateness_s=1.0)
    assert ["skipped_late", "ok"] == [done.outcome(i) for i in range(2)]


def test_a_turn_may_wait_past_the_last_planned_instant() -> None:
    """Sessions go on when everything planned has left, and the drain limit counts from the last turn."""
    with Player(slow) as player:
        done = replay(player.url(), conversation([0.0] + [np.nan] * 5, [1] * 6, [0] + [0.05] * 5), drain_limit_s=0.2)
    assert ["ok"] * 6 == [done.outcome(i) for i in range(6)]
