"""Frames of a file: each behind a mark that is drawn for the file, with a length, a checksum and a kind.

file  = MAGIC  mark of 8 bytes  frame*
frame = mark | length u32 of the payload | crc32 u32 of kind and payload | kind u8 | payload      (little endian)

Behind damage the next frame is found by its mark. What a server sends ends up in payloads, but it cannot know the mark,
so nothing inside a torn payload is ever taken for a frame. Files of the first version (FIRST_MAGIC) have no marks:
reading them ends where they are damaged.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

MAGIC = b"goodput journal 2\n"
FIRST_MAGIC = b"goodput journal\n"
MARK_BYTES = 8
_FRAME = struct.Struct("<IIB")


class FrameWriter:
    """Makes the bytes of a file, frame by frame."""

    def __init__(self) -> None:
        self._mark = os.urandom(MARK_BYTES)

    @property
    def beginning(self) -> bytes:
        """What stands before the first frame."""
        return MAGIC + self._mark

    def frame(self, kind: int, payload: bytes) -> bytes:
        """One frame."""
        checksum = zlib.crc32(payload, zlib.crc32(bytes((kind,))))
        return b"".join((self._mark, _FRAME.pack(len(payload), checksum, kind), payload))


class FrameReader:
    """Iterates over the whole frames of a file with right checksums; `torn` counts the damage that it left out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self._mark, self._begin = b"", len(FIRST_MAGIC)
        if data.startswith(MAGIC):
            self._begin = len(MAGIC) + MARK_BYTES
            self._mark = data[len(MAGIC) : self._begin]
        self.torn = 0

    @property
    def readable(self) -> bool:
        """True of a file that begins as ours do, or that ends before its first frame could begin."""
        data = self._data
        if len(data) < len(MAGIC):
            return data.startswith(FIRST_MAGIC) or MAGIC.startswith(data) or FIRST_MAGIC.startswith(data)
        return data.startswith((MAGIC, FIRST_MAGIC))

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        at, end = self._begin, len(self._data)
        while at < end:
            length = self._length(at)
            if length < 0:
                self.torn += 1
                at = self._next(at)
                continue
            begin = at + len(self._mark) + _FRAME.size
            yield self._view[begin - 1], self._view[begin : begin + length]
            at = begin + length

    def _length(self, at: int) -> int:
        """Of the payload of the frame that begins here; -1 where no right frame does."""
        fields = at + len(self._mark)
        begin = fields + _FRAME.size
        if begin > len(self._data) or self._data[at:fields] != self._mark:
            return -1
        length, checksum, kind = _FRAME.unpack_from(self._data, fields)
        end = begin + length
        # No payload holds the mark, and looking for it ends at the first: damaged lengths cost no quadratic time.
        if end > len(self._data) or (self._mark and self._data.find(self._mark, begin, end) >= 0):
            return -1
        right: bool = zlib.crc32(self._view[begin:end], zlib.crc32(bytes((kind,)))) == checksum
        return length if right else -1

    def _next(self, at: int) -> int:
        """Where the next right frame begins; the end of the file when there is none, or none can be looked for."""
        while self._mark and (at := self._data.find(self._mark, at + 1)) >= 0:
            if self._length(at) >= 0:
                return at
        return len(self._data)
