"""Emulator cases: simulated requests go through the same formulas as measured ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metrics.records import RecordTable, StampSource
from tests.cases.kinds._records import Figures, read_records, to_rows


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Rows as the simulator fills them, and their figures."""
    options = case.get("options", {})
    rows = to_rows(read_records(case_dir / "records.jsonl").records, options.get("warmup_s", 0.0))
    rows["stamp_source"] = StampSource.SIMULATED
    Figures(RecordTable(rows), options).check(expected)
