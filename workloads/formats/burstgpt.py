"""BurstGPT: seconds since local midnight of day one; a failed request has 0 response tokens."""

from __future__ import annotations

from workloads.formats.delimited import Table
from workloads.formats.timestamp import decimal_ns

TABLE = Table(
    name="burstgpt-csv",
    time="Timestamp",
    prompt="Request tokens",
    output="Response tokens",
    unit="s",
    nanoseconds=decimal_ns,
    form="seconds",
    session="Session ID",
)
