"""Traces as vidur re-publishes them: seconds from the first row, or lengths without times."""

from __future__ import annotations

from workloads.formats.delimited import Table
from workloads.formats.timestamp import decimal_ns

TABLE = Table(
    name="vidur-csv",
    time="arrived_at",
    prompt="num_prefill_tokens",
    output="num_decode_tokens",
    unit="s",
    nanoseconds=decimal_ns,
    form="seconds",
)
LENGTHS = Table(name="lengths-csv", prompt="num_prefill_tokens", output="num_decode_tokens")
LENGTHS_MARK = "num_total_tokens"  # tells a length-only file from one that lost its time column
