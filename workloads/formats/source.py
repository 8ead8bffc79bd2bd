"""The lines of a trace file: plain or gzip, any line end, UTF-8 with or without a byte-order mark."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from workloads.errors import WorkloadError

MAX_BYTES = 8 << 30  # unpacked; the largest public trace has 1.3 GB
MAX_LINE = 16 << 20  # characters

_BLOCK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


class _TooLarge(Exception):
    """A file no trace would be; the argument says in what way."""


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
    try:
        yield from _lines(path, MAX_BYTES if max_bytes is None else max_bytes)
    except _TooLarge as error:
        raise WorkloadError(f"{path}: {error}.", code="too_large", hint="Is this really a trace?") from error
    except UnicodeDecodeError as error:
        raise WorkloadError(
            f"{path} is not UTF-8 text: byte 0x{error.object[error.start]:02x} cannot be read.",
            code="encoding",
            hint="Save it as UTF-8.",
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise WorkloadError(f"{path} is a damaged gzip file: {error}.", code="gzip", hint="Copy it again.") from error
    except OSError as error:
        raise WorkloadError(
            f"The trace {path} cannot be read: {error.strerror or error}.", code="file", hint="Check the path."
        ) from error


def _lines(path: Path, max_bytes: int) -> Iterator[tuple[int, str]]:
    with open(path, "rb") as file:
        packed = file.peek(2)[:2] == _GZIP_MAGIC
        inner: io.BufferedIOBase = gzip.GzipFile(fileobj=file) if packed else file
        # newline=None: LF, CRLF and a lone CR all end a line, and nothing else does.
        text = io.TextIOWrapper(io.BufferedReader(_Capped(inner, max_bytes), 1 << 18), "utf-8-sig", newline=None)
        done, rest = 0, ""
        while block := text.read(_BLOCK):
            *ended, rest = (rest + block).split("\n")
            yield from _numbered(ended, done + 1)
            done += len(ended)
            if len(rest) > MAX_LINE:
                raise _TooLarge(f"line {done + 1} is longer than any trace's")
        yield from _numbered([rest], done + 1)


def _numbered(texts: list[str], first: int) -> Iterator[tuple[int, str]]:
    for number, text in enumerate(texts, first):
        if text and not text.isspace():
            yield number, text
