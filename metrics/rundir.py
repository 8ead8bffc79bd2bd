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

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

from metrics import folderlock
from metrics.archive import damaged, load_columns, save_columns
from metrics.errors import MetricsError
from metrics.journal import JournalContents, read_journal
from metrics.merge import merge
from metrics.records import RECORD_DTYPE, RecordTable, Rows, WorkerStats
from metrics.runinfo import SCHEMA, RunInfo, run_id
from metrics.sound import events_of, planned_of, require_sound, rows_of
from metrics.storage import read_document, sync, write_atomically

T = TypeVar("T")

RUN, SCHEDULE, RECORDS, EVENTS = "run.json", "schedule.npz", "records.npz", "events.npz"
_MOST_WORKERS = 2**15
ERRORS, WORKERS = "errors.json", "workers.json"


@dataclass(eq=False)
class Run:
    """A run as it was recorded: what was asked, and what happened to every planned request."""

    info: RunInfo
    table: RecordTable


def create(path: Path) -> Path:
    """Make an empty run directory that is this process's alone until `release`, or until the process is gone.

    MetricsError `output_exists` when something is already there, `output_in_use` when another process has it.
    """
    occupied = not _made(path) and _occupied(path)
    if not occupied:
        folderlock.hold(path)
        occupied = _occupied(path)  # by a process that came and went between the two steps
        if occupied:
            folderlock.release(path)
    if occupied:
        raise MetricsError(
            f"the output {path} already exists and is not empty",
            code="output_exists",
            hint="choose another --out, or move the old run away",
        )
    return path


def create_numbered(path: Path) -> Path:
    """The same where the name is ours to choose: this one, or the first of NAME-2, NAME-3, ... that nobody has."""
    names = (path if number == 1 else path.with_name(f"{path.name}-{number}") for number in count(1))
    return create(next(name for name in names if _made(name) or not name.exists()))


def release(path: Path) -> None:
    """Nothing more is written there by this process."""
    folderlock.release(path)


def _made(path: Path) -> bool:
    """Whether it was this call that made the folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except (FileExistsError, NotADirectoryError):
        return False
    except OSError as error:
        raise MetricsError(f"cannot create {path}: {error.strerror}", code="output_unusable") from error
    return True


def _occupied(path: Path) -> bool:
    """Whether there is more than a lock that a dead process may have left."""
    try:
        return any(entry.name != folderlock.LOCK for entry in path.iterdir())
    except NotADirectoryError:
        return True
    except OSError as error:
        raise MetricsError(f"cannot look into {path}: {error.strerror}", code="output_unusable") from error


def journal_path(path: Path, worker: int) -> Path:
    """Where worker number `worker` writes its journal."""
    return path / f"records-{worker}.bin"


def write_info(path: Path, info: RunInfo) -> None:
    """Write run.json so that it survives a power cut."""
    document = msgspec.json.format(msgspec.json.encode(info), indent=2)
    write_atomically(path / RUN, document + b"\n")


def sync_plan(path: Path) -> None:
    """Force schedule.npz and the directory to the disk, before the first request is sent."""
    sync(path / SCHEDULE)
    sync(path)


def write_table(path: Path, table: RecordTable) -> None:
    """Write what happened; each file appears whole or not at all, records.npz last."""
    if table.events is not None:
        events = table.events
        save_columns(
            path / EVENTS,
            {"start": events.start, "us": events.us, "tokens": events.tokens, "lag_us": events.lag_us},
        )
    write_atomically(path / ERRORS, msgspec.json.encode(table.errors))
    write_atomically(path / WORKERS, msgspec.json.encode(table.workers))
    save_columns(path / RECORDS, {name: table.rows[name] for name in RECORD_DTYPE.names or ()})


def load(path: Path) -> Run:
    """Read a run; one that crashed before its end is rebuilt from its journals.

    A MetricsError is the worst that comes of foreign or damaged files.
    """
    info = read_info(path)
    table = read_table(path) if (path / RECORDS).exists() else rebuild(path, info)
    return Run(info, require_sound(table, path))


def read_info(path: Path) -> RunInfo:
    """Read run.json; MetricsError when it is missing, damaged or of another version."""
    if not (path / RUN).is_file():
        why = "is not there" if path.exists() else "is not there, nor is the folder"
        raise MetricsError(f"{path} is not a run directory: {RUN} {why}", code="not_a_run")
    info: RunInfo = read_document(path / RUN, RunInfo)
    if not 0 <= info.workers < _MOST_WORKERS or (info.gpus is not None and info.gpus < 1):
        raise damaged(path / RUN, "it has a number of workers or GPUs that no run has")
    if info.schema != SCHEMA:
        raise MetricsError(
            f"{path / RUN} has schema {info.schema!r}; this version reads {SCHEMA!r}",
            code="unknown_schema",
            hint="read it with the version that wrote it",
        )
    return info


def rebuild(path: Path, info: RunInfo) -> RecordTable:
    """The table from schedule.npz and whatever the workers' journals hold."""
    return merge(read_journals(path, info), read_plan(path))


def read_journals(path: Path, info: RunInfo) -> list[JournalContents]:
    """The journals in a run's folder; MetricsError when one is of another run."""
    found = [(file, read_journal(file)) for file in sorted(path.glob("records-*.bin"))]
    for file, journal in found:
        require_same_run(info, journal, file)
    return [journal for _, journal in found]


def require_same_run(info: RunInfo, journal: JournalContents, file: Path) -> None:
    """By the id that both carry; a journal from before there were ids is only checked for unplanned requests."""
    mine = run_id(info.name, info.salt, info.id)
    nameless = not journal.run and (not info.id or not len(journal.rows))
    if journal.run != mine and not nameless and (info.id or info.salt):
        raise MetricsError(
            f"{file} is the journal of run {journal.run[:200] or 'without a name'}, not of {mine}",
            hint="merge only journals of one run",
            code="other_run",
        )


def read_plan(path: Path) -> Rows:
    """The planned rows as they were before the run, from schedule.npz."""
    return planned_of(load_columns(path / SCHEDULE), path / SCHEDULE)


def read_table(path: Path) -> RecordTable:
    """What records.npz and the files beside it hold."""
    return RecordTable(
        rows_of(load_columns(path / RECORDS), path / RECORDS),
        events_of(load_columns(path / EVENTS), path / EVENTS) if (path / EVENTS).exists() else None,
        _list(path / ERRORS, list[str]),
        _list(path / WORKERS, list[WorkerStats]),
    )


def _list(file: Path, kind: type[list[T]]) -> list[T]:
    found: list[T] = read_document(file, kind) if file.exists() else []
    return found
