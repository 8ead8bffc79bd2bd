"""Damaged and hostile streams: never a crash, never a hang, never memory without bound."""

from __future__ import annotations

import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.replay.answer import Answer
from loadtest.replay.dialects import APIS, DIALECTS
from loadtest.replay.sse import MAX_EVENT_BYTES, EventTooLargeError
from loadtest.replay.stamps import NO_STAMP
from loadtest.replay.texts import MAX_ERROR_CHARS
from loadtest.replay.wire import FramingError
from metrics.records import Outcome
from tests.replay.player import LAST_CHUNK, chunk, response_head
from tests.replay.streams import DONE, HEAD, answer_bytes, chat_event, completion_event, cuts_of, usage_event
from tests.replay.test_dialects import native_answer, ollama_answer

GOOD = {
    "completions": answer_bytes([" a", " bc", ' "d"', " é", "\n"]),
    "chat": HEAD
    + b"".join(chunk(chat_event({"content": text})) for text in ("a", " b", "漢", " c"))
    + chunk(chat_event({}, "stop") + usage_event(4))
    + chunk(DONE)
    + LAST_CHUNK,
    "llamacpp": native_answer([" a", " b", "é"]),
    "ollama": ollama_answer([" a", " b", "é"]),
    "ollama-chat": ollama_answer([" a"]).replace(b'"response": " a"', b'"message": {"content": " a"}'),
}
UNTIL_CLOSE = response_head(200, {"Content-Type": "text/event-stream"})


def fed(api: str, reads: list[bytes], **options: Any) -> Answer | None:
    """The answer after these reads and a close; None when the stream was given up with one of our errors."""
    answer = Answer(DIALECTS[api], **options)  # type: ignore[index]
    try:
        answer.feed([(number + 1, NO_STAMP, read) for number, read in enumerate(reads)])
        answer.close(len(reads) + 1)
    except (FramingError, EventTooLargeError):
        return None
    return answer


@given(
    st.data(),
    st.sampled_from(APIS),
    st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4), st.integers(0, 9)), min_size=1, max_size=6),
)
def test_damaged_streams_end_in_an_outcome(
    data: st.DataObject, api: Any, damage: list[tuple[float, bytes, int]]
) -> None:
    """Bytes replaced, inserted and lost anywhere, in any cut: both ways of decoding agree on what is left."""
    raw = bytearray(GOOD[api])
    for place, put, drop in damage:
        at = int(place * len(raw))
        raw[at : at + drop] = put
    if not raw:
        return
    reads = data.draw(cuts_of(bytes(raw)))
    quick, careful = fed(api, reads), fed(api, reads, keep_text=True)
    assert (quick is None) == (careful is None)
    if quick is None or careful is None:
        return
    for name in ("event_reads", "usage_tokens", "finish_reason", "done_marker", "error", "malformed_events", "status"):
        assert getattr(careful, name) == getattr(quick, name), name
    assert quick.outcome() in Outcome
    assert len(quick.error_message()) <= MAX_ERROR_CHARS
    assert 0 <= quick.hidden_tokens <= max(quick.output_tokens, 0)


@pytest.mark.parametrize(
    ("head", "piece", "most"),
    [
        (UNTIL_CLOSE, b"data: " + b"x" * 65536, MAX_EVENT_BYTES),
        (UNTIL_CLOSE, b"<" + b"x" * 65536, 2**18),
        (response_head(502, {}), b"x" * 65536, 2**18),
        (UNTIL_CLOSE, b": comment\n" * 600, 2**18),
        (UNTIL_CLOSE, b"\n\n: \n" * 900, 2**18),
        (response_head(200, {"X-Long": "y"})[:-2], b"x" * 65536, 2**18),
        (response_head(200, {"Transfer-Encoding": "chunked"}), b"1" * 65536, 2**18),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 200, 2**18),
    ],
)
def test_an_endless_answer_does_not_fill_the_memory(head: bytes, piece: bytes, most: int) -> None:
    """64 MB of one thing (less of many small ones): given up, or thrown away, but never kept."""
    answer = Answer()
    tracemalloc.start()
    try:
        answer.feed([(1, NO_STAMP, head)])
        total = 2**18 if b"\n" in piece else 2**26
        for number in range(total // len(piece)):
            answer.feed([(number + 2, NO_STAMP, piece)])
    except (FramingError, EventTooLargeError):
        pass
    finally:
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert kept < 1.3 * most + 2**18


def test_a_compressed_bomb_is_read_a_piece_at_a_time() -> None:
    """A kilobyte that stands for a megabyte of comments is no event and leaves nothing behind."""
    press = zlib.compressobj(wbits=31)
    bomb = press.compress(b": nothing\n" * 100_000) + press.flush()
    answer = Answer()
    answer.feed([(1, NO_STAMP, response_head(200, {"Content-Encoding": "gzip"}))])
    tracemalloc.start()
    for start in range(0, len(bomb), 4096):
        answer.feed([(2, NO_STAMP, bomb[start : start + 4096])])
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2**18
    assert 0 == len(answer.event_reads)


def test_endless_garbage_numbers_are_refused() -> None:
    """Counts beyond what a column holds are damage, not a crash later on."""
    event = completion_event(" a", usage={"completion_tokens": 10**30, "prompt_tokens": -5})
    answer = fed("completions", [HEAD + chunk(event) + chunk(DONE) + LAST_CHUNK])
    assert answer is not None
    assert -2 < answer.output_tokens < 2**31
