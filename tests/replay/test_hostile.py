"""What a server may send without costing more than its own row: 39 ways, each beside answers that are well."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from loadtest.replay.coding import ALWAYS_ALLOWED_BYTES
from loadtest.replay.sse import MAX_EVENT_BYTES
from tests.replay.player import LAST_CHUNK, Play, Player, Received, chunk, response_head
from tests.replay.replaying import replay, schedule
from tests.replay.streams import DONE, HEAD, chat_event, completion_event, usage_event

END = chunk(usage_event(1)) + chunk(DONE) + LAST_CHUNK
GOOD = HEAD + chunk(completion_event(" a", "length")) + END
GOOD_CHAT = HEAD + chunk(chat_event({"content": " a"}, "length")) + END
HALF_SURROGATE = b'{"error":"\\ud83d"}'


def event(document: bytes) -> bytes:
    return HEAD + chunk(b"data: " + document + b"\n\n") + LAST_CHUNK


def head(**headers: str) -> bytes:
    return response_head(200, {name.replace("_", "-"): value for name, value in headers.items()})


def choice(inner: bytes) -> bytes:
    return event(b'{"choices":[{"index":0,' + inner + b"}]}")


DEEP = b"[" * 5000 + b"]" * 5000
ANSWERS: dict[str, bytes] = {
    "length of 5,000 digits": head(Content_Length="9" * 5000) + b"x",
    "length below zero": head(Content_Length="-1") + b"x",
    "retry-after of 5,000 digits": response_head(429, {"Retry-After": "9" * 5000, "Content-Length": "0"}),
    "chunk size beyond all memory": HEAD + b"f" * 16 + b"\r\nx",
    "chunk size that is none": HEAD + b"zz\r\nx\r\n",
    "endless status line": b"HTTP/1.1 200 " + b"x" * 100_000,
    "endless header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    "no HTTP at all": b"\x00\xff" * 500,
    "status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "redirect to nowhere": response_head(307, {"Location": "http://a..b/", "Content-Length": "0"}),
    "redirect to a bad port": response_head(308, {"Location": "http://h:99999999/", "Content-Length": "0"}),
    "redirect to an open bracket": response_head(307, {"Location": "http://[/", "Content-Length": "0"}),
    "error of NaN": choice(b'"error":NaN'),
    "error of infinity": choice(b'"error":Infinity'),
    "error of half a character": choice(b'"error":"\\ud800"'),
    "half a character": event(HALF_SURROGATE),
    "986 deep": event(b'{"choices":[{"delta":' + b'{"a":' * 986 + b"1" + b"}" * 986 + b"}]}"),
    "5,000 deep": event(DEEP),
    "5,000 deep in a choice": choice(b'"text":' + DEEP),
    "a deep body": head(Content_Type="application/json", Content_Length=str(len(DEEP))) + DEEP,
    "usage of 5,000 digits": event(b'{"choices":[],"usage":{"completion_tokens":' + b"9" * 5000 + b"}}"),
    "usage of 2^63": event(b'{"choices":[],"usage":{"completion_tokens":9223372036854775808,"prompt_tokens":-1}}'),
    "usage below zero": event(b'{"choices":[],"usage":{"completion_tokens":-5,"prompt_tokens":1e400}}'),
    "index of 2^70": event(b'{"choices":[{"index":1180591620717411303424,"text":"a","finish_reason":"stop"}]}'),
    "choices of a number": event(b'{"choices":7}'),
    "choices of choices": event(b'{"choices":[[[]]]}'),
    "names of all types": event(b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":[],"arguments":3}}]}}]}'),
    "a null document": event(b"null"),
    "times of 1e308": event(b'{"choices":[],"timings":{"prompt_ms":1e308,"predicted_ms":1e308}}'),
    "a bomb": head(Content_Encoding="gzip", Content_Type="text/event-stream", Connection="close")
    + gzip.compress(b"data: " + b"x" * (8 * ALWAYS_ALLOWED_BYTES)),
    "a bomb in a bomb": head(Content_Encoding="gzip", Connection="close")
    + gzip.compress(gzip.compress(b"\0" * (8 * ALWAYS_ALLOWED_BYTES))),
    "a broken stream of deflate": head(Content_Encoding="deflate", Connection="close")
    + zlib.compress(b"x")[:-3]
    + b"!!",
    "an event beyond all": head(Connection="close") + b"data: " + b"x" * (MAX_EVENT_BYTES + 1000),
    "lines without end": head(Connection="close") + b"data:\n" * (MAX_EVENT_BYTES // 4),
    "text that is no text": event(b'{"choices":[{"index":0,"text":"\xff\xfe"}]}'),
    "a body of another kind": head(Content_Type="application/json", Content_Length="2") + b"[]",
    "an error page in bytes": response_head(500, {"Content-Length": "4"}) + b"\xff\xfe\x00\x01",
    "strings in every place": choice(b'"finish_reason":[1],"logprobs":"x","delta":"text"'),
    "unknown places that are deep": choice(
        b'"delta":{"reasoning_details":' + b'[{"x":' * 400 + b'"y"' + b"}]" * 400 + b"}"
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_malformed_answer_costs_its_own_row(name: str, api: str) -> None:
    """The run ends, within its limits, and the answers before and after are what they are without it."""
    good = GOOD if api == "completions" else GOOD_CHAT

    def script(_: Received, number: int) -> Play:
        return Play([(0, ANSWERS[name])], "close") if number == 1 else Play([(0, good)])

    with Player(script) as player:
        done = replay(
            player.url(),
            schedule([0.0, 0.05, 0.1], max_tokens=1),
            api=api,
            prompt_form="text",
            drain_limit_s=0.5,
            limit_s=30,
        )
    outcomes = [done.outcome(row) for row in range(3)]
    assert 3 == len(outcomes)
    assert outcomes.count("ok") >= 2
    json.dumps([done.error(row) for row in range(3)])


@pytest.mark.parametrize("reactor", ["epoll", "hub"])
def test_values_that_no_row_holds_lose_the_answer_and_not_the_row(
    reactor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever recording trips over, the row is there, as a failure that says why."""
    from loadtest.replay import recorder

    pack = recorder.pack

    def picky(row: dict[str, object]) -> bytes:
        if row["outcome"] == 0 and row["request_id"] == 1:
            raise OverflowError("too large for the column")
        return pack(row)  # type: ignore[arg-type]

    monkeypatch.setattr(recorder, "pack", picky)
    with Player(lambda *_: Play([(0, GOOD)])) as player:
        done = replay(player.url(), schedule([0.0, 0.02, 0.04], max_tokens=1), reactor=reactor)
    assert ["ok", "connection_lost", "ok"] == [done.outcome(row) for row in range(3)]
    assert "too large" in done.error(1)
