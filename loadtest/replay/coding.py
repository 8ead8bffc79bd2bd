"""Content coding of a body: its first bytes say whether it is compressed, and the label only where they do not.

Gateways write `Content-Encoding: none` to keep proxies from compressing, `UTF-8` by mistake, and `gzip` over a body
that somebody has unpacked before.
"""

from __future__ import annotations

import zlib

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# What server-sent events, JSON and pages begin with, behind a byte-order mark and white space.
_PLAIN_STARTS = (b"data", b"event", b"id", b"retry", b"error", b":", b"{", b"[", b"<", b'"')
_LEAD = b" \t\r\n\xef\xbb\xbf"
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\n\r"})
_MOST_LEAD_BYTES = 1024
# How much a body may grow: text of tokens shrinks to a twentieth, what shrinks to a thousandth is made to do harm.
MAX_GROWTH, ALWAYS_ALLOWED_BYTES = 100, 4 * 1024 * 1024


class UnknownCodingError(Exception):
    """The body is compressed in a way that was not asked for and cannot be undone; the message says which."""


class BodyCoding:
    """Takes a body's pieces as they come and gives them decoded; `plain` once it is clear that there is no coding."""

    __slots__ = ("_bytes_in", "_bytes_out", "_inflate", "_labels", "_start", "plain")

    def __init__(self, label: str) -> None:
        self._labels = {word.strip().lower() for word in label.split(",")}
        self._start = b""  # bytes that do not tell yet
        self._inflate: zlib._Decompress | None = None
        self._bytes_in = self._bytes_out = 0
        self.plain = False

    def feed(self, data: bytes) -> bytes:
        """What `data` adds; raises UnknownCodingError and zlib.error."""
        if self._inflate is None and not self.plain:
            data, self._start = self._start + data, b""
            if not self._decide(data):
                self._start = data
                return b""
        return self._inflated(data) if self._inflate is not None else data

    def close(self) -> bytes:
        """The body is over: bytes that never told are what they are."""
        start, self._start = self._start, b""
        return start

    def _decide(self, data: bytes) -> bool:
        """False while more bytes are needed."""
        named = self._labels & {"br", "zstd", "compress", "x-compress", "deflate"}
        if data.startswith(_GZIP):
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif data.startswith(_ZSTD):
            raise UnknownCodingError("the body is encoded as 'zstd', which was not asked for")
        elif _GZIP.startswith(data) or _ZSTD.startswith(data):
            return False
        elif not named:
            self.plain = True
        else:
            return self._decide_by_label(data, min(named))
        return True

    def _decide_by_label(self, data: bytes, label: str) -> bool:
        """A coding without a sign of its own: believed unless the bytes are plain text."""
        text = data.lstrip(_LEAD)
        if len(data) <= _MOST_LEAD_BYTES and any(start.startswith(text) for start in _PLAIN_STARTS if start != text):
            return False
        if text.startswith(_PLAIN_STARTS) and text[:_MOST_LEAD_BYTES].translate(None, _CONTROLS) in text:
            self.plain = True
        elif label != "deflate":
            raise UnknownCodingError(f"the body is encoded as {label!r}, which was not asked for")
        else:  # with its zlib header, or without
            bare = data[0] & 0x0F != zlib.DEFLATED
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
        return True

    def _inflated(self, data: bytes) -> bytes:
        """Also of gzip in several members."""
        assert self._inflate is not None
        self._bytes_in += len(data)
        out = self._limited(self._inflate, data)
        while self._inflate.unused_data.startswith(b"\x1f"):
            rest = self._inflate.unused_data
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
            out += self._limited(self._inflate, rest)
        return out

    def _limited(self, inflate: zlib._Decompress, data: bytes) -> bytes:
        room = max(ALWAYS_ALLOWED_BYTES, MAX_GROWTH * self._bytes_in) - self._bytes_out
        out = inflate.decompress(data, max(room, 1))
        self._bytes_out += len(out)
        if inflate.unconsumed_tail:
            raise UnknownCodingError(f"the compressed body grows to more than {MAX_GROWTH} times its size")
        return out
