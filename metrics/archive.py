"""Columns in an .npz file; nothing is allocated that the file itself does not hold.

Run directories travel as artifacts, so what one declares is not believed: members are stored uncompressed, as we write
them, and hold exactly the numbers (or short texts) that their headers announce.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from metrics.errors import MetricsError
from metrics.storage import replacing

Column = NDArray[np.generic]

MOST_MEMBERS = 256
_HEADER = re.compile(
    rb"\{'descr': '([<|][biufU]\d{1,4})', 'fortran_order': (?:True|False), "
    rb"'shape': \(((?:\d{1,18}, ?)*(?:\d{1,18})?)\), \} *\n"
)
_MOST_DIMENSIONS = 2


def save_columns(file: Path, columns: Mapping[str, Any]) -> None:
    """Write an .npz, whole or not at all."""
    with replacing(file) as stream:
        np.savez(stream, **columns)


def load_columns(file: Path) -> dict[str, Column]:
    """Read an .npz; MetricsError `damaged_run` when it is none, or none that this program wrote."""
    try:
        with zipfile.ZipFile(file) as archive:
            return dict(_members(archive, file.stat().st_size))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, RuntimeError, TypeError, OverflowError) as error:
        raise damaged(file, str(error) or type(error).__name__) from error


def damaged(file: Path, why: str) -> MetricsError:
    """The one sentence about a file of a run that does not hold what it must."""
    return MetricsError(f"{file} cannot be read: {' '.join(why.split())[:300]}", code="damaged_run")


def _members(archive: zipfile.ZipFile, file_bytes: int) -> Iterator[tuple[str, Column]]:
    members = archive.infolist()
    if len(members) > MOST_MEMBERS or len({member.filename for member in members}) < len(members):
        raise ValueError("it holds too many members, or one twice")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it is compressed, as this program writes none")
    if sum(member.file_size for member in members) > file_bytes:
        raise ValueError("it announces more than it holds")
    for member in members:
        if not member.filename.endswith(".npy"):
            raise ValueError(f"{member.filename[:60]!r} is no column")
        with archive.open(member) as stream:
            yield member.filename.removesuffix(".npy"), _column(stream, member.file_size)


def _column(stream: Any, size: int) -> Column:
    """One array, once its header fits the bytes behind it."""
    shape, dtype = _header(stream)
    if len(shape) > _MOST_DIMENSIONS or math.prod(shape) * dtype.itemsize != size - stream.tell():
        raise ValueError(f"a column of shape {str(shape)[:60]} is not what the file holds")
    stream.seek(0)
    found: Column = npy.read_array(stream, allow_pickle=False)
    return found


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an .npy, as numpy writes them for numbers and texts; nothing else is parsed."""
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("an array of an unknown version")
    found = _HEADER.fullmatch(stream.read(int.from_bytes(stream.read(2), "little")))
    if found is None:
        raise ValueError("an array with a header that this program does not write")
    return tuple(int(length) for length in found[2].decode().split(",") if length.strip()), np.dtype(found[1].decode())
