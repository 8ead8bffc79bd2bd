"""A run that its user stops, with the real client: what was under way is not held against the server."""

from __future__ import annotations

import pytest

from loadtest import clock
from metrics.bins import table_bins
from metrics.records import Outcome
from metrics.slo import SLO, attain
from metrics.summary import summarise
from reports.numbers import THIN
from reports.words import headline
from tests.replay.player import Play, Player, Received, chunk
from tests.replay.replaying import findings, replay, run_of, schedule
from tests.replay.streams import HEAD, answer_bytes, completion_event

ANSWERED, OPEN = 30, 12
TEXT = "ttft=30s,tpot=30s,e2e=30s,share=90%"


def healthy(_received: Received, number: int) -> Play:
    """The first are answered at once; of the rest some have had a token, some none."""
    if number < ANSWERED:
        whole = answer_bytes([" a", " b"])
        first = len(HEAD + chunk(completion_event(" a")))
        return Play([(0, whole[:first]), (5, whole[first:])])
    return Play([(0, HEAD + (chunk(completion_event(" a")) if number % 2 else b""))], "stall")


def test_an_interrupted_run_of_a_healthy_server_is_all_good() -> None:
    """Thirty of thirty are good and twelve undecided; 71.4 % is told as what it is, the lower bound."""
    count = ANSWERED + OPEN
    shard = schedule([i * 0.002 for i in range(count)], max_tokens=2)
    with Player(healthy) as player:
        done = replay(
            player.url(),
            shard,
            stop_when=lambda seen: seen.finished == ANSWERED and len(player.received) == count,
            slo=TEXT,
        )
    outcomes = done.rows["outcome"].tolist()
    assert (ANSWERED, OPEN) == (outcomes.count(Outcome.OK), outcomes.count(Outcome.INTERRUPTED))
    run = run_of(done, stopped_at_s=1.0, stop_reason="stopped by the user")
    summary = summarise(run, SLO.parse(TEXT))
    attained = summary.attainment
    assert attained is not None
    # A loaded machine may read both tokens of an answer at once; nothing else may be wrong with it.
    good = ANSWERED - attained.unmeasurable_requests
    assert (good, ANSWERED, OPEN) == (attained.good, attained.total, attained.undecided)
    assert pytest.approx((good / count, (good + OPEN) / count)) == attained.bounds
    assert "undecided" in findings(done, TEXT, stopped_at_s=1.0)
    drawn = table_bins(run.table, SLO.parse(TEXT)).quadrants
    assert drawn is not None
    assert (good, ANSWERED, OPEN) == (drawn.ok, drawn.total, drawn.undecided)
    assert (good, ANSWERED) == (done.progress.seen.good, done.progress.seen.judged)
    if good == ANSWERED and summary.validity.verdict != "invalid":
        assert "with the undecided 71.4 % to 100 %" in headline(summary).replace(THIN, " ")


def test_what_had_waited_too_long_when_the_run_was_stopped_is_a_miss() -> None:
    """A server that answers nothing gains nothing by the stop."""
    shard = schedule([0.0, 0.0], max_tokens=2)
    late_ns = clock.monotonic_ns() + 120_000_000
    with Player(lambda *_: Play([(0, HEAD)], "stall")) as player:
        done = replay(player.url(), shard, stop_when=lambda _: clock.monotonic_ns() > late_ns)
    attained = attain(run_of(done, stopped_at_s=1.0).table, SLO.parse("ttft=20ms"))
    assert (0, 2, 0) == (attained.good, attained.total, attained.undecided)
