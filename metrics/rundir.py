"""A run directory: written so that a crash at any moment leaves something that can be read.

run.json             RunInfo; fsynced with schedule.npz before the first send
schedule.npz         what was planned, one array per column
records-<worker>.bin journals (metrics/journal.py)
records.npz          what happened, one array per column; absent while the run is going on
events.npz           token events, ragged
errors.json          distinct error texts, by id
workers.json         what each worker said of itself
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.errors import MetricsError
from metrics.journal import read_journal
from metrics.merge import PLANNED_COLUMNS, merge, planned_rows
from metrics.records import RECORD_DTYPE, EventTimes, RecordTable, Rows, WorkerStats, empty_rows
from metrics.runinfo import SCHEMA, RunInfo

T = TypeVar("T")
Column = NDArray[np.generic]

RUN, SCHEDULE, RECORDS, EVENTS = "run.json", "schedule.npz", "records.npz", "events.npz"
ERRORS, WORKERS = "errors.json", "workers.json"


@dataclass(eq=False)
class Run:
    """A run as it was recorded: what was asked, and what happened to every planned request."""

    info: RunInfo
    table: RecordTable


def create(path: Path) -> Path:
    """Make an empty run directory; MetricsError `output_exists` when something is already there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        occupied = any(path.iterdir())
    except (FileExistsError, NotADirectoryError):
        occupied = True
    except OSError as error:
        raise MetricsError(f"cannot create {path}: {error.strerror}", code="output_unusable") from error
    if occupied:
        raise MetricsError(
            f"the output {path} already exists and is not empty",
            code="output_exists",
            hint="choose another --out, or move the old run away",
        )
    return path


def journal_path(path: Path, worker: int) -> Path:
    """Where worker number `worker` writes its journal."""
    return path / f"records-{worker}.bin"


def write_info(path: Path, info: RunInfo) -> None:
    """Write run.json so that it survives a power cut."""
    document = msgspec.json.format(msgspec.json.encode(info), indent=2)
    write_atomically(path / RUN, document + b"\n")


def sync_plan(path: Path) -> None:
    """Force schedule.npz and the directory to the disk, before the first request is sent."""
    _sync(path / SCHEDULE)
    _sync(path)


def write_table(path: Path, table: RecordTable) -> None:
    """Write what happened; each file appears whole or not at all, records.npz last."""
    if table.events is not None:
        events = table.events
        _save(
            path / EVENTS,
            {"start": events.start, "us": events.us, "tokens": events.tokens, "lag_us": events.lag_us},
        )
    write_atomically(path / ERRORS, msgspec.json.encode(table.errors))
    write_atomically(path / WORKERS, msgspec.json.encode(table.workers))
    _save(path / RECORDS, {name: table.rows[name] for name in RECORD_DTYPE.names or ()})


def load(path: Path) -> Run:
    """Read a run; one that crashed before its end is rebuilt from its journals."""
    info = read_info(path)
    if (path / RECORDS).exists():
        return Run(info, _read_table(path))
    return Run(info, rebuild(path))


def read_info(path: Path) -> RunInfo:
    """Read run.json; MetricsError when it is missing, damaged or of another version."""
    try:
        info = msgspec.json.decode((path / RUN).read_bytes(), type=RunInfo)
    except OSError as error:
        raise MetricsError(
            f"{path} is not a run directory: {RUN} cannot be read ({error.strerror})", code="not_a_run"
        ) from error
    except msgspec.MsgspecError as error:
        raise MetricsError(f"{path / RUN} is damaged: {error}", code="damaged_run") from error
    if info.schema != SCHEMA:
        raise MetricsError(
            f"{path / RUN} has schema {info.schema!r}; this version reads {SCHEMA!r}",
            code="unknown_schema",
            hint="read it with the version that wrote it",
        )
    return info


def rebuild(path: Path) -> RecordTable:
    """The table from schedule.npz and whatever the workers' journals hold."""
    journals = [read_journal(file) for file in sorted(path.glob("records-*.bin"))]
    return merge(journals, read_plan(path))


def read_plan(path: Path) -> Rows:
    """The planned rows as they were before the run, from schedule.npz."""
    columns = _load(path / SCHEDULE)
    missing = {"request_id", *PLANNED_COLUMNS} - set(columns)
    if missing:
        raise MetricsError(f"{path / SCHEDULE} lacks {', '.join(sorted(missing))}", code="damaged_run")
    return planned_rows(columns)


def write_atomically(file: Path, content: bytes) -> None:
    """Write a file that is either the old or the new one, also after a power cut."""
    with _replacing(file) as stream:
        stream.write(content)


@contextmanager
def _replacing(file: Path) -> Iterator[BinaryIO]:
    """A temporary file beside `file` that takes its name once it is safely on the disk."""
    temporary = file.with_name(file.name + ".tmp")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _save(file: Path, columns: Mapping[str, Any]) -> None:
    with _replacing(file) as stream:
        np.savez(stream, **columns)


def _load(file: Path) -> dict[str, Column]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise MetricsError(f"{file} cannot be read: {error}", code="damaged_run") from error


def _read_table(path: Path) -> RecordTable:
    columns = _load(path / RECORDS)
    rows = empty_rows(len(columns["request_id"]) if "request_id" in columns else 0)
    for name in set(columns) & set(RECORD_DTYPE.names or ()):
        rows[name] = columns[name]
    return RecordTable(
        rows,
        _read_events(path / EVENTS),
        _read_json(path / ERRORS, list[str]),
        _read_json(path / WORKERS, list[WorkerStats]),
    )


def _read_events(file: Path) -> EventTimes | None:
    if not file.exists():
        return None
    stored = _load(file)
    return EventTimes(
        stored["start"].astype(np.int64),
        stored["us"].astype(np.uint32),
        stored["tokens"].astype(np.uint16),
        stored["lag_us"].astype(np.uint16),
    )


def _read_json(file: Path, of: type[list[T]]) -> list[T]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=of)
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        raise MetricsError(f"{file} cannot be read: {error}", code="damaged_run") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
