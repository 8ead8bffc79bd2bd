"""Server-sent events by the WHATWG rules, whatever the cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadtest.replay.sse import SseEvent, SseParser
from tests.replay.streams import cuts_of

_VALUE = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=20)


def parse(reads: list[bytes]) -> list[SseEvent]:
    parser = SseParser()
    return [event for read in reads for event in parser.feed(read)] + parser.close()


@given(st.data(), st.lists(st.lists(_VALUE, min_size=1, max_size=3), max_size=4), st.sampled_from(["\n", "\r", "\r\n"]))
def test_any_line_end_and_any_cut_give_the_same_events(data: st.DataObject, events: list[list[str]], end: str) -> None:
    """LF, CR and CRLF all end lines, data lines are joined with LF, and reads may end anywhere."""
    raw = "".join("".join(f"data: {line}{end}" for line in event) + end for event in events).encode()
    expected = [SseEvent(b"", "\n".join(event).encode()) for event in events]
    assert expected == (parse(data.draw(cuts_of(raw))) if raw else [])


def test_only_data_is_payload() -> None:
    """event, id, retry and comments carry no payload; the event's name is kept; the space is optional."""
    raw = b": ping\n\nevent: delta\nid: 7\nretry: 10\n:c\ndata:{}\n\n"
    assert [SseEvent(b"delta", b"{}")] == parse([raw])


def test_a_pending_event_counts_at_the_end() -> None:
    """A body that ends without its blank line, even without its line end, still gives its last event."""
    assert [SseEvent(b"", b"[DONE]")] == parse([b"data: [DO", b"NE]"])


def test_unicode_line_separators_do_not_end_lines() -> None:
    """U+2028 and U+0085 inside a token are text."""
    token = "a\u2028b\u0085c".encode()
    assert [SseEvent(b"", token)] == parse([b"data: " + token + b"\n\n"])


def test_one_leading_bom_is_allowed() -> None:
    """A byte order mark before the first field is skipped, later ones are not."""
    assert [SseEvent(b"", b"x")] == parse([b"\xef\xbb\xbfdata: x\n\n"])
    assert [] == parse([b"data2: y\n\n", b"\xef\xbb\xbfdata: x\n\n"])


def test_an_event_belongs_to_the_read_that_completed_it() -> None:
    """With CRLF cut in two, the event is complete with the CR."""
    parser = SseParser()
    assert [] == parser.feed(b"data: x\r\n")
    assert [SseEvent(b"", b"x")] == parser.feed(b"\r")
    assert [] == parser.feed(b"\n")
    assert parser.at_event_boundary
