"""`--abort-on`: rules, and runs that end early by them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.replay.abort import HOPELESS, LEAST_REQUESTS, AbortRule, AbortWatch, HopelessWatch
from loadtest.replay.rowpacker import blank_row
from metrics.records import Outcome
from metrics.slo import SLO
from tests.replay.player import Play, Player, response_head
from tests.replay.replaying import Replayed, findings, replay, schedule
from tests.replay.streams import HEAD, answer_bytes

REFUSED = Play([(0, response_head(503, {"Content-Length": "0"}))])
ANSWER = Play([(0, answer_bytes([" a", " b"]))])


@pytest.mark.parametrize(
    ("text", "metric", "stat", "limit", "or_equal"),
    [
        ("failed > 20%", "failed", "", 0.2, False),
        ("failed>=0.5", "failed", "", 0.5, True),
        ("ttft.p90 > 5s", "ttft", "p90", 5.0, False),
        (" tpot.mean  >= 250ms ", "tpot", "mean", 0.25, True),
        ("e2e.max > 1.5m", "e2e", "max", 90.0, False),
        ("ttft_from_sent.p99 > 1s", "ttft_from_sent", "p99", 1.0, False),
    ],
)
def test_rules(text: str, metric: str, stat: str, limit: float, or_equal: bool) -> None:
    """A share of failures, or a statistic of a latency with its unit."""
    rule = AbortRule.parse(text)
    assert (metric, stat, or_equal) == (rule.metric, rule.stat, rule.or_equal)
    assert limit == pytest.approx(rule.limit)
    assert rule.broken_by(limit * 1.01)
    assert or_equal == rule.broken_by(rule.limit)
    assert not rule.broken_by(limit * 0.99)


@pytest.mark.parametrize(
    "text", ["", "failed", "ttft > 5s", "ttft.p90 > 5", "ttft.p90 < 5s", "failed > 3s", "ttft.p95 > 1s", "x.p90 > 1s"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    """No metric, no statistic, no unit, another direction: one sentence with examples."""
    with pytest.raises(UsageError) as raised:
        AbortRule.parse(text)
    assert "ttft.p90 > 5s" in raised.value.hint


def ended_early(done: Replayed, planned: int) -> None:
    """It stopped, with its reason, and the verdict of the run carries both."""
    assert done.progress.aborted
    assert 0 < done.progress.aborted_ns - done.t0_ns < 60e9
    assert len(done.rows) < planned
    found = findings(done, stopped_at_s=(done.progress.aborted_ns - done.t0_ns) / 1e9, stop_reason="why")
    assert "why" in found["partial"].message
    assert "schedule_not_offered" not in found


def test_failures_end_the_run() -> None:
    """A server that refuses everything is not asked for a minute."""
    with Player(lambda *_: REFUSED) as player:
        done = replay(player.url(), schedule([i * 0.02 for i in range(3000)]), abort_on="failed > 20%")
    ended_early(done, 3000)
    assert "requests failed" in done.progress.aborted


def test_a_server_that_goes_silent_is_noticed_by_the_waiting() -> None:
    """Requests without a first token count as soon as they have waited too long, so nothing needs to finish."""
    with Player(lambda *_: Play([(0, HEAD)], "stall")) as player:
        done = replay(player.url(), schedule([i * 0.01 for i in range(3000)]), abort_on="ttft.p90 > 200ms")
    ended_early(done, 3000)
    assert {Outcome.INTERRUPTED} == set(done.rows["outcome"].tolist())


@pytest.mark.parametrize("rule", ["failed > 20%", "ttft.p90 > 30s", "tpot.max > 30s", "e2e.mean > 30s"])
def test_a_good_run_is_left_alone(rule: str) -> None:
    """Nothing is beyond the limit: every row is sent."""
    with Player(lambda *_: ANSWER) as player:
        done = replay(player.url(), schedule(np.linspace(0, 1.3, 2 * LEAST_REQUESTS).tolist()), abort_on=rule)
    assert "" == done.progress.aborted
    assert ["ok"] * 2 * LEAST_REQUESTS == [done.outcome(row) for row in range(len(done.rows))]


def slo_of(text: str, planned: int, warmup: int = 0) -> HopelessWatch:
    mask = np.arange(planned) < warmup
    return HopelessWatch(SLO.parse(text), mask, lambda index: int(index * 1e9))


def test_a_run_whose_slo_is_out_of_reach_ends_early() -> None:
    """More than a tenth of 200 counted requests wait beyond 150 ms: the run is over long before its last row."""
    with Player(lambda *_: Play([(0, HEAD)], "stall")) as player:
        planned = schedule([i * 0.02 for i in range(400)])
        done = replay(player.url(), planned, abort_on=f"{HOPELESS}ttft=150ms,share=90%")
    ended_early(done, 400)
    assert "is out of reach" in done.progress.aborted


def test_a_run_that_may_still_pass_goes_to_its_end() -> None:
    """Every request is good: nothing is ended."""
    with Player(lambda *_: ANSWER) as player:
        done = replay(player.url(), schedule([i * 0.02 for i in range(60)]), abort_on=f"{HOPELESS}ttft=10s,share=90%")
    assert ("", 60) == (done.progress.aborted, len(done.rows))


def test_the_watch_needs_one_miss_more_than_may_be() -> None:
    """Of 20 counted requests 2 may miss; the warm-up's misses do not count."""
    watched = slo_of("ttft=1s,share=90%", 25, warmup=5)

    class Waiting:
        """A request without a first token."""

        def __init__(self, index: int) -> None:
            self.index = index
            self.answer, self.connection = self, None
            self.event_reads: list[int] = []

    def seen(*indexes: int) -> str:
        return watched.verdict(int(60e9), [Waiting(index) for index in indexes])  # type: ignore[misc]

    assert "" == seen(0, 1, 2, 3, 4, 5, 6)
    assert "3 requests missed, 2 may" in seen(7)


def row_of(first: float = 0.1, last: float = 0.3, **columns: float) -> dict[str, float]:
    """An answer of eleven tokens, due and sent at 0."""
    times = {"scheduled_s": 0.0, "sent_s": 0.0, "first_token_s": first, "last_token_s": last, "done_s": last}
    return blank_row() | {"outcome": Outcome.OK, "output_tokens": 11, "max_tokens": 11} | times | columns


def test_a_finished_request_is_judged_as_the_report_does() -> None:
    """A slow or failed one is a miss; what could not be measured may still decide, so it ends no run."""
    watched = slo_of("ttft=1s,tpot=100ms,share=90%", 10)
    for index, row in enumerate([row_of(), row_of(last=0.1), row_of(outcome=Outcome.TIMEOUT), row_of(last=5.0)]):
        watched.finished(index, row)
    assert "2 requests missed, 1 may" in watched.verdict(0, [])


def test_a_token_that_was_only_read_late_is_taken_back() -> None:
    """It had waited too long as far as anybody knew; the kernel's stamp says that it had come in time."""
    watched = slo_of("ttft=1s,share=90%", 5)
    waiting = SimpleNamespace(index=0, connection=None, answer=SimpleNamespace(event_reads=[]))
    assert "1 requests missed" in watched.verdict(int(2e9), [waiting])  # type: ignore[list-item]
    watched.finished(0, row_of(first=0.9))
    assert "" == watched.verdict(int(2e9), [])


def test_what_was_read_and_not_decoded_is_not_overdue() -> None:
    """The first token may be among it."""
    watched = slo_of("ttft=1s,share=90%", 5)
    waiting = SimpleNamespace(
        index=0, connection=SimpleNamespace(reads=[b"token"]), answer=SimpleNamespace(event_reads=[])
    )
    assert "" == watched.verdict(int(2e9), [waiting])  # type: ignore[list-item]


def test_a_stream_that_goes_on_for_too_long_is_known_by_its_wait() -> None:
    """A limit on the end needs no end; one on the first token is settled once it has come."""
    streaming = SimpleNamespace(index=0, sent_ns=1, connection=None, answer=SimpleNamespace(event_reads=[3]))
    for metric, broken in (("e2e", True), ("ttft", False)):
        watched = AbortWatch(f"{metric}.p50 > 1s", np.zeros(25, dtype=bool), lambda _: 0)
        assert broken == bool(watched.verdict(int(2e9), [streaming] * LEAST_REQUESTS))  # type: ignore[list-item]


def test_token_times_that_nobody_saw_are_in_no_percentile() -> None:
    """Tokens in one read would make the median zero."""
    watched = AbortWatch("tpot.p50 > 10ms", np.zeros(100, dtype=bool), lambda _: 0)
    for index in range(60):
        watched.finished(index, row_of() if index % 3 else row_of(last=0.1))
    assert "over 40 requests" in watched.verdict(0, [])
