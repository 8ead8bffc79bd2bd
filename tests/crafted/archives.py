"""Files of columns: members that announce what they do not hold, and columns that do not belong together."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metrics import rundir
from tests.crafted.base import Craft, columns, crash
from tests.crafted.odd import ODD


def archives() -> Iterator[tuple[str, Craft]]:
    """Members that announce what they do not hold, or hold what is none of ours."""
    for file, column in (
        (rundir.RECORDS, "request_id"),
        (rundir.EVENTS, "us"),
        (rundir.SCHEDULE, "request_id"),
        ("probes.npz", "at_s"),
    ):
        for name, shape in (
            ("huge", (2**40,)),
            ("overflowing", (2**40, 2**40)),
            ("negative", (-1,)),
            ("three", (1, 1, 1)),
            ("smaller", (1,)),
        ):
            yield f"{file}: {name} shape", partial(_member, file=file, column=column, content=_npy(shape, "<i8"))
        for code in ("|O", "|V8", "<c16", "<M8[s]", "|S3", "<U100000", "(1000000,)f8", ">i8", "|b1"):
            yield f"{file}: {column} of {code}", partial(_member, file=file, column=column, content=_npy((1,), code))
        yield (
            f"{file}: header of code",
            partial(_member, file=file, column=column, content=_npy_text("{'shape': __import__('os')}")),
        )
        yield f"{file}: header is deep", partial(_member, file=file, column=column, content=_npy_text("(" * 5000))
        yield (
            f"{file}: header is long",
            partial(_member, file=file, column=column, content=_npy_text("{" + " " * 60_000)),
        )
        yield f"{file}: no magic", partial(_member, file=file, column=column, content=b"hello")
        yield f"{file}: empty member", partial(_member, file=file, column=column, content=b"")
        yield f"{file}: other member", partial(_member, file=file, column="../../x.txt", content=b"hello")
        yield f"{file}: bomb", partial(_bomb, file=file, column=column)
        yield f"{file}: bzip2", partial(_resaved, file=file, method=zipfile.ZIP_BZIP2)
        yield f"{file}: member twice", partial(_twice, file=file, column=column)
        yield f"{file}: members without end", partial(_crowd, file=file)
        for part in (0, 1, 30, 300):
            yield f"{file}: cut to {part} bytes", partial(_truncated, file=file, size=part)
        for drop in sorted(set(_known(file))):
            yield f"{file}: without {drop}", partial(_without, file=file, column=drop)


def _known(file: str) -> tuple[str, ...]:
    return {
        rundir.RECORDS: ("request_id", "scheduled_s", "outcome"),
        rundir.EVENTS: ("start", "us", "tokens", "lag_us"),
        rundir.SCHEDULE: ("request_id", "scheduled_s", "warmup", "max_tokens"),
        "probes.npz": ("at_s", "source", "values", "sources", "metrics"),
    }[file]


def _npy(shape: tuple[int, ...], code: str) -> bytes:
    return _npy_text(repr({"descr": code, "fortran_order": False, "shape": shape})) + bytes(8)


def _npy_text(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n"


def _member(folder: Path, file: str, column: str, content: bytes) -> None:
    _as_plan(folder, file)
    members = _raw(folder / file)
    members[column if column.endswith(".txt") else f"{column}.npy"] = content
    _write(folder / file, list(members.items()))


def _as_plan(folder: Path, file: str) -> None:
    if file == rundir.SCHEDULE:  # which only a crashed run needs
        crash(folder)


def _raw(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(file: Path, members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)


def _bomb(folder: Path, file: str, column: str) -> None:
    _as_plan(folder, file)
    count = 40_000_000
    header = _npy_text(repr({"descr": "<i8", "fortran_order": False, "shape": (count,)}))
    members = list(_raw(folder / file).items())
    with zipfile.ZipFile(folder / file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members:
            if name != f"{column}.npy":
                archive.writestr(name, content)
        with archive.open(f"{column}.npy", "w") as stream:
            stream.write(header)
            for _ in range(count * 8 // 1_000_000):
                stream.write(bytes(1_000_000))


def _resaved(folder: Path, file: str, method: int) -> None:
    _as_plan(folder, file)
    _write(folder / file, list(_raw(folder / file).items()), method)


def _twice(folder: Path, file: str, column: str) -> None:
    _as_plan(folder, file)
    members = list(_raw(folder / file).items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _write(folder / file, [*members, (f"{column}.npy", _npy((1,), "<i8"))])


def _crowd(folder: Path, file: str) -> None:
    _as_plan(folder, file)
    _write(folder / file, [*_raw(folder / file).items(), *((f"{i}.npy", b"") for i in range(2000))])


def _truncated(folder: Path, file: str, size: int) -> None:
    _as_plan(folder, file)
    (folder / file).write_bytes((folder / file).read_bytes()[:size])


def _without(folder: Path, file: str, column: str) -> None:
    changed(folder, file, {column: None})


def changed(folder: Path, file: str, by: dict[str, Any]) -> None:
    """Save some columns anew; None leaves one out."""
    _as_plan(folder, file)
    found = columns(folder / file) | by
    buffer = io.BytesIO()
    np.savez(buffer, **{name: column for name, column in found.items() if column is not None})
    (folder / file).write_bytes(buffer.getvalue())


def columns_of_records() -> Iterator[tuple[str, Craft]]:
    """Values that no request can have in records.npz, and columns that do not belong together."""
    for name, values in ODD.items():
        for value in values:
            yield f"records: {name} {value:g}", partial(_one_value, name=name, value=value)
    for name in ("outcome", "sent_s", "flags", "warmup", "error_id"):
        yield f"records: {name} too short", partial(_reshaped, name=name, change=lambda c: c[:-1])
        yield f"records: {name} in two dimensions", partial(_reshaped, name=name, change=lambda c: c.reshape(-1, 1))
        yield f"records: {name} as texts", partial(_reshaped, name=name, change=lambda c: c.astype("U8"))
        yield (
            f"records: {name} as large numbers",
            partial(_reshaped, name=name, change=lambda c: np.full(len(c), 2**63, dtype="u8")),
        )
        yield f"records: {name} as one number", partial(_reshaped, name=name, change=lambda c: c[0])
    yield "records: none at all", partial(_all_columns, change=lambda c: c[:0])
    yield "records: one only", partial(_all_columns, change=lambda c: c[:1])
    yield "records: swapped times", _swapped
    yield "records: requests twice", partial(_reshaped, name="request_id", change=lambda c: np.zeros_like(c))


def _one_value(folder: Path, name: str, value: float) -> None:
    column = columns(folder / rundir.RECORDS)[name]
    column[3:6] = value
    changed(folder, rundir.RECORDS, {name: column})


def _reshaped(folder: Path, name: str, change: Any) -> None:
    changed(folder, rundir.RECORDS, {name: change(columns(folder / rundir.RECORDS)[name])})


def _all_columns(folder: Path, change: Any) -> None:
    found = {name: change(column) for name, column in columns(folder / rundir.RECORDS).items()}
    changed(folder, rundir.RECORDS, found)
    (folder / rundir.EVENTS).unlink()


def _swapped(folder: Path) -> None:
    found = columns(folder / rundir.RECORDS)
    changed(
        folder,
        rundir.RECORDS,
        {"first_token_s": found["last_token_s"], "last_token_s": found["scheduled_s"], "sent_s": found["done_s"]},
    )


def columns_of_events() -> Iterator[tuple[str, Craft]]:
    """Starts that do not rise, do not end where the events do, or are of another run."""
    changes: dict[str, Any] = {
        "unsorted starts": {"start": lambda c: c[::-1].copy()},
        "overlapping starts": {"start": lambda c: np.where(np.arange(len(c)) == 4, 9, c)},
        "starts from 5": {"start": lambda c: c + 5},
        "negative starts": {"start": lambda c: c - 3},
        "huge starts": {"start": lambda c: c * 10**15},
        "one start more": {"start": lambda c: np.append(c, c[-1])},
        "no start": {"start": lambda c: c[:0]},
        "short tokens": {"tokens": lambda c: c[:-1]},
        "short lags": {"lag_us": lambda c: c[:2]},
        "long times": {"us": lambda c: np.append(c, c)},
        "times that fall": {"us": lambda c: c[::-1].copy()},
        "times at the end": {"us": lambda c: np.full_like(c, 2**32 - 1)},
        "tokens of 65535": {"tokens": lambda c: np.full_like(c, 65_535)},
        "no tokens": {"tokens": lambda c: np.zeros_like(c)},
        "floats": {"us": lambda c: c.astype("f8") * np.nan},
        "all of the first": {"start": lambda c: np.where(np.arange(len(c)) > 0, c[-1], 0)},
        "small starts": {"start": lambda c: c.astype("i1")},
    }
    for name, change in changes.items():
        yield f"events: {name}", partial(_events, changes=change)


def _events(folder: Path, changes: dict[str, Any]) -> None:
    found = columns(folder / rundir.EVENTS)
    changed(folder, rundir.EVENTS, {name: change(found[name]) for name, change in changes.items()})


def probes() -> Iterator[tuple[str, Craft]]:
    """Samples of pages that nobody named, at no time."""
    changes: dict[str, dict[str, Any]] = {
        "of an unknown page": {"source": lambda c: c + 7},
        "of a negative page": {"source": lambda c: c - 1},
        "at no time": {"at_s": lambda c: c * np.nan},
        "at the end of time": {"at_s": lambda c: c + 1e300},
        "that are infinite": {"values": lambda c: c * np.inf},
        "that are negative": {"values": lambda c: -c},
        "too few": {"values": lambda c: c[:-1]},
        "in one row": {"values": lambda c: c.ravel()},
        "with unknown names": {"metrics": lambda c: np.array([f"m{i}" for i in range(len(c))])},
        "with one name": {"metrics": lambda c: np.array(["ttft_sum"] * len(c))},
        "named by numbers": {"metrics": lambda c: np.arange(len(c))},
        "of pages named by escapes": {"sources": lambda _: np.array(["\x1b[31m<b>"])},
        "of no page": {"sources": lambda c: c[:0]},
    }
    for name, change in changes.items():
        yield f"probes: {name}", partial(_probes, changes=change)


def _probes(folder: Path, changes: dict[str, Any]) -> None:
    found = columns(folder / "probes.npz")
    with np.errstate(all="ignore"):
        changed(folder, "probes.npz", {name: change(found[name]) for name, change in changes.items()})
