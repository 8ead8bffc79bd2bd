"""Traces as vidur re-publishes them: seconds from the first row."""

from __future__ import annotations

from workloads.formats.delimited import Table
from workloads.formats.timestamp import decimal_ns

TABLE = Table("vidur-csv", "arrived_at", "num_prefill_tokens", "num_decode_tokens", decimal_ns)
