"""HTTP framing: any cut gives the same body, and broken framing is named."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.replay.wire import FramingError, ResponseParser, retry_after_s
from tests.replay.player import LAST_CHUNK, chunk, response_head
from tests.replay.streams import cuts_of


def feed_all(reads: list[bytes]) -> tuple[bytes, ResponseParser]:
    parser = ResponseParser()
    return b"".join(parser.feed(read) for read in reads), parser


def is_plain(body: bytes) -> bool:
    """What begins as gzip or zstd do is taken for that, whatever the label."""
    return not body.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd"))


@given(st.data(), st.lists(st.binary(min_size=1, max_size=300), max_size=5).filter(lambda p: is_plain(b"".join(p))))
def test_chunked_body_survives_any_cut(data: st.DataObject, pieces: list[bytes]) -> None:
    """However the network cuts a chunked response, its body comes out whole and its end is seen."""
    raw = response_head(200, {"Transfer-Encoding": "chunked"}) + b"".join(map(chunk, pieces)) + LAST_CHUNK
    body, parser = feed_all(data.draw(cuts_of(raw)))
    assert b"".join(pieces) == body
    assert parser.close()
    assert parser.keep_alive


@given(st.data(), st.binary(max_size=300).filter(is_plain))
def test_content_length_survives_any_cut(data: st.DataObject, payload: bytes) -> None:
    """A body of known length ends at that length."""
    raw = response_head(200, {"Content-Length": str(len(payload))}) + payload
    body, parser = feed_all(data.draw(cuts_of(raw)))
    assert payload == body
    assert parser.close()


@given(st.data())
def test_gzip_body_is_decoded_as_it_comes(data: st.DataObject) -> None:
    """Each flushed piece of a compressed body can be read before the next has come."""
    press = zlib.compressobj(wbits=31)
    pieces = [press.compress(b"data: %d\n\n" % i) + press.flush(zlib.Z_SYNC_FLUSH) for i in range(3)]
    head = response_head(200, {"Transfer-Encoding": "chunked", "Content-Encoding": "gzip"})
    parser = ResponseParser()
    parser.feed(head)
    assert [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"] == [parser.feed(chunk(piece)) for piece in pieces]
    body, _ = feed_all(data.draw(cuts_of(head + b"".join(map(chunk, pieces)))))
    assert b"data: 0\n\ndata: 1\n\ndata: 2\n\n" == body


def test_close_delimited_body_ends_with_the_connection() -> None:
    """Without length and chunks the close is the end, and the connection cannot be used again."""
    body, parser = feed_all([b"HTTP/1.0 200 OK\r\n\r\nabc", b"def"])
    assert b"abcdef" == body
    assert parser.close()
    assert not parser.keep_alive


def test_interim_answers_are_skipped() -> None:
    """100 Continue and 103 Early Hints are not the answer."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    body, parser = feed_all([interim, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"])
    assert (b"ok", 200) == (body, parser.status)


def test_chunk_extensions_and_trailers_are_not_body() -> None:
    """Chunk extensions and trailer fields belong to the framing."""
    raw = response_head(200, {"Transfer-Encoding": "chunked"}) + b"3;name=value\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n"
    body, parser = feed_all([raw])
    assert b"abc" == body
    assert parser.close()


@pytest.mark.parametrize("size", [b"-1", b"0x5", b"1_0", b"+5", b" ", b"zz", b"f" * 17])
def test_a_broken_chunk_size_is_named(size: bytes) -> None:
    """Only hexadecimal digits are a chunk size, whatever Python's int() would take."""
    parser = ResponseParser()
    parser.feed(response_head(200, {"Transfer-Encoding": "chunked"}))
    with pytest.raises(FramingError, match="chunk size"):
        parser.feed(size + b"\r\nabcde\r\n")


def test_a_missing_last_chunk_is_not_an_end() -> None:
    """A chunked body without its last chunk is incomplete when the connection closes."""
    _, parser = feed_all([response_head(200, {"Transfer-Encoding": "chunked"}) + chunk(b"abc")])
    assert not parser.close()


@pytest.mark.parametrize(
    "raw",
    [b"SSH-2.0-OpenSSH_9\r\n\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"x" * 70_000],
)
def test_what_is_not_http_is_refused(raw: bytes) -> None:
    """Another protocol, HTTP/2 and an endless head are errors, not answers."""
    with pytest.raises(FramingError):
        ResponseParser().feed(raw)


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("2", "", 2.0),
        ("1.5", "", 1.5),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "", None),
        ("soon", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("", "", None),
        ("-1", "", None),
        ("1.", "", 1.0),
        (".", "", None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str, date: str, seconds: float | None) -> None:
    """A date counts from the server's own clock, so that the client's does not matter."""
    assert seconds == retry_after_s({"retry-after": value, "date": date})


@pytest.mark.parametrize("whole", [True, False])
def test_a_head_beyond_its_limit_is_refused_however_it_is_cut(whole: bool) -> None:
    """One read that holds all of it is no way round the limit."""
    head = response_head(200, {"X-Long": "x" * 70_000})
    with pytest.raises(FramingError, match="65536"):
        feed_all([head] if whole else [head[:66_000], head[66_000:]])


@given(st.data(), st.binary(max_size=400))
def test_arbitrary_bytes_never_crash(data: st.DataObject, raw: bytes) -> None:
    """Garbage gives body bytes or a FramingError, nothing else."""
    head = data.draw(
        st.sampled_from([b"", response_head(200, {"Transfer-Encoding": "chunked"}), response_head(200, {})])
    )
    parser = ResponseParser()
    try:
        for read in data.draw(cuts_of(head + raw)) if head + raw else []:
            parser.feed(read)
        parser.close()
    except FramingError:
        pass
    assert parser.status in (0, *range(100, 1000))
