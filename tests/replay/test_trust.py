"""The trust verdict, each finding provoked by a run whose server or client really misbehaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from loadtest import clock
from loadtest.replay import stamps
from tests.replay.player import LAST_CHUNK, Play, Player, Received, chunk, response_head
from tests.replay.replaying import Replayed, findings, replay, schedule
from tests.replay.streams import DONE, HEAD, answer_bytes, completion_event, usage_event

ANSWER = answer_bytes([" a", " b"])
EVENTS = [chunk(completion_event(f" {i}")) for i in range(12)]
TAIL = chunk(completion_event("", "length")) + chunk(usage_event(12)) + chunk(DONE) + LAST_CHUNK
WITHOUT_USAGE = HEAD + b"".join(EVENTS[:2]) + chunk(completion_event("", "length")) + chunk(DONE) + LAST_CHUNK
REFUSED = response_head(503, {"Content-Length": "0"})


def played(writes: list[tuple[float, bytes]], instants: list[float] | None = None, **options: object) -> Replayed:
    """A replay against a server that answers every request alike."""
    shard = schedule(instants or [0.0, 0.05, 0.1], max_tokens=2)
    with Player(lambda *_: Play(writes)) as player:
        return replay(player.url(), shard, keep_text=False, **options)  # type: ignore[arg-type]


def test_a_sound_run_has_no_findings() -> None:
    """Answers as asked, on time, in reads of their own: nothing but what a slow test machine may add."""
    first, rest = ANSWER[: len(HEAD + EVENTS[0])], ANSWER[len(HEAD + EVENTS[0]) :]
    assert set() == set(findings(played([(5, first), (30, rest)]))) - {"limited_by_client"}


@pytest.mark.parametrize(
    ("writes", "code", "level"),
    [
        ([(0, REFUSED)], "failures", "warning"),
        ([(0, answer_bytes([" a"]))], "short_outputs", "warning"),
        ([(0, WITHOUT_USAGE)], "estimated_tokens", "warning"),
        ([(0, HEAD), (150, b"".join(EVENTS) + TAIL)], "buffered_stream", "warning"),
        ([(0, ANSWER.replace(b'"prompt_tokens": 4', b'"prompt_tokens": 9'))], "prompt_count_mismatch", "warning"),
    ],
)
def test_what_the_server_did(writes: list[tuple[float, bytes]], code: str, level: str) -> None:
    """Failures, short answers, no usage, a buffering proxy, another tokenizer: said with counts, run not invalid."""
    found = findings(played(writes))[code]
    assert level == found.level
    if "count" in found.evidence:
        assert (3, 1.0) == (found.evidence["count"], found.evidence["share"])


def test_a_cold_start_is_told_from_a_slow_server() -> None:
    """Only the first answer is slow: a compilation was measured. All are slow: that is the server."""

    def first_slow(_received: Received, number: int) -> Play:
        return Play([(1500 if number == 0 else 0, ANSWER)])

    instants = (np.arange(30) * 0.02).tolist()
    with Player(first_slow) as player:
        cold = findings(replay(player.url(), schedule(instants, max_tokens=2)))
    assert cold["cold_start"].evidence["first_ttft_s"] >= 1.5  # type: ignore[operator]
    assert "cold_start" not in findings(played([(300, ANSWER)], instants))


def test_a_warm_prefix_cache_is_seen_in_usage() -> None:
    """A server that says what it took from its cache is believed; a shared start token is no finding."""

    def with_cached(cached: int) -> bytes:
        usage = b'data: {"choices":[],"usage":{"completion_tokens":2,"prompt_tokens":400,%s}}\n\n' % (
            b'"prompt_tokens_details":{"cached_tokens":%d}' % cached
        )
        return (
            HEAD + b"".join(EVENTS[:2]) + chunk(completion_event("", "stop")) + chunk(usage) + chunk(DONE) + LAST_CHUNK
        )

    def run(cached: int) -> Replayed:
        with Player(lambda *_: Play([(0, with_cached(cached))])) as player:
            return replay(player.url(), schedule([0.0, 0.05], prompt_tokens=400, max_tokens=2))

    assert 780 == findings(run(390))["prefix_cache"].evidence["hits"]
    assert "prefix_cache" not in findings(run(1))


def test_prompts_differ_within_a_run_and_between_runs() -> None:
    """So that no prefix cache is measured by accident: no two prompts are alike, and another salt is another text."""
    bodies: list[bytes] = []
    for salt in ("one", "two"):
        shard = dataclasses.replace(schedule([0.0] * 25, prompt_tokens=50), salt=salt)
        with Player(lambda *_: Play([(0, ANSWER)])) as player:
            replay(player.url(), shard)
            bodies += [received.body.partition(b"]")[0][:120] for received in player.received]
    assert 50 == len(set(bodies))


def busy(seconds: float) -> Callable[[str, float, int, str | None], None]:
    """A listener that burns time in the client's loop, like a locustfile that does."""
    return lambda name, *_: clock.sleep(seconds) if name == "request" else None


def test_a_busy_client_sends_late_and_says_so() -> None:
    """The server answered at once; the lateness is the client's, and the run is invalid for it."""
    done = played([(0, ANSWER)], (np.arange(20) * 0.01).tolist(), on_request=busy(0.05))
    found = findings(done)["limited_by_client"]
    assert "invalid" == found.level
    assert found.evidence["lag_p99_s"] > found.evidence["limit_s"]  # type: ignore[operator]


def test_a_client_that_reads_late_loses_token_times() -> None:
    """While the loop was held up, tokens piled up in one read: their times are not known well enough for TPOT."""

    def script(_received: Received, number: int) -> Play:
        if number:
            return Play([(0, ANSWER)])
        return Play([(0, HEAD), *((100 + 10.0 * i, event) for i, event in enumerate(EVENTS)), (300, TAIL)])

    with Player(script) as player:
        done = replay(player.url(), schedule([0.0, 0.08], max_tokens=12), keep_text=False, on_request=busy(0.15))
    found = findings(done, "ttft=10s,tpot=20ms")["limited_by_client"]
    assert ("invalid", True) == (found.level, "uncertain_share" in found.evidence)
    assert done.rows["coalesced_reads"][0] >= 1


def test_without_kernel_stamps_the_verdict_stands_on_the_loops_own_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not stamp, every read says so and the share is reported."""
    monkeypatch.setattr(stamps, "enable", lambda _sock: False)
    done = played([(0, HEAD), (20, ANSWER[len(HEAD) :])])
    assert [0, 0, 0] == done.rows["kernel_reads"].tolist()


@pytest.mark.parametrize(
    ("options", "code"),
    [({"max_in_flight": 1}, "not_open_loop"), ({"lead_s": -3.0, "max_lateness_s": 1.0}, "schedule_not_offered")],
)
def test_what_the_client_was_told_to_do(options: dict[str, object], code: str) -> None:
    """A cap breaks the open loop (a warning); rows skipped for lateness were not offered (invalid)."""
    instants = [0.0, 0.0, 0.0] if "max_in_flight" in options else [0.0, 0.0, 3.1]
    found = findings(played([(30, ANSWER)], instants, **options))[code]
    assert {"not_open_loop": "warning", "schedule_not_offered": "invalid"}[code] == found.level


def test_an_answer_in_one_piece_cannot_meet_a_first_token_target() -> None:
    """A server that ignores the wish for a stream."""
    body = b'{"choices":[{"text":"a b","finish_reason":"length"}],"usage":{"completion_tokens":2,"prompt_tokens":4}}'
    found = findings(played([(0, response_head(200, {"Content-Length": str(len(body))}) + body)]))
    assert "invalid" == found["ttft_not_measurable"].level
