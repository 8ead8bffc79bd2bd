"""BurstGPT: seconds since local midnight of day one; a failed request has 0 response tokens."""

from __future__ import annotations

from workloads.formats.delimited import Table
from workloads.formats.timestamp import decimal_ns

TABLE = Table("burstgpt-csv", "Timestamp", "Request tokens", "Response tokens", decimal_ns, session="Session ID")
