"""Frames behind damage."""

from __future__ import annotations

import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st

from metrics.frames import FIRST_MAGIC, MAGIC, MARK_BYTES, FrameReader, FrameWriter


def file_of(payloads: list[bytes], kind: int = 1) -> bytes:
    writer = FrameWriter()
    return writer.beginning + b"".join(writer.frame(kind, payload) for payload in payloads)


def read(data: bytes) -> tuple[list[bytes], int]:
    reader = FrameReader(data)
    return [bytes(payload) for _, payload in reader], reader.torn


@given(payloads=st.lists(st.binary(max_size=60), min_size=2, max_size=8), data=st.data())
def test_only_the_damaged_frame_is_missing(payloads: list[bytes], data: st.DataObject) -> None:
    """Any byte of any one frame, whatever it becomes: the others are read, and the damage is counted."""
    whole = file_of(payloads)
    hit = data.draw(st.integers(0, len(payloads) - 1))
    begin = len(MAGIC) + MARK_BYTES + sum(len(p) + MARK_BYTES + 9 for p in payloads[:hit])
    place = begin + data.draw(st.integers(0, len(payloads[hit]) + MARK_BYTES + 8))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    got, torn = read(bytes(changed))
    assert payloads[:hit] + payloads[hit + 1 :] == got
    assert 1 == torn


@given(
    payloads=st.lists(st.binary(max_size=60), min_size=3, max_size=6), cut=st.integers(1, 20), hit=st.integers(1, 30)
)
def test_a_piece_that_is_missing_costs_no_more_than_its_frames(payloads: list[bytes], cut: int, hit: int) -> None:
    """A hole: what is read are frames that were written, in their order, and the last one is among them."""
    whole = file_of(payloads)
    place = min(len(MAGIC) + MARK_BYTES + hit, len(whole) - len(payloads[-1]) - MARK_BYTES - 9 - cut)
    got, torn = read(whole[:place] + whole[place + cut :])
    rest = iter(payloads)
    assert all(any(payload == one for one in rest) for payload in got)
    assert payloads[-1] == got[-1]
    assert torn <= 2


def test_a_frame_inside_a_torn_payload_is_none() -> None:
    """A server may send bytes that are a right frame of the first version, or of another file; they stay text."""
    forged = struct.pack("<IIB", 3, zlib.crc32(b"bad", zlib.crc32(b"\1")), 1) + b"bad"
    hostile = forged + FrameWriter().frame(1, b"bad") + MAGIC + bytes(MARK_BYTES) + forged
    whole = bytearray(file_of([hostile, b"good"]))
    whole[len(MAGIC) + MARK_BYTES + 8] ^= 1  # its length
    assert ([b"good"], 1) == read(bytes(whole))


def test_damaged_lengths_take_no_quadratic_time() -> None:
    """Fifty thousand frames that each announce the rest of the file: all are looked at once."""
    mark = b"\1\2\3\4\5\6\7\x08"
    false = mark + struct.pack("<IIB", 100_000, 1, 1)
    good = mark + struct.pack("<IIB", 2, zlib.crc32(b"ok", zlib.crc32(b"\1")), 1) + b"ok"
    assert ([b"ok"], 1) == read(MAGIC + mark + false * 50_000 + good)


def test_files_of_the_first_version_are_read_up_to_their_damage() -> None:
    """They have no marks to find the next frame by."""
    frame = struct.pack("<IIB", 2, zlib.crc32(b"ok", zlib.crc32(b"\1")), 1) + b"ok"
    assert ([b"ok", b"ok"], 0) == read(FIRST_MAGIC + frame * 2)
    assert ([b"ok"], 1) == read(FIRST_MAGIC + frame + b"\0" + frame)
