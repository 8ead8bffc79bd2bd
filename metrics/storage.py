"""How a file comes onto the disk: whole or not at all; and how a JSON document is read back, whoever wrote it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from metrics.errors import MetricsError

T = TypeVar("T")

MOST_DOCUMENT_BYTES = 256 << 20


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """What the disk refuses inside the block is a MetricsError that names the file."""
    try:
        yield
    except OSError as error:
        raise MetricsError(
            f"cannot write {file}: {error.strerror or error}",
            code="output_unusable",
            hint="free some space, or allow it, and try again",
        ) from error


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A temporary file beside `file` that takes its name once it is safely on the disk."""
    temporary = file.with_name(file.name + ".tmp")
    with writing(file):
        try:
            with temporary.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)


def write_atomically(file: Path, content: bytes) -> None:
    """Write a file that is either the old or the new one, also after a power cut."""
    with replacing(file) as stream:
        stream.write(content)


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    with writing(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_document(file: Path, kind: type[T] | Any, code: str = "damaged_run") -> T:
    """A JSON document of this type; MetricsError with `code` when it is missing, another one, or too large."""
    try:
        with file.open("rb") as stream:
            text = stream.read(MOST_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise MetricsError(f"{file} cannot be read: {error.strerror}", code=code) from error
    if len(text) > MOST_DOCUMENT_BYTES:
        raise MetricsError(f"{file} is larger than {MOST_DOCUMENT_BYTES >> 20} MiB", code=code)
    try:
        found: T = msgspec.json.decode(text, type=kind)
    except (
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ) as error:
        # besides what msgspec says: a number of 5,000 digits, brackets without end
        why = str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__
        raise MetricsError(f"{file} cannot be read: {why}", code=code) from error
    return found
