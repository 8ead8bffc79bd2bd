"""From the workers' journals to one table: every planned request once, whatever happened to its worker."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metrics.errors import MetricsError
from metrics.journal import JournalContents
from metrics.records import PLANNED_COLUMNS, EventTimes, Outcome, RecordTable, Rows, WorkerStats, empty_rows

DISTINCT_ERRORS = 200
OTHER_ERRORS = "more distinct errors than are kept"

Index = NDArray[np.int64]


def merge(journals: Sequence[JournalContents], planned: Rows) -> RecordTable:
    """Put the journals' rows in the plan's order, each request id once.

    `planned` are the rows as they were before the run (`worker` set where known). Of two records of one
    request the one that was sent first counts. A planned row without a record becomes LOST_WORKER when its
    worker (any worker, where the plan does not say) has no ended journal, else stays NOT_SENT. A worker may
    have several journals, copies of each other or parts: one that is ended is enough, and its last STATS count.
    """
    written = _concatenate(journals)
    rows = planned.copy()
    _mark_unreported(rows, journals)
    position, source = _first_records(written.rows, planned)
    rows[position] = written.rows[source]
    waited_s = rows["scheduled_s"].copy()  # a turn that waits for an answer gets its instant during the run
    for column in PLANNED_COLUMNS:
        rows[column] = planned[column]
    np.copyto(rows["scheduled_s"], waited_s, where=np.isnan(planned["scheduled_s"]))
    texts = [written.errors[i] for i in source]
    rows["error_id"] = -1
    rows["error_id"][position], errors = _distinct(texts)
    events = _gather(written.events, len(rows), position, source)
    return RecordTable(rows, events, errors, _stats(journals))


def journals_of(table: RecordTable) -> list[JournalContents]:
    """A stored table as the journals it was made of, for merging more into it: one for each of its workers.

    Rows that were never reported are left out; a worker that lost none of its own is one whose journal ended.
    """
    rows = table.rows
    lost = rows["outcome"] == Outcome.LOST_WORKER
    reported = ~lost & ((rows["outcome"] != Outcome.NOT_SENT) | (rows["error_id"] >= 0))
    events = table.events if table.events is not None else EventTimes.empty(len(rows))
    stats = {worker.worker: worker for worker in table.workers}
    found = []
    for worker in sorted({*rows["worker"].tolist(), *stats}):
        mine = rows["worker"] == worker
        source = np.flatnonzero(mine & reported)
        texts = [table.errors[i] if i >= 0 else "" for i in rows["error_id"][source].tolist()]
        kept = _gather(events, len(source), np.arange(len(source)), source)
        ended = not (mine & lost).any()
        found.append(JournalContents(worker, rows[source], kept, texts, stats.get(worker), ended))
    return found


def _stats(journals: Sequence[JournalContents]) -> list[WorkerStats]:
    """What each worker says of itself: of several journals, what the ended or else the longest one holds."""
    best: dict[int, JournalContents] = {}
    for journal in journals:
        known = best.get(journal.worker)
        if journal.stats is not None and (known is None or _rank(journal) > _rank(known)):
            best[journal.worker] = journal
    return [journal.stats for journal in best.values() if journal.stats is not None]


def _rank(journal: JournalContents) -> tuple[bool, int]:
    return journal.ended, len(journal.rows)


def _concatenate(journals: Sequence[JournalContents]) -> JournalContents:
    counts = np.concatenate([np.diff(j.events.start) for j in journals] or [np.zeros(0, dtype=np.int64)])
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    none = EventTimes.empty(0)
    parts = [none, *(j.events for j in journals)]
    events = EventTimes(
        starts,
        np.concatenate([part.us for part in parts]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.lag_us for part in parts]),
    )
    rows = np.concatenate([empty_rows(0), *(j.rows for j in journals)])
    return JournalContents(-1, rows, events, [text for j in journals for text in j.errors])


def _first_records(written: Rows, planned: Rows) -> tuple[Index, Index]:
    """For every planned row that has a record: its place in the plan, and the record that counts."""
    if not len(written):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    by_id = np.argsort(planned["request_id"], kind="stable")
    ids = planned["request_id"][by_id]
    found = np.searchsorted(ids, written["request_id"])
    known = found < len(ids)
    known[known] = ids[found[known]] == written["request_id"][known]
    if not known.all():
        stranger = int(written["request_id"][~known][0])
        raise MetricsError(
            f"a journal holds request {stranger}, which this run did not plan",
            code="unplanned_request",
            hint="the journals and the schedule come from different runs",
        )
    place = by_id[found]
    # NaN (never sent) sorts last, so a record that was sent wins over one that was not.
    order = np.lexsort((written["sent_s"], place))
    _, first = np.unique(place[order], return_index=True)
    source = order[first]
    return place[source], source


def _mark_unreported(rows: Rows, journals: Sequence[JournalContents]) -> None:
    ended = {j.worker for j in journals if j.ended}
    lost = ~np.isin(rows["worker"], list(ended))
    if all(j.worker in ended for j in journals):
        lost &= rows["worker"] >= 0
    rows["outcome"][lost] = Outcome.LOST_WORKER


def _distinct(texts: Sequence[str]) -> tuple[list[int], list[str]]:
    """An id per text (-1 for none) and the distinct texts, capped."""
    known: dict[str, int] = {}
    ids = []
    for text in texts:
        if text and text not in known and len(known) >= DISTINCT_ERRORS - 1:
            text = OTHER_ERRORS
        ids.append(known.setdefault(text, len(known)) if text else -1)
    return ids, list(known)


def _gather(events: EventTimes, rows: int, position: Index, source: Index) -> EventTimes:
    """The events of record `source[i]` as those of row `position[i]` (both ascending in position)."""
    counts = np.zeros(rows, dtype=np.int64)
    length = np.diff(events.start)[source]
    counts[position] = length
    starts = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    total = int(starts[-1])
    shift = np.repeat(events.start[:-1][source] - starts[position], length)
    index = np.arange(total) + shift
    return EventTimes(starts, events.us[index], events.tokens[index], events.lag_us[index])
