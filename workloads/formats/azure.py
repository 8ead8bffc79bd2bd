"""Azure LLM inference traces: 2023 (seven fractional digits, no zone) and 2024 (microseconds, +00:00)."""

from __future__ import annotations

from workloads.formats.delimited import Table
from workloads.formats.timestamp import calendar_ns

TABLE = Table("azure-csv", "TIMESTAMP", "ContextTokens", "GeneratedTokens", calendar_ns, absolute=True)
