"""What other load generators were seen to get wrong; each of these was measured on a released tool."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import numpy as np

from loadtest import clock
from metrics.latency import itl_s, second_token_gap_s, tpot_s, ttft_from_sent_s, ttft_s
from metrics.summary import summarise
from tests.replay.player import LAST_CHUNK, Play, Player, Received, chunk
from tests.replay.replaying import Replayed, replay, run_of, schedule
from tests.replay.streams import DONE, HEAD, answer_bytes, chat_event, completion_event, usage_event
from tests.replay.test_sender import make_certificate

SLACK_S = 0.015
END = chunk(completion_event("", "length"))


def stream(writes: list[tuple[float, bytes]], *, max_tokens: int = 16, **options: object) -> tuple[Replayed, Received]:
    """One request, and what the server really did."""
    with Player(lambda *_: Play(writes)) as player:
        done = replay(player.url(), schedule([0.0], max_tokens=max_tokens), **options)  # type: ignore[arg-type]
        return done, player.received[0]


def true_gap_s(received: Received, first: int, last: int) -> float:
    """Between two of the server's writes."""
    return (received.writes[last][2] - received.writes[first][2]) / 1e9


def test_tpot_leaves_the_first_token_out() -> None:
    """200 ms to the first token, ten tokens 10 ms apart: TPOT is 10 ms, not 29 (LLMPerf, GuideLLM)."""
    writes = [(0.0, HEAD), *((200 + 10.0 * i, chunk(completion_event(f" {i}"))) for i in range(10))]
    tail = END + chunk(usage_event(10)) + chunk(DONE) + LAST_CHUNK
    done, received = stream([*writes, (290, tail)])
    assert abs(true_gap_s(received, 1, 10) / 9 - float(tpot_s(done.rows)[0])) < SLACK_S / 9


def test_the_servers_count_is_believed_not_a_tokenizer_of_ours() -> None:
    """Two events with five words stand for seven tokens because the server says so (AIPerf, inference-perf)."""
    tail = END + chunk(usage_event(7)) + chunk(DONE) + LAST_CHUNK
    events = [chunk(completion_event(" unbelievably long words")), chunk(completion_event(" two more"))]
    done, received = stream([(0, HEAD), (20, events[0]), (80, events[1]), (80, tail)])
    assert (7, 2) == (done.rows["output_tokens"][0], done.rows["token_events"][0])
    assert abs(true_gap_s(received, 1, 2) / 6 - float(tpot_s(done.rows)[0])) < SLACK_S / 6


def test_a_server_that_stops_early_gets_no_credit_for_what_was_asked() -> None:
    """Asked for 64, got 4: 4 are counted, with usage and without, and short outputs are flagged (SGLang)."""
    for usage in (chunk(usage_event(4)), b""):
        body = b"".join(chunk(completion_event(f" {i}")) for i in range(4))
        done, _ = stream([(0, HEAD + body + END + usage + chunk(DONE) + LAST_CHUNK)], max_tokens=64)
        summary = summarise(run_of(done))
        assert (4, 64) == (summary.tokens.output_got, summary.tokens.output_asked)
        assert "short_output" in done.flags(0)


def test_a_cap_is_kept_at_every_instant_and_every_row_is_sent_once() -> None:
    """Never more than three in flight (vLLM printed 1,409 of 1,000), never more requests than planned (genai-bench)."""
    with Player(lambda *_: Play([(40, answer_bytes([" a"]))])) as player:
        done = replay(player.url(), schedule([0.0] * 12), max_in_flight=3)
    starts, ends = done.rows["sent_s"], done.rows["done_s"]
    assert 3 == max(int(((starts <= start) & (ends > start)).sum()) for start in starts)
    assert 12 == len(player.received) == len(done.rows)


def test_tokens_are_seen_one_by_one_not_by_the_kilobyte() -> None:
    """Short events that fill no buffer are stamped as they come (Locust's iter_lines waits for 1,024 bytes)."""
    writes = [(0.0, HEAD), *((50 + 40.0 * i, chunk(b'data: {"choices":[{"text":"a"}]}\n\n')) for i in range(5))]
    writes.append((230, END + chunk(DONE) + LAST_CHUNK))
    for reactor in ("epoll", "hub"):
        done, received = stream(writes, reactor=reactor)
        for (_, before, after), event_ns in zip(received.writes[1:6], done.event_ns(0), strict=True):
            assert before - SLACK_S * 1e9 <= event_ns <= after + SLACK_S * 1e9


def test_an_empty_role_chunk_is_not_the_first_token() -> None:
    """The role comes at once, the first token after 300 ms: TTFT is 300 ms, no gap is (vLLM reported 4 ms)."""
    role = chunk(chat_event({"role": "assistant", "content": ""}))
    tokens = [(300 + 10.0 * i, chunk(chat_event({"content": f" {i}"}))) for i in range(4)]
    tail = (340, chunk(chat_event({}, "stop")) + chunk(usage_event(4)) + chunk(DONE) + LAST_CHUNK)
    done, received = stream([(0.0, HEAD + role), *tokens, tail], api="chat")
    sent_ns = received.read_ns
    assert abs((received.writes[1][2] - sent_ns) / 1e9 - float(ttft_from_sent_s(done.rows)[0])) < SLACK_S
    assert 4 == done.rows["token_events"][0]


def test_several_tokens_per_event_give_two_figures() -> None:
    """Four tokens an event, 40 ms apart: the gap is 40 ms, TPOT a quarter of it, and both are told (nobody else)."""
    events = [chunk(completion_event(" a b c d")) for _ in range(5)]
    tail = END + chunk(usage_event(20)) + chunk(DONE) + LAST_CHUNK
    done, received = stream([(0.0, HEAD), *((40.0 * (i + 1), event) for i, event in enumerate(events)), (200, tail)])
    summary = summarise(run_of(done))
    assert summary.itl_s is not None
    assert summary.tpot_s is not None
    true_gap = true_gap_s(received, 1, 5) / 4
    assert abs(true_gap - summary.itl_s.mean) < SLACK_S
    assert abs(true_gap * 4 / 19 - summary.tpot_s.mean) < SLACK_S
    assert (20, 5) == (summary.tokens.output_got, summary.tokens.events)


def test_the_hand_off_gap_is_told_apart_from_the_steady_gap() -> None:
    """A disaggregated server's stall after the first token is the second-token gap, which TPOT's mean would hide."""
    instants = [20.0, 320.0, *(320 + 10.0 * i for i in range(1, 8))]
    tail = END + chunk(usage_event(9)) + chunk(DONE) + LAST_CHUNK
    writes = [(0.0, HEAD), *((at, chunk(completion_event(" a"))) for at in instants), (390, tail)]
    done, received = stream(writes)
    events = done.journal.events
    assert abs(true_gap_s(received, 1, 2) - float(second_token_gap_s(events)[0])) < SLACK_S
    assert float(np.median(itl_s(events, np.array([True])))) < 0.15


def test_latency_runs_from_the_schedule_not_from_the_send() -> None:
    """A row that waited in the client has waited: its TTFT holds the wait, and the wire's figure stands beside it."""
    with Player(lambda *_: Play([(100, answer_bytes([" a"]))])) as player:
        done = replay(player.url(), schedule([0.0, 0.0]), max_in_flight=1)
    assert float(ttft_s(done.rows)[1]) >= 0.2
    assert float(ttft_from_sent_s(done.rows)[1]) < float(ttft_s(done.rows)[1]) - 0.09


def test_connection_set_up_is_no_part_of_the_wires_first_token() -> None:
    """A server that takes 60 ms to let a client in: recorded on its own, once per connection, and reuse is counted."""

    class SlowDoor(ssl.SSLContext):
        def wrap_socket(self, *args: object, **options: object) -> ssl.SSLSocket:
            clock.sleep(0.06)
            return super().wrap_socket(*args, **options)  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as folder:
        server = SlowDoor(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(make_certificate(Path(folder)))
    with Player(lambda *_: Play([(0, answer_bytes([" a"]))]), tls=server) as player:
        done = replay(player.url(), schedule([0.0, 1.3, 1.5]), lead_s=0.0, verify=False)
    assert ["ok"] * 3 == [done.outcome(row) for row in range(3)]
    connect_s = done.rows["connect_s"]
    assert connect_s[0] >= 0.06
    assert float(ttft_s(done.rows)[0]) >= 0.06
    assert float(ttft_from_sent_s(done.rows)[0]) < float(ttft_s(done.rows)[0]) - 0.05
    summary = summarise(run_of(done))
    assert summary.connections.connect_s is not None
    assert int(np.isfinite(connect_s).sum()) == summary.connections.connect_s.n
    assert 3 == summary.connections.reused + int(np.isfinite(connect_s).sum())
