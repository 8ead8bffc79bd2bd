"""What a model said beforehand of the same schedule, kept small enough to stand beside what was measured."""

from __future__ import annotations

import msgspec

from metrics.latency import counted, e2e_s, select, tpot_s, ttft_s
from metrics.records import RecordTable
from metrics.slo import SLO, attain
from metrics.stats import Stat, describe


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Attainment and latencies of a simulated replay; `source` names the model in a few words."""

    source: str
    attainment: float | None
    ttft_s: Stat | None
    tpot_s: Stat | None
    e2e_s: Stat | None


def prediction(table: RecordTable, slo: SLO | None, source: str = "the simulator") -> Prediction:
    """From the table a simulation of the schedule gave."""
    rows = select(table.rows, counted(table.rows))
    return Prediction(
        source=source,
        attainment=None if slo is None else attain(table, slo).share,
        ttft_s=describe(ttft_s(rows)),
        tpot_s=describe(tpot_s(rows)),
        e2e_s=describe(e2e_s(rows)),
    )
