"""From reads to answers: any cut and both ways of decoding agree, and garbage never hurts."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.replay.answer import Answer
from loadtest.replay.stamps import NO_STAMP
from loadtest.replay.wire import FramingError
from metrics.records import Flag, Outcome
from tests.replay.player import LAST_CHUNK, chunk, response_head
from tests.replay.streams import DONE, HEAD, answer_bytes, chat_event, completion_event, cuts_of, usage_event

_TOKEN = st.one_of(
    st.sampled_from([" the", "ing", "\n", '"', "\\", " é", "漢", "🙂", "\u2028", "\t{}", "data:", '"text":"x"']),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12),
)


def answer_of(reads: list[bytes], *, keep_text: bool = False) -> Answer:
    answer = Answer(keep_text=keep_text)
    answer.feed([(number + 1, NO_STAMP, read) for number, read in enumerate(reads)])
    return answer


@given(st.data(), st.lists(_TOKEN, min_size=1, max_size=30))
def test_any_cut_gives_the_same_answer(data: st.DataObject, texts: list[str]) -> None:
    """However reads are cut, the quick and the careful way count the same tokens and reach the same outcome."""
    reads = data.draw(cuts_of(answer_bytes(texts)))
    quick, careful = answer_of(reads), answer_of(reads, keep_text=True)
    assert "".join(texts) == careful.text
    for answer in (quick, careful):
        assert len(texts) == len(answer.event_reads) == answer.usage_tokens
        assert (Outcome.OK, True, "length") == (answer.outcome(), answer.complete, answer.finish_reason)
        assert len(texts) + 2 == answer.data_events
    assert quick.event_reads == careful.event_reads
    assert quick.coalesced_reads == careful.coalesced_reads


@given(st.lists(_TOKEN, min_size=1, max_size=30))
def test_one_read_per_event_stamps_each_token_with_its_own_read(texts: list[str]) -> None:
    """With an event per read, token i is that of read i + 1 (the head is read 0)."""
    quick = answer_of([HEAD, *(chunk(completion_event(text)) for text in texts)])
    assert list(range(1, len(texts) + 1)) == quick.event_reads.tolist()
    assert 0 == quick.coalesced_reads


def test_plain_tokens_take_the_quick_way() -> None:
    """The quick way is really taken: only the first event of a plain stream is parsed."""
    answer = answer_of([HEAD, *(chunk(completion_event(f" word{i}")) for i in range(50))])
    assert (50, 1) == (len(answer.event_reads), answer.slow_events)
    chat = answer_of([HEAD, *(chunk(chat_event({"content": f" word{i}"})) for i in range(50))])
    assert (50, 1) == (len(chat.event_reads), chat.slow_events)


@pytest.mark.parametrize(
    "odd",
    [
        completion_event(""),
        completion_event(" end", "stop"),
        usage_event(3),
        DONE,
        b": ping\n\n",
        b'data: {"error":{"message":"engine died"}}\n\n',
        completion_event(" x", usage={"completion_tokens": 9}),
    ],
)
def test_what_is_not_a_plain_token_is_read_with_care(odd: bytes) -> None:
    """An event that looks like the others but says something else is never taken for a token."""
    plain = [chunk(completion_event(" one")), chunk(completion_event(" two"))]
    quick, careful = (answer_of([HEAD, *plain, chunk(odd)], keep_text=k) for k in (False, True))
    for name in ("event_reads", "finish_reason", "usage_tokens", "error", "done_marker", "data_events"):
        assert getattr(careful, name) == getattr(quick, name), name


@given(st.data(), st.binary(max_size=300))
def test_arbitrary_bytes_never_crash(data: st.DataObject, noise: bytes) -> None:
    """Noise after a good start gives an answer or a FramingError."""
    raw = HEAD + chunk(completion_event(" a")) + (chunk(noise) if data.draw(st.booleans()) and noise else noise)
    answer = Answer()
    try:
        answer.feed([(1, NO_STAMP, read) for read in data.draw(cuts_of(raw))])
        answer.close(2)
    except FramingError:
        return
    assert answer.outcome() in Outcome
    assert isinstance(answer.error_message(), str)


def test_many_events_in_few_reads_are_buffered() -> None:
    """At least 8 token events of which half share a read: the stream was buffered on its way."""
    events = [chunk(completion_event(f" {i}")) for i in range(8)]
    buffered = answer_of([HEAD, b"".join(events[:4]), *events[4:]])
    assert Flag.BUFFERED in buffered.flags(8)
    single = answer_of([HEAD, b"".join(events[:3]), *events[3:]])
    assert Flag.BUFFERED not in single.flags(8)
    assert Flag.COALESCED in single.flags(8)


def test_hidden_reasoning_is_counted_but_not_streamed() -> None:
    """Reasoning tokens in usage that no event showed are hidden tokens."""
    usage = {"prompt_tokens": 1, "completion_tokens": 12, "completion_tokens_details": {"reasoning_tokens": 10}}
    tail = b"data: " + b'{"choices":[],"usage":%s}\n\n' % str(usage).replace("'", '"').encode()
    reads = [HEAD, chunk(chat_event({"content": "a"})), chunk(chat_event({"content": "b"}, "stop")), chunk(tail)]
    hidden = answer_of(reads)
    assert (12, 10) == (hidden.output_tokens, hidden.hidden_tokens)
    shown = answer_of([HEAD, chunk(chat_event({"reasoning": "hm"})), *reads[1:]])
    assert 0 == shown.hidden_tokens


def test_an_answer_that_is_not_streamed_has_no_token_times() -> None:
    """One JSON body: counts are known, times are not."""
    body = b'{"choices":[{"message":{"content":"hi there"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}'
    answer = answer_of([response_head(200, {"Content-Length": str(len(body))}) + body])
    assert (Outcome.OK, 2, 0) == (answer.outcome(), answer.output_tokens, len(answer.event_reads))
    assert Flag.NOT_STREAMED in answer.flags(2)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "too long", "code": 400}}', "too long"),
        (b'{"error": "overloaded"}', "overloaded"),
        (b'{"object": "error", "message": "bad"}', "bad"),
        (b'{"detail": "Not authenticated"}', "Not authenticated"),
        (b'{"success": false, "errors": [{"message": "no capacity", "code": 3040}]}', "no capacity"),
        (b'{"message": "no route", "status": 503}', "no route"),
        (b'{"error": "\\u001b[2J gone"}', "\ufffd[2J gone"),
        (b"<html>502 Bad Gateway</html>", "<html>502 Bad Gateway</html>"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_error_bodies_of_all_shapes_give_their_message(body: bytes, message: str) -> None:
    """The text of an error status is found in whatever shape it comes."""
    answer = answer_of([response_head(503, {"Content-Length": str(len(body))}) + body])
    assert (Outcome.HTTP_ERROR, message) == (answer.outcome(), answer.error_message())


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (b'data: {"status":"loading","message":"warming up"}\n\n', Outcome.OK),
        (b'data: {"errors":[]}\n\n', Outcome.OK),
        (b'data: {"message":"out of memory","code":500}\n\n', Outcome.IN_BAND_ERROR),
        (b'data: {"choices":[{"index":0,"error":{"message":"cut"},"finish_reason":null}]}\n\n', Outcome.IN_BAND_ERROR),
        (b'data: {"choices":[{"index":0,"text":"","finish_reason":{"type":"abort"}}]}\n\n', Outcome.IN_BAND_ERROR),
        (b'data: {"choices":[{"index":0,"text":"","finish_reason":"content_filter"}]}\n\n', Outcome.OK),
    ],
)
def test_a_report_is_no_error_and_an_answer_given_up_is_one(event: bytes, outcome: Outcome) -> None:
    """Among tokens, before [DONE]: progress is harmless, errors are known in every shape."""
    answer = answer_of([HEAD, chunk(completion_event(" a")), chunk(event), chunk(DONE)])
    assert (outcome, 1) == (answer.outcome(), len(answer.event_reads))


def test_fields_of_unexpected_types_do_not_cost_tokens() -> None:
    """A list as content, an object as tool arguments, a float as count: read for what they are."""
    reads = [
        HEAD,
        chunk(chat_event({"content": [{"type": "text", "text": "hi"}]})),
        chunk(chat_event({"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, "tool_calls")),
        chunk(b'data: {"choices":[],"usage":{"completion_tokens":2.0}}\n\n'),
        chunk(DONE) + LAST_CHUNK,
    ]
    answer = answer_of(reads, keep_text=True)
    assert (2, 2, "hi", 0) == (len(answer.event_reads), answer.usage_tokens, answer.text, answer.malformed_events)


def test_kernel_stamps_are_kept_beside_user_stamps() -> None:
    """Each read keeps 16 bytes of kernel stamp, zeros where none came."""
    answer = Answer()
    stamp = struct.pack("@qq", 7, 8)
    answer.feed([(1, stamp, HEAD), (2, NO_STAMP, chunk(completion_event(" a")))])
    assert [[7, 8], [0, 0]] == np.frombuffer(bytes(answer.kernel), dtype=np.int64).reshape(-1, 2).tolist()
