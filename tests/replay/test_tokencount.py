"""The server's count against what its events showed, and what comes after the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.replay.dialects import Api
from metrics.records import Flag, Outcome
from tests.replay.player import LAST_CHUNK, Play, Player, chunk, response_head
from tests.replay.replaying import findings, replay, schedule
from tests.replay.streams import DONE, HEAD, chat_event, completion_event, cuts_of
from tests.replay.test_answer import answer_of
from tests.replay.test_strangers import END, ROLE, event, read


def usage(completion: int, **more: Any) -> bytes:
    return event(choices=[], usage={"prompt_tokens": 4, "completion_tokens": completion, **more})


def contents(texts: list[str]) -> list[bytes]:
    return [chat_event({"content": text}) for text in texts]


def call(arguments: str) -> bytes:
    return chat_event({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": arguments}}]})


def ids(text: str, count: int) -> bytes:
    return event(choices=[{"index": 0, "text": text, "token_ids": list(range(count)), "finish_reason": None}])


@pytest.mark.parametrize("keep_text", [True, False])
@pytest.mark.parametrize(
    ("events", "said", "hidden"),
    [
        (contents([f" a{i}" for i in range(10)]), 50, 40),  # 30 bytes of text
        (contents([" tok"] * 30), 530, 500),
        (contents(["a" * 40] * 10), 50, 0),  # several tokens in an event
        (contents(["abcd"] * 10), 40, 0),  # of one byte each
        (contents(["漢字"] * 5), 30, 0),  # a token may be a third of a character
        (contents(["🙂"] * 5), 20, 0),
        (contents([" " * 40] * 2), 2, 0),  # one token of many spaces
        (contents(["7"] * 20), 21, 0),  # with its end of sequence
        ([*contents(["a"] * 5), *contents([""] * 40)], 45, 0),  # special tokens have no text
        ([call('{"a":1}')] * 4, 60, 0),
        ([call("")], 200, 199),
        ([ids("a", 4)] * 5, 20, 0),  # known to be there
        ([ids("a" * 100, 4)] * 5, 200, 195),  # known not to be, however long the text
        ([ids("", 3), ids("a", 1)], 4, 0),
        ([], 50, 50),
    ],
)
def test_more_tokens_than_the_text_can_hold(events: list[bytes], said: int, hidden: int, keep_text: bool) -> None:
    """They count as output, in no TPOT divisor, and are flagged; both ways of decoding agree."""
    answer = read([ROLE, *events, END, usage(said), DONE], keep_text=keep_text)
    assert (said, hidden) == (answer.output_tokens, answer.hidden_tokens)
    assert (hidden > 0) == (Flag.USAGE_OVER_TEXT in answer.flags(said)) == (Flag.HIDDEN_TOKENS in answer.flags(said))


@given(st.data(), st.lists(st.text("ab c", min_size=1, max_size=9), min_size=1, max_size=20))
def test_the_quick_way_knows_how_much_text_there_was(data: st.DataObject, texts: list[str]) -> None:
    """In any cut it finds the bytes that the careful way counts, give or take one an event."""
    size = sum(map(len, texts))
    events = [*map(completion_event, texts), completion_event("", "length"), DONE]
    raw = response_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    raw += b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in events)
    answer = answer_of(data.draw(cuts_of(raw)))
    found = answer.count.text_bytes
    assert size <= found + len(texts)
    assert found <= size + len(texts)


@pytest.mark.parametrize(
    ("events", "counts", "output", "hidden"),
    [
        (contents(["a", "b"]), {"completion_tokens": 12, "reasoning_tokens": 10}, 12, 10),
        (contents(["a", "b"]), {"completion_tokens": 2, "reasoning_tokens": 10, "total_tokens": 16}, 12, 10),
        (
            [chat_event({"reasoning": " sum"}), *contents(["a", "b"])],
            {"completion_tokens": 303, "reasoning_tokens": 300},
            303,
            299,
        ),
        (
            [chat_event({"reasoning": " a b c d"}), *contents(["a"])],
            {"completion_tokens": 9, "reasoning_tokens": 8},
            9,
            0,
        ),
        (contents(["a", "b"]), {"completion_tokens": 9, "rejected_prediction_tokens": 7}, 9, 7),
    ],
)
def test_tokens_that_were_never_streamed(events: list[bytes], counts: dict[str, int], output: int, hidden: int) -> None:
    """Hidden reasoning inside or beside, all but a summary of it, rejected predictions: named, so no contradiction."""
    tail = event(choices=[], usage={"prompt_tokens": 4, **counts})
    answer = read([ROLE, *events, END, tail, DONE])
    assert (output, hidden) == (answer.output_tokens, answer.hidden_tokens)
    assert not (Flag.USAGE_OVER_TEXT | Flag.USAGE_CONTRADICTION) & answer.flags(output)


def told(text: str, **more: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": None, **more}])


@pytest.mark.parametrize(
    ("first", "tail", "tokens"),
    [
        (event(choices=[{"delta": {"content": "a b"}}], usage={"completion_tokens": 3}), usage(8), 3),
        (told("a b", token_ids=[5, 6, 7]), usage(8), 3),
        (told("a b", logprobs={"content": [{"token": "a"}, {"token": " "}, {"token": "b"}]}), usage(8), 3),
        (event(choices=[{"text": "a b", "logprobs": {"tokens": ["a", " ", "b"]}}]), usage(8), 3),
        (told("a b", token_ids=[5, 6, 7], logprobs=None), usage(8), 3),
        (event(choices=[{"delta": {"content": [{"text": "a"}]}, "token_ids": [1, 2, 3]}]), usage(8), 3),  # untyped
        (told("a", token_ids=[5]), usage(8), 1),
        (told("a", logprobs=None), usage(8), 0),  # nothing tells
        (
            event(choices=[{"delta": {"content": "a"}}], usage={"completion_tokens": 31}),
            usage(38, completion_tokens_details={"reasoning_tokens": 30}),
            1,
        ),
    ],
)
def test_how_many_tokens_the_first_event_carries(first: bytes, tail: bytes, tokens: int) -> None:
    """By token ids, logprobs, or the count said in that event less what was hidden before it."""
    answer = read([ROLE, first, *contents([" c", " d", " e", " f", " g"]), END, tail, DONE])
    assert tokens == answer.count.first_event
    assert (tokens > 1) == (Flag.FIRST_EVENT_TOKENS in answer.flags(8))


LATE = [
    chat_event({"content": "late"}),
    usage(99),
    event(error={"message": "late"}),
    chat_event({}, "length"),
    b": ping\n\n",
    b"event: error\ndata: late\n\n",
    DONE,
]


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("together", [True, False])
def test_nothing_after_done_moves_a_time_or_a_count(late: bytes, together: bool) -> None:
    """In the read of [DONE] or in one of its own: no token, no usage, no error, no later end."""
    events = [ROLE, *contents([" a", " b", " c"]), END, usage(3)]
    good = read([*events, DONE])
    more = read([*events, DONE + late] if together else [*events, DONE, late, *contents([" x", " y"])])
    for name in ("event_reads", "output_tokens", "finish_reason", "last_body_read", "data_events", "error"):
        assert getattr(good, name) == getattr(more, name), name
    assert (Outcome.OK, good.flags(3)) == (more.outcome(), more.flags(3))


@pytest.mark.parametrize(
    ("api", "end", "late"),
    [
        ("llamacpp", {"content": "", "stop": True, "tokens_predicted": 2}, {"content": " x", "tokens_predicted": 9}),
        ("ollama", {"response": "", "done": True, "eval_count": 2}, {"response": " x", "eval_count": 9}),
    ],
)
def test_nothing_after_a_last_event_counts(api: Api, end: dict[str, Any], late: dict[str, Any]) -> None:
    """`stop` of llama.cpp and `done` of Ollama are ends as [DONE] is."""
    key = next(iter(late))

    def framed(document: dict[str, Any]) -> bytes:
        return json.dumps(document).encode() + b"\n" if api == "ollama" else event(**document)

    answer = read([framed({key: " a"}), framed({key: " b"}), framed(end), framed(late)], api=api)
    assert ([1, 2], 2, 3) == (answer.event_reads.tolist(), answer.output_tokens, answer.last_body_read)


def test_pings_after_done_hold_no_request_open() -> None:
    """A server that never ends its body and pings for three seconds: the answer ended with [DONE]."""
    body = b"".join([ROLE, *contents([" a", " b"]), END, usage(2), DONE])
    writes: list[tuple[float, bytes]] = [
        (0, HEAD + chunk(body)),
        *((50.0 * i, chunk(b": ping\n\n")) for i in range(60)),
    ]
    with Player(lambda *_: Play(writes)) as player:
        done = replay(player.url("/v1/chat/completions"), schedule([0.0], max_tokens=2), idle_timeout_s=0.2)
        assert len(player.received[0].writes) < len(writes)
    row = done.rows[0]
    assert ("ok", row["last_token_s"]) == (done.outcome(0), row["done_s"])


@pytest.mark.parametrize("lead", [b"\n\n\r\n \t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\n\xef\xbb\xbf\n", b""])
@given(data=st.data())
def test_white_space_and_a_mark_before_a_body_tell_nothing(lead: bytes, data: st.DataObject) -> None:
    """Cut anywhere: one JSON document is one, and a stream of events is one."""
    choice = {"message": {"content": "hi you"}, "finish_reason": "stop"}
    body = lead + json.dumps({"choices": [choice], "usage": {"completion_tokens": 2}}).encode()
    raw = response_head(200, {"Content-Length": str(len(body))}) + body
    whole = answer_of(data.draw(cuts_of(raw)))
    assert (Outcome.OK, 2, False) == (whole.outcome(), whole.output_tokens, whole.streamed)
    events = lead + ROLE + b"".join(contents(["a"])) + DONE
    raw = response_head(200, {"Content-Length": str(len(events))}) + events
    streamed = answer_of(data.draw(cuts_of(raw)))
    assert (Outcome.OK, 1, True) == (streamed.outcome(), len(streamed.event_reads), streamed.streamed)


def test_a_run_says_how_far_tpot_is_off() -> None:
    """From the wire through the journal: 4 of 8 tokens in the first event make TPOT 3/7 too low."""
    events = [told(" a b c d", token_ids=[1, 2, 3, 4]), *contents([" e", " f", " g", " h"]), END, usage(8), DONE]
    body = HEAD + b"".join(map(chunk, events)) + LAST_CHUNK
    with Player(lambda *_: Play([(0, body)])) as player:
        done = replay(player.url(), schedule([0.0], max_tokens=8), api="chat")
    assert [4, 1, 1, 1, 1] == done.journal.events.tokens.tolist()
    assert pytest.approx(3 / 7) == findings(done)["first_event_tokens"].evidence["too_low_max"]
