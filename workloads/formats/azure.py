"""Azure LLM inference traces: 2023 (seven fractional digits, no zone) and 2024 (microseconds, +00:00)."""

from __future__ import annotations

from workloads.formats.delimited import Table
from workloads.formats.times import DATES
from workloads.formats.timestamp import calendar_ns

TABLE = Table(
    name="azure-csv",
    time="TIMESTAMP",
    prompt="ContextTokens",
    output="GeneratedTokens",
    unit=DATES,
    nanoseconds=calendar_ns,
    form="calendar",
    absolute=True,
)
