"""Journals put back into the order of the plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from metrics.journal import JournalWriter, read_journal
from metrics.merge import merge
from metrics.records import Outcome, empty_rows


def test_a_turn_that_waited_keeps_the_instant_it_got(tmp_path: Path) -> None:
    """The plan does not know when a later turn is due (NaN); the worker does, and its record counts."""
    planned = empty_rows(2)
    planned["scheduled_s"] = [0.0, np.nan]
    journal = JournalWriter(tmp_path / "records-0.bin", 0)
    for request_id, scheduled_s in ((0, 9.0), (1, 3.5)):
        row = empty_rows(1)
        row["request_id"], row["scheduled_s"], row["sent_s"], row["outcome"] = request_id, scheduled_s, 4.0, Outcome.OK
        journal.record(row[0])
    journal.close()
    table = merge([read_journal(tmp_path / "records-0.bin")], planned)
    assert [0.0, 3.5] == table.rows["scheduled_s"].tolist()
