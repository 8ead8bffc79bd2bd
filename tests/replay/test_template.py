"""The quick way's pattern: what it takes, and what it must leave to the careful way."""

from __future__ import annotations

import pytest

from loadtest.replay.template import TokenTemplate
from tests.replay.player import chunk
from tests.replay.streams import chat_event, completion_event


def learnt(event: bytes = completion_event(" the")) -> TokenTemplate:
    template = TokenTemplate()
    template.learn(chunk(event), 0)
    return template


@pytest.mark.parametrize("text", [" of", "x", "\n\n", 'say "hi"', "back\\slash", "é", "漢字", "🙂", " " * 3000])
def test_other_texts_in_the_same_frame_match(text: str) -> None:
    """Any non-empty text in the same frame is a plain token, whatever its length."""
    assert learnt().matches(chunk(completion_event(text)))


def test_every_size_of_text_has_its_own_size_line() -> None:
    """The size line must be right for the read: hexadecimal lengths of one digit more do not confuse it."""
    template = learnt(b'data: {"text":"a","finish_reason":null}\n\n')
    for length in range(1, 5000):
        event = b'data: {"text":"%s","finish_reason":null}\n\n' % (b"x" * length)
        assert template.matches(chunk(event)), length
        assert not template.matches(b"%x\r\n%s\r\n" % (len(event) + 1, event)), length


@pytest.mark.parametrize(
    "read",
    [
        chunk(completion_event("")),
        chunk(completion_event(" x", "stop")),
        chunk(completion_event(" x") + completion_event(" y")),
        chunk(completion_event(" x"))[:-2],
        chunk(completion_event(" x")) + b"0",
        completion_event(" x"),
        chunk(completion_event(" the")).replace(b" the", b'a","b'),
        chunk(completion_event(" the")).replace(b" the", b"a\\ud800"[:4]),
        chunk(completion_event(" the")).replace(b" the", b"\xff\xfe\xff\xfe"),
        chunk(completion_event(" the")).replace(b" the", b"a\nbc"),
        b"",
    ],
)
def test_anything_else_is_left_to_the_careful_way(read: bytes) -> None:
    """Empty texts, ends, several events, cut chunks, broken strings: none of them match."""
    assert not learnt().matches(read)


@pytest.mark.parametrize(
    "event",
    [
        completion_event(" x", "stop"),
        completion_event(" x", usage={"completion_tokens": 1}),
        chat_event({"content": " x", "reasoning": "y"}),
        chat_event({"content": " x", "tool_calls": [{"function": {"name": "f"}}]}),
        b'data: {"text":"a","content":"b","finish_reason":null}\n\n',
        b'event: x\ndata: {"text":"a","finish_reason":null}\n\n',
        b'data: {"text":"a","finish_reason":null}\r\n\r\n',
    ],
)
def test_events_that_say_more_teach_nothing(event: bytes) -> None:
    """A frame that could hide something besides one text is never learnt."""
    assert not learnt(event)
