"""Content codings: the bytes decide, in any cut."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.replay.coding import BodyCoding
from loadtest.replay.wire import FramingError, ResponseParser
from tests.replay.player import LAST_CHUNK, chunk, response_head
from tests.replay.streams import cuts_of

EVENTS = b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
BARE = zlib.compressobj(wbits=-15)
DEFLATED = BARE.compress(EVENTS) + BARE.flush()
PLAIN = [
    EVENTS,
    b": hello\n\n" + EVENTS,
    b"\xef\xbb\xbf" + EVENTS,
    b"\n\n{}",
    b"<html>",
    b"",
    b"\n",
    b"i",
    b"(",
    b"\x1f",
]


def decoded(label: str, reads: list[bytes]) -> bytes:
    parser = ResponseParser()
    parser.feed(response_head(200, {"Transfer-Encoding": "chunked", "Content-Encoding": label}))
    return b"".join(parser.feed(read) for read in reads)


@given(
    st.data(), st.sampled_from(["none", "UTF-8", "identity", "", "gzip", "aws-chunked", "x"]), st.sampled_from(PLAIN)
)
def test_a_label_over_plain_bytes_is_as_if_it_were_not_there(data: st.DataObject, label: str, body: bytes) -> None:
    """No coding that exists, or one that the bytes do not have."""
    raw = (chunk(body) if body else b"") + LAST_CHUNK
    assert body == decoded(label, data.draw(cuts_of(raw)))


@given(st.data(), st.sampled_from(["br", "zstd", "deflate", "gzip, br"]), st.sampled_from(PLAIN[:6]))
def test_a_coding_without_a_sign_is_not_believed_over_text(data: st.DataObject, label: str, body: bytes) -> None:
    """What begins as events, JSON or a page do is not compressed."""
    raw = (chunk(body) if body else b"") + LAST_CHUNK
    assert body == decoded(label, data.draw(cuts_of(raw)))


@given(st.data(), st.sampled_from(["none", "", "identity", "gzip", "br"]))
def test_gzip_is_known_by_its_bytes(data: st.DataObject, label: str) -> None:
    """Whatever the header says, or does not say."""
    assert EVENTS == decoded(label, data.draw(cuts_of(chunk(gzip.compress(EVENTS)) + LAST_CHUNK)))


@given(st.data(), st.sampled_from([zlib.compress(EVENTS), DEFLATED]))
def test_deflate_with_and_without_its_header(data: st.DataObject, body: bytes) -> None:
    """Servers send both under that name."""
    assert EVENTS == decoded("deflate", data.draw(cuts_of(chunk(body) + LAST_CHUNK)))


@pytest.mark.parametrize(("label", "body"), [("br", b"\x0b\x02\x80hi\x03"), ("none", b"\x28\xb5\x2f\xfd\x04")])
def test_what_cannot_be_undone_is_named(label: str, body: bytes) -> None:
    """Brotli by its label, where the bytes are no text; zstd by its first four bytes."""
    with pytest.raises(FramingError, match="not asked for"):
        decoded(label, [chunk(body)])


def test_plain_is_known_at_the_first_byte() -> None:
    """An unknown label holds no byte of a stream back."""
    coding = BodyCoding("none")
    assert (b"d", True) == (coding.feed(b"d"), coding.plain)
