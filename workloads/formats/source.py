"""The text of a trace file: plain or gzip by its bytes, any line end, UTF-8 or what a byte-order mark says."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np

from workloads.errors import WorkloadError

MAX_BYTES = 8 << 30  # unpacked; the largest public trace has 1.3 GB
MAX_LINE = 16 << 20  # bytes

_BLOCK = 1 << 19
_GZIP_MAGIC = b"\x1f\x8b"
_MARK = codecs.BOM_UTF8
# Longest first: the mark of UTF-32 begins with that of UTF-16.
_OTHER_MARKS = tuple(
    (mark, f"utf-{bits}")
    for bits, marks in (
        (32, (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
        (16, (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
    )
    for mark in marks
)
# What a file is that begins so, whatever its name says.
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive (or a spreadsheet)"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3", "a SQLite database"),
)

Block = tuple[int, bytes]  # the number of its first line (from 1), and whole lines that end with LF


class _TooLarge(Exception):
    """A file no trace would be; the argument says in what way."""


class _Foreign(Exception):
    """A file of another kind; the argument says of which."""


class _Capped(io.RawIOBase):
    """A reader that refuses to go past `limit` bytes, so that a small gzip file cannot fill the machine."""

    def __init__(self, inner: io.BufferedIOBase, limit: int) -> None:
        self._inner = inner
        self._left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        got = self._inner.readinto(buffer)
        self._left -= got
        if self._left < 0:
            raise _TooLarge("it is larger than any trace, or unpacks to more")
        return got


def lines(path: Path, *, max_bytes: int | None = None) -> Iterator[tuple[int, str]]:
    """(line number from 1, text without its line end) of every line that is not blank."""
    return lines_of(path, blocks(path, max_bytes=max_bytes))


def blocks(path: Path, *, max_bytes: int | None = None) -> Iterator[Block]:
    """The file in blocks of whole lines; LF, CRLF and a lone CR end a line and are given as LF."""
    with _told(path):
        yield from _blocks(path, MAX_BYTES if max_bytes is None else max_bytes)


def after_first_line(path: Path) -> tuple[int, str, Iterator[Block]] | None:
    """The first line that is not blank with its number, and the blocks after it; None when there is none."""
    some = blocks(path)
    for number, block in some:
        start = 0
        for line, piece in enumerate(block.split(b"\n", 1000), number):
            start += len(piece) + 1
            text = decoded(path, piece.split(b"\n")[0])
            if text and not text.isspace():
                return line, text, chain([(line + 1, block[start:])], some)
    return None


def lines_of(path: Path, some: Iterable[Block]) -> Iterator[tuple[int, str]]:
    """The lines of blocks that are not blank."""
    for first, block in some:
        for number, text in enumerate(decoded(path, block).split("\n"), first):
            if text and not text.isspace():
                yield number, text


def decoded(path: Path, block: bytes) -> str:
    """UTF-8 text; anything else raises WorkloadError `encoding`."""
    with _told(path):
        return block.decode("utf-8")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Every way in which a file can fail to be text, as a sentence."""
    try:
        yield
    except _TooLarge as error:
        raise WorkloadError(f"{path}: {error}.", code="too_large", hint="Is this really a trace?") from error
    except _Foreign as error:
        raise WorkloadError(
            f"{path} is {error}, not text.", code="encoding", hint="Write it as CSV or JSON lines (gzip is fine)."
        ) from None
    except UnicodeDecodeError as error:
        raise WorkloadError(
            f"{path} is not {error.encoding.upper()} text: byte 0x{error.object[error.start]:02x} cannot be read.",
            code="encoding",
            hint="Save it as UTF-8.",
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise WorkloadError(f"{path} is a damaged gzip file: {error}.", code="gzip", hint="Copy it again.") from error
    except OSError as error:
        raise WorkloadError(
            f"The trace {path} cannot be read: {error.strerror or error}.", code="file", hint="Check the path."
        ) from error


def _blocks(path: Path, max_bytes: int) -> Iterator[Block]:
    number, rest, begun = 1, b"", False
    for chunk in _chunks(path, max_bytes):
        text = rest + chunk
        held = b"\r" if text.endswith(b"\r") else b""  # the LF of a CRLF may come with the next chunk
        text = text[: len(text) - len(held)]
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not begun and len(text) >= len(_MARK):
            text, begun = text.removeprefix(_MARK), True
        end = text.rfind(b"\n") + 1
        whole, rest = text[:end], text[end:] + held
        if len(rest) > MAX_LINE:
            raise _TooLarge(f"line {number + _line_ends(whole)} is longer than any trace's")
        if whole:
            yield number, whole
            number += _line_ends(whole)
    if rest:
        last = rest.removesuffix(b"\r")
        yield number, (last if begun else last.removeprefix(_MARK)) + b"\n"


def _line_ends(text: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == 10))


def _chunks(path: Path, max_bytes: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        packed = file.peek(2)[:2] == _GZIP_MAGIC
        inner: io.BufferedIOBase = gzip.GzipFile(fileobj=file) if packed else file
        reader = io.BufferedReader(_Capped(inner, max_bytes), 1 << 18)
        chunk = reader.read(_BLOCK)
        for magic, kind in _FOREIGN:
            if chunk.startswith(magic):
                raise _Foreign(kind)
        encoding = next((name for mark, name in _OTHER_MARKS if chunk.startswith(mark)), None)
        decoder = codecs.getincrementaldecoder(encoding)() if encoding else None
        while chunk:
            yield decoder.decode(chunk).encode() if decoder is not None else chunk
            chunk = reader.read(_BLOCK)
        if decoder is not None:
            yield decoder.decode(b"", final=True).encode()
