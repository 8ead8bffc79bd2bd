"""Journals that did not reach the run directory, of workers on other machines, taken into it afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from loadtest.errors import UsageError
from loadtest.target import planned_by_worker
from metrics import folderlock, rundir
from metrics.journal import JournalContents, read_journal
from metrics.merge import journals_of, merge
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.sound import require_sound
from workloads.schedule import Schedule


class Merged(NamedTuple):
    """The run with all of it; how many requests the journals told of, and of how many the run knew already."""

    run: Run
    told: int
    known: int


def merge_journals(directory: Path, sources: Iterable[Path]) -> Merged:
    """Take the journals of `sources` (files, or folders that hold some) into the run in `directory`.

    What the run has already stays: its own journals are read and never written, and a table that was written counts
    where its journals are gone. Every request counts once, so merging again changes nothing. MetricsError when a
    journal is of another run, or the run is still going on.
    """
    info = rundir.read_info(directory)
    folderlock.hold(directory)
    try:
        before = _before(directory, info)
        given = [_of_this_run(info, file) for source in sources for file in _journals(source)]
        return _merged(directory, info, before, given)
    finally:
        folderlock.release(directory)


def _merged(
    directory: Path, info: RunInfo, before: Sequence[JournalContents], given: Sequence[JournalContents]
) -> Merged:
    rundir.read_plan(directory)  # with its checks, before the schedule is believed
    journals = [*before, *given]
    planned = planned_by_worker(Schedule.load(directory / rundir.SCHEDULE), directory, info.workers)
    table = require_sound(merge(journals, planned), directory)
    ended = {journal.worker for journal in journals if journal.ended}
    if info.state == "running" and ended >= set(range(info.workers)):
        info = msgspec.structs.replace(info, state="complete")
    rundir.write_table(directory, table)
    rundir.write_info(directory, info)
    told, known = _requests(given), _requests(before)
    return Merged(Run(info, table), len(told), int(np.isin(told, known).sum()))


def _before(directory: Path, info: RunInfo) -> list[JournalContents]:
    """What the run has: its own journals, and the table made of them, which may be all that was kept."""
    table = rundir.read_table(directory) if (directory / rundir.RECORDS).exists() else None
    stored = journals_of(require_sound(table, directory)) if table is not None else []
    return [*rundir.read_journals(directory, info), *stored]


def _of_this_run(info: RunInfo, file: Path) -> JournalContents:
    journal = read_journal(file)
    rundir.require_same_run(info, journal, file)
    return journal


def _requests(journals: Sequence[JournalContents]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The requests that any of them tells of, each once."""
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(j.rows["request_id"] for j in journals)]))


def _journals(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    found = sorted(source.glob("records-*.bin"))
    if not found:
        raise UsageError(
            f"{source} holds no journal", hint="name a worker's folder or its records-N.bin", code="no_journal"
        )
    return found
