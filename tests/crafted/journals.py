"""Journals: cut anywhere, frames of wrong lengths, headers of other types, rows that cannot be."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metrics import rundir
from metrics.journal import END, HEADER, RECORD, STATS
from metrics.records import RECORD_DTYPE
from tests.crafted.base import FRAMES_BEGIN, Craft, crash, reframed
from tests.crafted.odd import ODD

SIZE = RECORD_DTYPE.itemsize


def journals() -> Iterator[tuple[str, Craft]]:
    """Files cut anywhere, frames of wrong lengths, marks without end."""
    for size in (0, 1, 7, FRAMES_BEGIN - 1, FRAMES_BEGIN, FRAMES_BEGIN + 3, FRAMES_BEGIN + 20, 1500, 1700, 2500):
        yield f"journal cut at {size}", partial(_cut, size=size)
    for name, content in (("zeros", bytes(5000)), ("text", b"hello"), ("old magic only", b"goodput journal\n")):
        yield f"journal of {name}", partial(_content, content=content)
    yield "journal of marks", partial(_content, content=b"goodput journal 2\n" + bytes(200_000))
    yield (
        "journal of marks and lengths",
        partial(
            _content,
            content=b"goodput journal 2\n" + b"\x01" * 8 + (b"\x01" * 8 + struct.pack("<IIB", 100_000, 7, 1)) * 9000,
        ),
    )
    for name, counts in (("events", (2**32 - 1, 0)), ("one event more", (4, 0)), ("error bytes", (3, 65535))):
        yield f"record announces {name}", partial(_records, change=partial(_announced, counts=counts))
    for keep in (0, 1, SIZE - 1, SIZE, SIZE + 3, SIZE + 6, SIZE + 9):
        yield f"record of {keep} bytes", partial(_records, change=partial(_shortened, keep=keep))
    yield "record twice as long", partial(_records, change=lambda payload: payload * 2)
    yield (
        "error text is no utf-8",
        partial(_records, change=lambda p: p[:SIZE] + struct.pack("<IH", 0, 3) + b"\xff\xfe\x80"),
    )
    for kind in (4, 99, 255):
        yield f"frames of kind {kind}", partial(_frames, change=lambda k, p, kind=kind: [(kind, b"x"), (k, p)])
    yield "frames without header", partial(_frames, change=lambda k, p: [(k, p)] if k != HEADER else [])
    yield (
        "header after records",
        partial(_frames, change=lambda k, p: [(k, p), (HEADER, _header())] if k == RECORD else [(k, p)]),
    )
    yield "two headers", partial(_frames, change=lambda k, p: [(k, p)] * (1 + (k == HEADER)))
    yield "records a thousand times", partial(_frames, change=lambda k, p: [(k, p)] * (1000 if k == RECORD else 1))
    yield "only an end", partial(_frames, change=lambda k, p: [(k, p)] if k == END else [])
    for name, text in (
        ("no JSON", b"{"),
        ("a list", b"[]"),
        ("no worker", b"{}"),
        ("deep", b"[" * 100_000),
        ("huge", b'{"worker":' + b"9" * 5000 + b"}"),
        ("negative", b'{"worker":0,"cpu_s":-1,"reads":-5}'),
        ("large", b'{"worker":0,"zero_ns":99999999999999999999999}'),
        ("of another worker", b'{"worker":77}'),
        ("infinite", b'{"worker":0,"cpu_s":1e999}'),
    ):
        yield f"stats: {name}", partial(_frames, change=lambda k, p, text=text: [(k, text if k == STATS else p)])


def _cut(folder: Path, size: int) -> None:
    crash(folder)
    file = rundir.journal_path(folder, 0)
    file.write_bytes(file.read_bytes()[:size])


def _content(folder: Path, content: bytes) -> None:
    crash(folder)
    rundir.journal_path(folder, 0).write_bytes(content)


def _frames(folder: Path, change: Any) -> None:
    reframed(folder, change)


def _records(folder: Path, change: Any) -> None:
    reframed(folder, lambda kind, payload: [(kind, change(payload) if kind == RECORD else payload)])


def _announced(payload: bytes, counts: tuple[int, int]) -> bytes:
    return payload[:SIZE] + struct.pack("<IH", *counts) + payload[SIZE + 6 :]


def _shortened(payload: bytes, keep: int) -> bytes:
    return payload[:keep]


def headers() -> Iterator[tuple[str, Craft]]:
    """Rows of other types than ours."""
    plain = [[name, RECORD_DTYPE[name].str] for name in RECORD_DTYPE.names or ()]
    other = {
        "objects": [["request_id", "|O"]],
        "voids": [["request_id", "|V8"]],
        "texts": [["request_id", "<U100"]],
        "sub arrays": [["request_id", "(1000000,)f8"]],
        "floats": [["request_id", "<f8"]],
        "dates": [["request_id", "<M8[s]"]],
        "big endian": [["request_id", ">i8"]],
        "nothing": [],
        "no request": [["session", "<i8"]],
        "one twice": [*plain, plain[0]],
        "a hundred thousand": [*plain, *([f"c{i}", "<f8"] for i in range(100_000))],
        "outcome as float": [[name, "<f8" if name == "outcome" else code] for name, code in plain],
        "long items": [["request_id", "|i1000000000"]],
        "no type": [["request_id", ""]],
        "a comma type": [["request_id", "i8,i8"]],
    }
    for name, dtype in other.items():
        yield f"header of {name}", partial(_headed, header=_header(dtype=dtype))
    for name, value in (
        ("worker", -1),
        ("worker", 10**6),
        ("worker", 10**30),
        ("schema", "goodput.journal/99"),
        ("run", "other"),
    ):
        yield f"header with {name} {value}", partial(_headed, header=_header(**{name: value}))
    yield "header that is no JSON", partial(_headed, header=b"\xff{")
    yield "header that is deep", partial(_headed, header=b'{"worker":' + b"[" * 50_000)


def _header(**changed: Any) -> bytes:
    plain = [[name, RECORD_DTYPE[name].str] for name in RECORD_DTYPE.names or ()]
    return json.dumps(
        {"worker": 0, "run": "run-5a17-1d", "schema": "goodput.journal/1", "dtype": plain} | changed
    ).encode()


def _headed(folder: Path, header: bytes) -> None:
    reframed(folder, lambda kind, payload: [(kind, header if kind == HEADER else payload)])


def rows_in_journals() -> Iterator[tuple[str, Craft]]:
    """Values that no request can have, in the rows of a journal."""
    for name, values in ODD.items():
        for value in values:
            yield f"journal: {name} {value:g}", partial(_records, change=partial(_with_value, name=name, value=value))


def _with_value(payload: bytes, name: str, value: float) -> bytes:
    row = np.frombuffer(payload[:SIZE], dtype=RECORD_DTYPE).copy()
    row[name] = value
    return row.tobytes() + payload[SIZE:]
