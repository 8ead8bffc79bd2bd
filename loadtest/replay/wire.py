"""HTTP/1.1 response framing without I/O: bytes in, body bytes out.

Strict where a mistake would corrupt a measurement (chunk sizes, Content-Length), tolerant where servers differ
(1xx answers, close-delimited bodies, compressed bodies nobody asked for). RFC 9112 sections 6 and 7.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import IntEnum

from loadtest.replay.coding import BodyCoding, UnknownCodingError

MAX_HEAD_BYTES = 64 * 1024
MAX_CHUNK_LINE_BYTES = 4 * 1024
MAX_LENGTH_DIGITS = 18
_HEX_DIGITS = b"0123456789abcdefABCDEF"


class FramingError(Exception):
    """The peer broke HTTP's framing; the message says how."""


class State(IntEnum):
    """Where in a response the parser stands."""

    HEAD = 0
    CHUNK_SIZE = 1
    CHUNK_DATA = 2
    CHUNK_END = 3
    TRAILER = 4
    LENGTH = 5
    UNTIL_CLOSE = 6
    DONE = 7


class ResponseParser:
    """One response at a time: `feed` returns the body bytes that the read completed, decompressed.

    `state` is DONE when the framing is complete; `status` is 0 until the head has been read. Bytes behind a
    complete response are kept in `surplus` (nobody pipelines here, so a surplus makes the connection unusable).
    """

    __slots__ = (
        "_buffer",
        "_coding",
        "_remaining",
        "_scanned",
        "headers",
        "keep_alive",
        "state",
        "status",
        "surplus",
    )

    def __init__(self) -> None:
        self.state = State.HEAD
        self.status = 0
        self.headers: dict[str, str] = {}
        self.keep_alive = True
        self.surplus = b""
        self._buffer = bytearray()
        self._scanned = 0
        self._remaining = 0
        self._coding: BodyCoding | None = None  # None once the body is known to be plain

    def feed(self, data: bytes) -> bytes:
        """Body bytes completed by `data`; raises FramingError."""
        body = self._deframe(data)
        return self._decoded(body) if self._coding is not None and (body or self.state == State.DONE) else body

    def close(self) -> bool:
        """The peer closed: True when the body is complete (a close-delimited body ends this way)."""
        if self.state == State.UNTIL_CLOSE:
            self.state = State.DONE
        return self.state == State.DONE

    @property
    def at_chunk_boundary(self) -> bool:
        """True when the next byte starts a chunk-size line and nothing is buffered or compressed."""
        return self.state == State.CHUNK_SIZE and not self._buffer and self._coding is None

    @property
    def chunked(self) -> bool:
        """The body comes in chunks, so its last read ends with the last chunk."""
        return State.CHUNK_SIZE <= self.state <= State.TRAILER

    def _deframe(self, data: bytes) -> bytes:
        if self.state == State.UNTIL_CLOSE:
            return data
        whole, data = self._whole_chunks(data) if self.state == State.CHUNK_SIZE and not self._buffer else (b"", data)
        if not data:
            return whole
        self._buffer += data
        out = bytearray(whole)
        while self._buffer and self._step(out):
            pass
        return bytes(out)

    @staticmethod
    def _whole_chunks(data: bytes) -> tuple[bytes, bytes]:
        """The usual read holds whole chunks: their bodies, and what is left for the careful way."""
        position, bodies = 0, []
        while True:
            line_end = data.find(b"\r\n", position, position + 16)
            digits = data[position:line_end]
            if line_end < 0 or not digits or digits.strip(_HEX_DIGITS):
                break
            start = line_end + 2
            end = start + int(digits, 16)
            if end == start or data[end : end + 2] != b"\r\n":
                break
            bodies.append(data[start:end])
            position = end + 2
        return (bodies[0] if len(bodies) == 1 else b"".join(bodies)), data[position:]

    def _step(self, out: bytearray) -> bool:
        """Take one framing element off the buffer; False when more bytes are needed."""
        match self.state:
            case State.HEAD:
                return self._head()
            case State.CHUNK_SIZE:
                return self._chunk_size()
            case State.CHUNK_DATA | State.LENGTH:
                return self._data(out)
            case State.CHUNK_END:
                line = self._line(2)
                if line is None:
                    return False
                if line:
                    raise FramingError("a chunk is longer than its size line says")
                self.state = State.CHUNK_SIZE
                return True
            case State.TRAILER:
                line = self._line(MAX_HEAD_BYTES)
                if line is None:
                    return False
                if not line:
                    self.state = State.DONE
                return True
            case State.UNTIL_CLOSE:
                out += self._buffer
                self._buffer.clear()
                return False
            case _:
                self.surplus = bytes(self._buffer)
                self._buffer.clear()
                return False

    def _line(self, limit: int) -> bytes | None:
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            if self._scanned > limit:
                raise FramingError(f"a line of HTTP framing is longer than {limit} bytes")
            return None
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        self._scanned = 0
        return line

    def _chunk_size(self) -> bool:
        line = self._line(MAX_CHUNK_LINE_BYTES)
        if line is None:
            return False
        digits = line.partition(b";")[0].strip()
        if not digits or len(digits) > 16 or digits.strip(_HEX_DIGITS):
            raise FramingError(f"not a chunk size: {digits[:20]!r}")
        self._remaining = int(digits, 16)
        self.state = State.CHUNK_DATA if self._remaining else State.TRAILER
        return True

    def _data(self, out: bytearray) -> bool:
        taken = min(self._remaining, len(self._buffer))
        out += memoryview(self._buffer)[:taken]
        del self._buffer[:taken]
        self._remaining -= taken
        if self._remaining:
            return False
        self.state = State.CHUNK_END if self.state == State.CHUNK_DATA else State.DONE
        return True

    def _head(self) -> bool:
        end, width = self._buffer.find(b"\r\n\r\n"), 4
        bare = self._buffer.find(b"\n\n", 0, end if end >= 0 else len(self._buffer))
        if bare >= 0:
            end, width = bare, 2
        if (len(self._buffer) if end < 0 else end) > MAX_HEAD_BYTES:
            raise FramingError(f"the response head is longer than {MAX_HEAD_BYTES} bytes")
        if end < 0:
            return False
        lines = bytes(self._buffer[:end]).decode("latin-1").replace("\r\n", "\n").split("\n")
        del self._buffer[: end + width]
        version = self._status_line(lines[0])
        self.headers = _headers(lines[1:])
        if 100 <= self.status < 200:
            self.status = 0
            return True
        self._choose_framing(version)
        return True

    def _status_line(self, line: str) -> str:
        version, _, rest = line.partition(" ")
        code = rest.strip()[:3]
        if version == "HTTP/2" or line.startswith("PRI "):
            raise FramingError("the server speaks HTTP/2 only; put an HTTP/1.1 proxy in front of it")
        if not version.startswith("HTTP/1.") or not code.isascii() or not code.isdigit():
            raise FramingError(f"not an HTTP/1.1 answer: {line[:60]!r}")
        self.status = int(code)
        return version

    def _choose_framing(self, version: str) -> None:
        connection = self.headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        self._coding = BodyCoding(self.headers.get("content-encoding", ""))
        if self.status in (204, 304):
            self.state = State.DONE
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self.state = State.CHUNK_SIZE
        elif "content-length" in self.headers:
            text = self.headers["content-length"].partition(",")[0].strip()
            if not (text.isascii() and text.isdigit() and len(text) <= MAX_LENGTH_DIGITS):
                raise FramingError(f"not a Content-Length: {text[:20]!r}")
            self._remaining = int(text)
            self.state = State.LENGTH if self._remaining else State.DONE
        else:
            self.state, self.keep_alive = State.UNTIL_CLOSE, False

    def _decoded(self, body: bytes) -> bytes:
        assert self._coding is not None
        try:
            out = self._coding.feed(body) + (self._coding.close() if self.state == State.DONE else b"")
        except UnknownCodingError as error:
            raise FramingError(str(error)) from None
        except zlib.error as error:
            raise FramingError(f"the compressed body is broken: {error}") from None
        if self._coding.plain:
            self._coding = None
        return out


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that `Retry-After` asks to wait; a date counts from the server's own `Date`; None for anything else."""
    value = headers.get("retry-after", "")
    if value.isascii() and value.replace(".", "", 1).isdigit() and len(value) <= MAX_LENGTH_DIGITS:
        return float(value)
    try:
        until, now = (parsedate_to_datetime(text) for text in (value, headers.get("date", "")))
        return max((until - now).total_seconds(), 0.0)
    except (ValueError, TypeError):  # no date, or only one of them with a zone
        return None


def _headers(lines: list[str]) -> dict[str, str]:
    """Header names in lower case; a repeated header is joined with a comma."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            key = name.strip().lower()
            headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    return headers
