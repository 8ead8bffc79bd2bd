"""The crafted run directories by name; each function spoils a copy of the whole one."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from metrics import rundir
from metrics.journal import END, HEADER, RECORD, STATS
from metrics.records import RECORD_DTYPE
from tests.crafted.base import FRAMES_BEGIN, Craft, columns, crash, reframed

SIZE = RECORD_DTYPE.itemsize
BIG = 2**62


def cases() -> dict[str, Craft]:
    """All of them: name and what spoils the folder."""
    found: dict[str, Craft] = {}
    for group in (
        journals,
        headers,
        rows_in_journals,
        archives,
        columns_of_records,
        columns_of_events,
        documents,
        probes,
        flips,
    ):
        for name, craft in group():
            assert name not in found, name
            found[name] = craft
    return found


# --- journals ----------------------------------------------------------------------------------------------


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
    for name, counts in (("events", (BIG & 0xFFFFFFFF, 0)), ("one event more", (4, 0)), ("error bytes", (3, 65535))):
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
        ("no JSON", b"{"), ("a list", b"[]"), ("no worker", b"{}"), ("deep", b"[" * 100_000), ("huge", b'{"worker":' + b"9" * 5000 + b"}"),
        ("negative", b'{"worker":0,"cpu_s":-1,"reads":-5}'), ("large", b'{"worker":0,"zero_ns":99999999999999999999999}'),
        ("of another worker", b'{"worker":77}'), ("infinite", b'{"worker":0,"cpu_s":1e999}'),
    ):  # fmt: skip
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


ODD = {
    "request_id": (-1, BIG, 5),
    "session": (-BIG, BIG),
    "worker": (-5, 30_000),
    "slo_class": (255,),
    "scheduled_s": (np.nan, np.inf, -np.inf, 1e300, -5.0, 1e8),
    "sent_s": (np.inf, -1e18, -3.0, 1e8),
    "first_token_s": (np.inf, -7.0, 1e300),
    "last_token_s": (-np.inf, -7.0, 1e9),
    "done_s": (np.inf, -9.0, 9e8),
    "client_queue_s": (np.nan, np.inf, -4.0),
    "queue_s": (np.inf, 1e300, -1e300),
    "prompt_tokens": (-1, 2**31 - 1),
    "max_tokens": (-7, 2**31 - 1),
    "served_prompt_tokens": (-9, 2**31 - 1),
    "output_tokens": (-3, 2**31 - 1, 0),
    "hidden_tokens": (-3, 2**31 - 1),
    "token_events": (-3, 2**31 - 1, 1),
    "outcome": (10, 255),
    "phase": (9, 255),
    "http_status": (65_535,),
    "error_id": (-9, 10**6),
    "flags": (2**32 - 1,),
    "stamp_source": (7, 255),
    "reads": (-1, 2**31 - 1),
    "coalesced_reads": (2**31 - 1,),
    "loop_lag_max_us": (np.inf, -5.0, 3e38),
}


def rows_in_journals() -> Iterator[tuple[str, Craft]]:
    """Values that no request can have, in the rows of a journal."""
    for name, values in ODD.items():
        for value in values:
            yield f"journal: {name} {value:g}", partial(_records, change=partial(_with_value, name=name, value=value))


def _with_value(payload: bytes, name: str, value: float) -> bytes:
    row = np.frombuffer(payload[:SIZE], dtype=RECORD_DTYPE).copy()
    row[name] = value
    return row.tobytes() + payload[SIZE:]


# --- .npz --------------------------------------------------------------------------------------------------


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
    import warnings

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
    _changed(folder, file, {column: None})


def _changed(folder: Path, file: str, changed: dict[str, Any]) -> None:
    _as_plan(folder, file)
    found = columns(folder / file) | changed
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
    _changed(folder, rundir.RECORDS, {name: column})


def _reshaped(folder: Path, name: str, change: Any) -> None:
    _changed(folder, rundir.RECORDS, {name: change(columns(folder / rundir.RECORDS)[name])})


def _all_columns(folder: Path, change: Any) -> None:
    found = {name: change(column) for name, column in columns(folder / rundir.RECORDS).items()}
    _changed(folder, rundir.RECORDS, found)
    (folder / rundir.EVENTS).unlink()


def _swapped(folder: Path) -> None:
    found = columns(folder / rundir.RECORDS)
    _changed(
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
    }  # fmt: skip
    for name, change in changes.items():
        yield f"events: {name}", partial(_events, changes=change)


def _events(folder: Path, changes: dict[str, Any]) -> None:
    found = columns(folder / rundir.EVENTS)
    _changed(folder, rundir.EVENTS, {name: change(found[name]) for name, change in changes.items()})


# --- documents ---------------------------------------------------------------------------------------------


def documents() -> Iterator[tuple[str, Craft]]:
    """JSON files with what msgspec lets through and what it does not."""
    odd: dict[str, tuple[Any, ...]] = {
        "gpus": (0, -1, 10**12, 2**70, "two"),
        "workers": (-1, 0, 10**9, 2**70),
        "requests": (-1, 10**18),
        "stopped_at_s": (-1.0, 0.0, 1e308, "x"),
        "duration_s": (0.0, -1.0, 1e308),
        "rate_per_s": (0.0, -1.0, 1e308, 1e-308),
        "warmup_s": (-1.0, 1e308),
        "slo": ("x", "ttft=1s" * 5000, "ttft=1e999s", "\x1b[31m", "ttft=-1s"),
        "name": ("", "\x1b]0;x\x07", "../../x", "n" * 100_000, "\ud7ff"),
        "deployment": ("emulated:", "emulated:nope,tp=99999999999999999999", "a" * 10_000),
        "created_at": ("yesterday", "9999-99-99"),
        "server": (
            {"extrapolated_share": "x"}, {"extrapolated_share": -5}, {"prefix_cache_hits": "many"}, {"usd": "x", "wh": None},
            {"usd": -1.0, "wh": -1.0, "power_model": "x", "idle_share": 2.0}, {"usd": 1e308, "wh": 1e308, "power_model": 5, "idle_share": "x"},
            {"clock": 5}, {"measured": "x"},
        ),
        "config": ({"master": {"value": []}}, {"x": {}}, {"max_in_flight": {"value": "x"}}, {"a": {"value": ["<script>"]}}),
        "warnings": (["\x1b[2J" * 1000],),
        "tags": ({"\n": "\r::error::x"},),
        "rejected": ({"zero": -5},),
        "state": ("nope", "running", "partial"),
        "versions": ({"goodput": "9" * 10_000},),
        "seed": (2**63, -(2**70)),
        "realtime_minus_monotonic_ns": (2**80, -1),
    }  # fmt: skip
    for key, values in odd.items():
        for number, value in enumerate(values):
            yield (
                f"run.json: {key} {number}",
                partial(_json, file=rundir.RUN, change=lambda d, k=key, v=value: d | {k: v}),
            )
    for file in (rundir.RUN, rundir.ERRORS, rundir.WORKERS, "prediction.json"):
        for name, content in (
            ("empty", b""), ("deep", b"[" * 200_000), ("long number", b'{"seed":' + b"1" * 10_000 + b"}"), ("nan", b"[NaN]"), ("surrogate", b'["\\ud800"]'),
            ("no utf-8", b'["\xff"]'), ("another kind", b"17"), ("objects", b"[{}]"), ("big floats", b"[1e999]"),
        ):  # fmt: skip
            yield f"{file}: {name}", partial(_whole, file=file, content=content)
    yield "errors.json: none", partial(_whole, file=rundir.ERRORS, content=b"[]")
    yield "errors.json: many", partial(_whole, file=rundir.ERRORS, content=json.dumps(["x" * 1000] * 5000).encode())
    for name, value in (("zero_ns", -1), ("zero_ns", 2**63), ("cpu_s", -1), ("wall_s", 0), ("reads", -1), ("torn_frames", -3), ("worker", 2**40), ("clock_steps", -1), ("connections_opened", -1), ("cached_prompt_tokens", 2**62)):  # fmt: skip
        yield (
            f"workers.json: {name} {value}",
            partial(_json, file=rundir.WORKERS, change=lambda d, n=name, v=value: [d[0] | {n: v}] * 3),
        )
    for name, odd_value in (("attainment", 1e308), ("attainment", -1), ("ttft_s", {"n": 0}), ("output_tokens_per_s", -1e308), ("source", "\x1b[31m"), ("notes", ["x"] * 10_000)):  # fmt: skip
        yield (
            f"prediction.json: {name} {str(odd_value)[:12]}",
            partial(_json, file="prediction.json", change=lambda d, n=name, v=odd_value: d | {n: v}),
        )


def _json(folder: Path, file: str, change: Any) -> None:
    (folder / file).write_text(json.dumps(change(json.loads((folder / file).read_bytes()))))


def _whole(folder: Path, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)


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
        _changed(folder, "probes.npz", {name: change(found[name]) for name, change in changes.items()})


def flips() -> Iterator[tuple[str, Craft]]:
    """Some bytes of any file changed, drawn from a seed."""
    for seed in range(40):
        yield f"flips {seed}", partial(_flip, seed=seed)


def _flip(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if rng.random() < 0.4:
        crash(folder)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    file = files[int(rng.integers(len(files)))]
    data = bytearray(file.read_bytes())
    for _ in range(int(rng.integers(1, 8))):
        data[int(rng.integers(len(data)))] = int(rng.integers(256))
    file.write_bytes(data)
