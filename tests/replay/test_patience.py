"""How long an answer is waited for: by its progress, and by the total that the user sets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from loadtest.replay.options import SenderOptions
from loadtest.replay.patience import LOOK_AFTER_TICKS, Patience
from metrics.records import Phase
from tests.replay.player import LAST_CHUNK, Play, Player, chunk
from tests.replay.replaying import replay, schedule
from tests.replay.streams import DONE, HEAD, completion_event, usage_event


def slow_answer(tokens: int, every_ms: float, between: bytes = b"") -> list[tuple[float, bytes]]:
    """A head, then a token each `every_ms` (and something in between), then the end."""
    writes = [(0.0, HEAD)]
    for number in range(tokens):
        writes += [(number * every_ms, chunk(completion_event(f" {number}")))]
        writes += [((number + 0.5) * every_ms, between)] if between else []
    end = chunk(completion_event("", "length")) + chunk(usage_event(tokens)) + chunk(DONE) + LAST_CHUNK
    return [*writes, (tokens * every_ms, end)]


def test_an_answer_that_flows_is_never_cut() -> None:
    """Four times as long as both limits, a token each 50 ms: all of it counts."""
    with Player(lambda *_: Play(slow_answer(40, 50))) as player:
        done = replay(player.url(), schedule([0.0], max_tokens=40), idle_timeout_s=0.5, drain_limit_s=0.5)
    assert ("ok", 40) == (done.outcome(0), done.rows["output_tokens"][0])


def test_a_total_cuts_what_flows_and_says_so() -> None:
    """`--drain`: an answer that would take 10 s is a miss by the user's own word."""
    with Player(lambda *_: Play(slow_answer(200, 50))) as player:
        done = replay(player.url(), schedule([0.0], max_tokens=200), drain_total_s=0.4)
    assert ("timeout", Phase.STREAM) == (done.outcome(0), done.rows["phase"][0])
    assert "--drain" in done.error(0)
    assert done.rows["token_events"][0] >= 1


@pytest.mark.parametrize("noise", [chunk(b": keep-alive\n\n"), chunk(b"\n"), chunk(b'data: {"choices":[]}\n\n')])
def test_noise_is_no_progress(noise: bytes) -> None:
    """Comments, blank lines and empty events each 20 ms renew no patience: the idle limit is between tokens."""
    writes = [(0.0, HEAD + chunk(completion_event(" a"))), *((20.0 * n, noise) for n in range(1, 400))]
    with Player(lambda *_: Play(writes, "stall")) as player:
        done = replay(player.url(), schedule([0.0]), idle_timeout_s=0.4, limit_s=30)
    assert ("timeout", "timed out waiting between tokens") == (done.outcome(0), done.error(0))


@pytest.mark.parametrize("noise", [chunk(b": keep-alive\n\n"), b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_noise_before_the_first_token_ends_with_the_drain(noise: bytes) -> None:
    """Comments in the body, and interim answers before any head, for ever."""
    head = b"" if noise.startswith(b"HTTP") else HEAD
    writes = [(0.0, head or noise), *((20.0 * n, noise) for n in range(1, 400))]
    with Player(lambda *_: Play(writes, "stall")) as player:
        done = replay(player.url(), schedule([0.0]), drain_limit_s=0.4, limit_s=30)
    assert ("timeout", "timed out waiting for the first token") == (done.outcome(0), done.error(0))


def test_a_stream_that_never_ends_is_cut_behind_what_was_asked() -> None:
    """A token each 10 ms, far more than the four asked for: after the drain the run goes on without it."""
    writes = [(0.0, HEAD), *((10.0 * n, chunk(completion_event(f" {n}"))) for n in range(1, 1000))]
    with Player(lambda *_: Play(writes, "stall")) as player:
        done = replay(player.url(), schedule([0.0], max_tokens=4), drain_limit_s=0.4, limit_s=30)
    assert "timeout" == done.outcome(0)
    assert "4 were asked for" in done.error(0)


def test_everybody_is_looked_after_in_a_round() -> None:
    """Whatever the number of streams, each comes up within the ticks of a round, and in parts."""
    patience = Patience(SenderOptions(), schedule([0.0]))
    for streams in (1, 31, 32, 33, 1000):
        live: set[Any] = set(range(streams))
        seen = list(itertools.chain.from_iterable(patience.next_few(live) for _ in range(LOOK_AFTER_TICKS)))
        patience._queue.clear()
        assert live <= set(seen)
