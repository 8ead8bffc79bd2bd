"""Journals that did not reach the run directory, of workers on other machines, taken into it afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from loadtest.errors import UsageError
from loadtest.target import planned_by_worker, run_id
from metrics import rundir
from metrics.journal import JournalContents, read_journal
from metrics.merge import merge
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from workloads.schedule import Schedule


def merge_journals(directory: Path, sources: Iterable[Path]) -> Run:
    """The run in `directory` with the journals of `sources` (files, or folders that hold some), written back.

    Of two copies of one worker's journal the longer counts; every request counts once. UsageError when a journal
    is of another run.
    """
    info = rundir.read_info(directory)
    files = [*sorted(directory.glob("records-*.bin")), *(file for source in sources for file in _journals(source))]
    longest: dict[int, JournalContents] = {}
    for file in files:
        journal = read_journal(file)
        _require_same_run(info, journal, file)
        best = longest.get(journal.worker)
        if best is None or (len(journal.rows), journal.ended) > (len(best.rows), best.ended):
            longest[journal.worker] = journal
    planned = planned_by_worker(Schedule.load(directory / rundir.SCHEDULE), directory, info.workers)
    table = merge(list(longest.values()), planned)
    state = info.state
    if state == "running" and len(longest) == info.workers and all(journal.ended for journal in longest.values()):
        state = "complete"
    info = msgspec.structs.replace(info, state=state)
    rundir.write_table(directory, table)
    rundir.write_info(directory, info)
    return Run(info, table)


def _journals(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    found = sorted(source.glob("records-*.bin"))
    if not found:
        raise UsageError(
            f"{source} holds no journal", hint="name a worker's folder or its records-N.bin", code="no_journal"
        )
    return found


def _require_same_run(info: RunInfo, journal: JournalContents, file: Path) -> None:
    """By the id each journal carries; one written before there were ids is only checked for unplanned requests."""
    if journal.run and info.salt and not journal.run.endswith(run_id("", info.salt)):
        raise UsageError(
            f"{file} is the journal of run {journal.run}, not of {info.name}",
            hint="merge only journals of one run",
            code="other_run",
        )
